# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two hosts for tests: a namespace each with an sshd of its own, joined by two veth pairs.

One pair stands for the Ethernet devices that are measured. The other carries SSH to the second host, by way of the
first, as through a jump host. The first is reached by a process in its namespace, so no packet is seen outside.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

import ethtool_ioctl
from live import run

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")
MISSING = [name for name, found in (("sshd", SSHD), ("ssh", shutil.which("ssh"))) if not found]
PORT = 2222

RELAY = """
import os, socket, sys, threading
to = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def back():
    while data := to.recv(65536): os.write(1, data)
    os._exit(0)
threading.Thread(target=back).start()
while data := os.read(0, 65536): to.sendall(data)
to.shutdown(socket.SHUT_WR)
"""

SSHD_CONFIG = """
Port {port}
ListenAddress {listen}
HostKey {folder}/host_key_{name}
AuthorizedKeysFile none
AuthorizedKeysCommand /usr/bin/cat {folder}/user_key.pub
AuthorizedKeysCommandUser root
SetEnv TMPDIR={folder}/tmp_{name}
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
"""

SSH_CONFIG = """
Host near
  HostKeyAlias near
  ProxyCommand nsenter --net=/run/netns/{near} {python} {folder}/relay.py {port}
Host far far_*
  HostKeyAlias far
  HostName 10.87.0.2
  Port {port}
  ProxyJump near
Host far_trusted
  User trusted
Host far_other
  User other
Host *
  User root
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
"""


ACCOUNTS = {
    "passwd": "trusted:x:4242:65534::/:/bin/sh\nother:x:4243:65534::/:/bin/sh\n",
    "shadow": "trusted:*:19000:0:99999:7:::\nother:*:19000:0:99999:7:::\n",
    "sudoers": "trusted ALL=(ALL) NOPASSWD: ALL\nother ALL=(ALL) ALL\n",
}
"""Users of the second host alone: one may run sudo without a password, one may not."""


@dataclasses.dataclass
class TwoHosts:
    """near sends and is the jump host, far receives. `file` is the YAML file; namespaces by name."""

    folder: Path
    near: str
    far: str
    file: Path

    def write(self, **changes: object) -> Path:
        """Another YAML file; `receiver={...}` changes some of its lines."""
        content = yaml.safe_load(self.file.read_text())
        for name, value in changes.items():
            content[name] = content[name] | value if isinstance(value, dict) else value
        path = self.folder / f"{secrets.token_hex(4)}.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    def inside(self, namespace: str, *command: str) -> str:
        """A command's output, in one of the hosts."""
        return run("ip", "netns", "exec", namespace, *command)

    def state(self) -> dict[str, object]:
        """All that a run might change on the receiving device."""
        links = json.loads(self.inside(self.far, "ip", "-j", "-d", "addr", "show"))
        for link in links:
            link.pop("promiscuity", None)
        features = self.inside(self.far, sys.executable, ethtool_ioctl.__file__, "data1")
        neighbours = self.inside(self.far, "ip", "-j", "neigh", "show", "nud", "permanent")
        threaded = self.inside(self.far, "cat", "/sys/class/net/data1/threaded")
        near = json.loads(self.inside(self.near, "ip", "-j", "-d", "link", "show"))
        files = sorted(str(path) for path in self.folder.glob("tmp_*/**/*"))
        return {"links": links, "features": features, "neigh": neighbours, "threaded": threaded, "near": near,
                "files": files, "perf": processes(f"{self.folder}/tmp_")}  # fmt: skip


@contextlib.contextmanager
def two_hosts(folder: Path) -> Iterator[TwoHosts]:
    """Both hosts up and reachable; gone afterwards."""
    token = secrets.token_hex(3)
    near, far = f"rxbt{token}a", f"rxbt{token}b"
    for key in ("user_key", "host_key_near", "host_key_far"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))
    known = [f"{name} {(folder / f'host_key_{name}.pub').read_text()}" for name in ("near", "far")]
    (folder / "known_hosts").write_text("".join(known))
    (folder / "relay.py").write_text(RELAY)
    about = {"folder": folder, "port": PORT, "near": near, "python": sys.executable}
    (folder / "ssh_config").write_text(SSH_CONFIG.format(**about))
    file = folder / "hosts.yaml"
    place = {"cpu": 0, "python": "/usr/bin/python3"}
    file.write_text(
        yaml.safe_dump(
            {
                "sender": {"host": "near", "interface": "data0", **place},
                "receiver": {"host": "far", "interface": "data1", **place, "cpu": 1},
                "ssh_config": "ssh_config",
            }
        )
    )
    with contextlib.ExitStack() as stack:
        for name in (near, far):
            run("ip", "netns", "add", name)
            stack.callback(run, "ip", "netns", "del", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        for kind, addresses in (("data", ()), ("ssh", ("10.87.0.1/24", "10.87.0.2/24"))):
            run("ip", "-n", near, "link", "add", f"{kind}0", "type", "veth", "peer", f"{kind}1", "netns", far)
            for at, name in enumerate((near, far)):
                if addresses:
                    run("ip", "-n", name, "addr", "add", addresses[at], "dev", f"{kind}{at}")
                run("ip", "-n", name, "link", "set", f"{kind}{at}", "addrgenmode", "none", "up")
        Path("/run/sshd").mkdir(exist_ok=True)
        for name, namespace, listen in (("near", near, "127.0.0.1"), ("far", far, "10.87.0.2")):
            stack.enter_context(sshd(folder, name, namespace, listen))
        wait_for_ssh(folder)
        hosts = TwoHosts(folder, near, far, file)
        while "NO-CARRIER" in json.dumps(hosts.state()):  # the kernel notices in its own time
            time.sleep(0.05)
        yield hosts


@contextlib.contextmanager
def sshd(folder: Path, name: str, namespace: str, listen: str) -> Iterator[None]:
    config = folder / f"sshd_{name}"
    (folder / f"tmp_{name}").mkdir()
    mounts = []
    for file, lines in ACCOUNTS.items():
        there = Path("/etc", file)
        (folder / file).write_text((there.read_text() if there.exists() else "") + lines)
        (folder / file).chmod(0o440 if file == "sudoers" else 0o644)
        mounts += [f"mount --bind {folder / file} {there}"] * there.exists()
    config.write_text(SSHD_CONFIG.format(port=PORT, listen=listen, folder=folder, name=name))
    private = ["unshare", "--mount", "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh"]
    command = [*private, "ip", "netns", "exec", namespace, SSHD, "-D", "-e", "-f", str(config)]
    with open(folder / f"sshd_{name}.log", "w") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


def processes(words: str) -> list[str]:
    """Command lines that have these words in them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if words in (line := path.read_bytes().replace(b"\0", b" ").decode()):
                found.append(line)
    return found


def wait_for_ssh(folder: Path) -> None:
    """Until the second host answers, through the first; its words where it does not."""
    deadline = time.monotonic() + 10
    command = ["ssh", "-F", str(folder / "ssh_config"), "-o", "BatchMode=yes", "far", "true"]
    while (done := subprocess.run(command, capture_output=True, text=True)).returncode:
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.1)
