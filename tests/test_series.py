# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A series of kernels: real git and real make on a small stand-in tree, whose sources are shell scripts."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernel_images import bzimage
from rxbook import RxbookError, cli, execute
from rxbook.guests import building, kernels, qemu, series

pytestmark = pytest.mark.skipif(
    not (shutil.which("git") and shutil.which("make")), reason="git and make are needed"
)

MAKEFILE = r"""
OBJECTS := $(patsubst src/%.c,$(O)/%.o,$(sort $(wildcard src/*.c)))
.DELETE_ON_ERROR:
all: $(O)/arch/x86/boot/bzImage
$(O)/arch/x86/boot/bzImage: image.bin $(OBJECTS)
	@mkdir -p $(@D)
	@cat $^ > $@
$(O)/%.o: src/%.c
	@echo "  CC      $*.o"
	@sh $< > $@
tinyconfig:
	@echo "# CONFIG_OF_A_SERVER is not set" > $(O)/.config
olddefconfig:
	@grep -wFf options $(O)/.config > $(O)/new; mv $(O)/new $(O)/.config
"""
MERGE = '#!/bin/sh\n[ "$1 $2" = "-n -O" ] && cat "$5" >> "$4"\n'
OPTIONS = re.findall(r"^(?:# )?(CONFIG_\w+)", building.SMALL_FILE.read_text(), re.MULTILINE)


class Tree:
    """A repository whose build is quick; git commands on it."""

    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "src").mkdir(parents=True)
        (folder / "scripts/kconfig").mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        (folder / "image.bin").write_bytes(bzimage(b""))
        (folder / "scripts/kconfig/merge_config.sh").write_text(MERGE)
        (folder / "Makefile").write_text(MAKEFILE)
        (folder / "options").write_text("\n".join(OPTIONS) + "\n")

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", "-C", str(self.folder), *who, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    def commit(self, subject: str, *more: str, **sources: str) -> str:
        """Commit these sources; returns the hash."""
        for name, text in sources.items():
            (self.folder / "src" / f"{name}.c").write_text(text + "\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", subject, *more)
        return self.git("rev-parse", "HEAD")

    def build(self, *named: str, config: str = building.SMALL) -> list[kernels.Kernel]:
        return series.build(self.folder, series.points(self.folder, list(named)), config, jobs=2)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = Tree(tmp_path / "linux")
    made.commit("Linux 6.99", one="echo one", two="echo two", three="echo three")
    made.commit("net: gro: change (one), once", one="echo ONE")
    made.commit("net: change two", two="echo TWO")
    return made


def made_of(kernel: kernels.Kernel) -> str:
    return kernel.image.read_bytes().removeprefix(bzimage(b"")).decode().replace("\n", " ").strip()


def compiled(capsys) -> list[int]:
    """Files compiled at each point that was built, as the command said."""
    return [int(number) for number in re.findall(r"built in \d+:\d\d, (\d+) files", capsys.readouterr().out)]


def workplace(tmp_path) -> Path:
    (found,) = (tmp_path / "cache/rxbook/series").iterdir()
    return found


def test_each_point_is_its_commit_and_builds_only_what_changed(tree, tmp_path, capsys):
    built = tree.build("main~2", "patch 1=main~1", "main")
    assert [made_of(kernel) for kernel in built] == ["one three two", "ONE three two", "ONE three TWO"]
    assert compiled(capsys) == [3, 1, 1]
    short = [tree.git("rev-parse", "--short", name) for name in ("main~2", "main")]
    assert [kernel.label for kernel in built] == [
        f"{short[0]} Linux 6.99",
        "patch 1",
        f"{short[1]} change two",
    ]
    assert {kernel.label: kernel for kernel in kernels.known()} == {kernel.label: kernel for kernel in built}
    assert built[1].source == f"linux {tree.git('rev-parse', 'main~1')[:12]}"
    assert "CONFIG_IPV6=y" in built[1].options()
    assert not (workplace(tmp_path) / "build").exists()


def test_what_was_built_before_is_not_built_again(tree, tmp_path, capsys):
    tree.build("a=main~1", "b=main")
    logs = {path: path.read_text() for path in workplace(tmp_path).glob("*.log")}
    capsys.readouterr()
    again = tree.build("first=main~1", "second=main")
    assert [made_of(kernel) for kernel in again] == ["ONE three two", "ONE three TWO"]
    assert capsys.readouterr().out.count("was built before") == 2
    assert {path: path.read_text() for path in logs} == logs and len(logs) == 2


def test_after_an_amended_commit_one_file_is_compiled_and_the_old_folder_is_gone(tree, tmp_path, capsys):
    tree.build("a=main~1", "b=main")
    old = tree.git("rev-parse", "main")
    new = tree.commit("net: change two", "--amend", three="echo three times")
    capsys.readouterr()
    built = tree.build("a=main~1", "b=main")
    assert made_of(built[1]) == "ONE three times TWO" and compiled(capsys) == [1]
    names = " ".join(path.name for path in workplace(tmp_path).iterdir())
    assert new in names and old not in names


def test_the_checkout_of_the_user_stays_as_it_is(tree, capsys):
    (tree.folder / "src/one.c").write_text("echo not committed\n")
    hook = tree.folder / ".git/hooks/post-checkout"
    hook.write_text("#!/bin/sh\ntouch ran-the-hook\n")
    hook.chmod(0o755)

    def seen():
        files = {path: path.stat().st_mtime_ns for path in tree.folder.rglob("*") if ".git" not in path.parts}
        return files, (tree.folder / ".git/index").read_bytes(), tree.git("symbolic-ref", "HEAD")

    before = seen()
    (kernel, _) = tree.build("a=main~2", "b=main~1")
    assert made_of(kernel) == "one three two" and seen() == before
    assert "not committed are not built: 1 files" in capsys.readouterr().err


def test_a_point_that_does_not_build_stops_the_series_and_tells_why(tree, tmp_path, capsys):
    tree.commit("break two", two="echo two.c:1: no such thing >&2; exit 3")
    tree.commit("net: three", three="echo THREE")
    with pytest.raises(RxbookError) as error:
        tree.build("good=main~2", "bad=main~1", "later=main")
    assert re.match(
        r"bad: make all fails with status 2; all .* \S+\.log\. Nothing was measured", str(error.value)
    )
    log = Path(re.search(r"\S+\.log", str(error.value))[0])
    assert "two.c:1: no such thing" in log.read_text()
    told = capsys.readouterr()
    assert "two.c:1: no such thing" in told.err and "  CC" not in told.err
    assert [kernel.label for kernel in kernels.known()] == ["good"]
    tree.git("reset", "--hard", "-q", "main~2")
    tree.commit("mend two", two="echo mended")
    assert made_of(tree.build("good=main~1", "mended=main")[1]) == "ONE three mended"
    assert compiled(capsys) == [1]


SLOW = "[ -e {gate} ] || {{ touch {reached}; sleep 600; }}; echo slow"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_an_interrupted_build_goes_on_where_it_was(tree, tmp_path, capsys, how):
    reached, gate = tmp_path / "reached", tmp_path / "gate"
    tree.commit("slow", zlast=SLOW.format(gate=gate, reached=reached))
    words = ["series", "--tree", tree.folder, "--base", "a=main~1", "--at", "slow=main", "--jobs", "1"]
    code = "import sys; from rxbook import cli; from rxbook.guests import qemu; qemu.require = lambda: None; cli.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while not reached.exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        os.kill(process.pid, how)
        if how == signal.SIGKILL:
            process.wait()
            with pytest.raises(RxbookError, match="another series"):  # make goes on, with nobody to stop it
                tree.build("a=main~1")
        else:
            _, err = process.communicate(timeout=30)
            assert process.returncode == 130 and "what was built stays" in err and "Traceback" not in err
            assert not members(process.pid)
    finally:
        for pid in members(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        process.stderr.close()
    gate.touch()
    built = tree.build("a=main~1", "slow=main")
    assert made_of(built[1]) == "ONE three TWO slow"
    assert compiled(capsys) == [1]  # the first point and the copied files are not built again


def members(session: int) -> list[int]:
    """Processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[3]) == session and words[0] != "Z":
            found.append(int(path.parent.name))
    return found


def test_a_copy_that_was_cut_short_and_a_lost_source_are_made_again(tree, tmp_path, capsys):
    tree.build("a=main~1")
    place = workplace(tmp_path)
    (place / "copy").mkdir()
    shutil.rmtree(place / "source")
    capsys.readouterr()
    assert made_of(tree.build("a=main~1", "b=main")[1]) == "ONE three TWO"
    assert sorted(path.name for path in place.iterdir() if not path.name.startswith("point-")) == [
        "lock",
        "source",
    ]


def test_two_series_of_one_repository_do_not_meet(tree, tmp_path):
    tree.build("a=main~1")
    with series._held(workplace(tmp_path)), pytest.raises(RxbookError, match="another series is being built"):
        tree.build("a=main")


def test_a_point_that_was_built_is_nearer_than_one_that_failed(tree, capsys):
    tree.build("a=main~2")
    tree.commit("broken", aaa="exit 1", one="echo 1")  # nearer to what follows, but its first file fails
    with pytest.raises(RxbookError, match="fails"):
        tree.build("a=main~3", "b=main")
    tree.commit("mended", aaa="echo a")
    capsys.readouterr()
    built = tree.build("a=main~4", "c=main")
    assert made_of(built[1]) == "a 1 three TWO"
    assert compiled(capsys) == [3]  # aaa, one, two: all of "three" is taken over


def test_it_can_be_called_by_git_and_by_make(tree, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("MAKEFLAGS", "n")  # a dry run
    assert made_of(tree.build("a=HEAD")[0]) == "ONE three TWO"


# --- the configuration


def test_an_option_that_the_tree_has_not_is_told(tree, capsys):
    (tree.folder / "options").write_text("\n".join(name for name in OPTIONS if name != "CONFIG_TUN") + "\n")
    tree.commit("no tun")
    tree.build("a=main")
    assert "a: WARNING: this tree leaves unset CONFIG_TUN\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lost", "words"),
    [("CONFIG_VETH", "a guest needs CONFIG_VETH,"), ("CONFIG_DEBUG_INFO_BTF", "pahole is missing")],
)
def test_a_configuration_that_cannot_measure_is_refused_before_the_build(tree, lost, words):
    (tree.folder / "options").write_text("\n".join(name for name in OPTIONS if name != lost) + "\n")
    tree.commit("without", one="exit 1")
    with pytest.raises(RxbookError, match=words):
        tree.build("a=main")


def test_a_file_is_a_configuration_of_its_own(tree, tmp_path, capsys):
    mine = tmp_path / "mine.config"
    mine.write_text("".join(f"CONFIG_{name}={'m' if name == 'VETH' else 'y'}\n" for name in building.NEEDED))
    tree.commit("with veth", veth="printf '\\0license=GPL\\0depends=\\0'; ln -f $PWD/src/veth.c $O/veth.ko")
    with pytest.raises(RxbookError, match=r"veth is a module, and --modules has no veth\.ko"):
        tree.build("a=main~1", config=str(mine))
    with pytest.raises(RxbookError, match=r"--config /no/such: No such file .*say small"):
        tree.build("a=main", config="/no/such")
    (small,) = tree.build("small=main~1")
    assert "CONFIG_VETH=y" in small.options() and compiled(capsys) == [3, 3]


def test_options_that_are_otherwise_than_wanted():
    wanted = "# a comment\nCONFIG_A=y\nCONFIG_B=8\n# CONFIG_C is not set\n# CONFIG_D is not set\nCONFIG_E=y\n"
    made = "CONFIG_A=y\nCONFIG_B=64\nCONFIG_C=y\n# CONFIG_E is not set\n"
    assert building.lacking(wanted, made) == ["CONFIG_B", "CONFIG_C", "CONFIG_E"]


# --- the command


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (["nosuch"], "bad revision 'nosuch'|unknown revision"),
        (["main", "main"], "two points have the label .*: write LABEL=COMMIT"),
        (["x/y=main"], "label 'x/y': at most 30"),
        (["=main"], "label '': at most 30"),
        (["a="], "a=: no commit"),
        (["--all"], "bad revision '--all'|unknown revision"),
    ],
)
def test_a_point_that_is_none_is_refused(tree, named, words):
    with pytest.raises(RxbookError, match=words):
        series.points(tree.folder, named)


def test_a_folder_without_a_repository_is_refused(tmp_path):
    with pytest.raises(RxbookError, match="not a git repository"):
        series.points(tmp_path, ["main"])


@pytest.fixture
def command(tree, monkeypatch, capsys):
    monkeypatch.setattr(qemu, "require", lambda: None)

    def call(*words):
        told = ["rxbook", "series", "--tree", str(tree.folder), "--base", "base=main~2", *words]
        monkeypatch.setattr(sys, "argv", told)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, *capsys.readouterr()

    return call


def test_the_command_builds_and_then_runs_the_plan(command, monkeypatch):
    ran = []
    monkeypatch.setattr(execute, "run", lambda *words: ran.append(words))
    status, out, _ = command("--at", "one=main~1,both=main", "--set", "frame_sizes=64,512")
    assert status == 0 and [made_of(kernel) for kernel in kernels.known()] == [
        "one three two", "ONE three TWO", "ONE three two",
    ]  # fmt: skip
    assert ran == [("gro_on_off", {"frame_sizes": "64,512", "variants": "base,one,both"}, None, None)]
    assert out.index("3/3 both: built") < out.index("\none              6.99.1-mine")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "frame_size=64"], "unknown parameter frame_size"),
        (["--set", "variants=x"], "leave --set variants out"),
        (["--notebook", "nosuch"], "no notebook is named nosuch"),
        (["--config", "/no/such"], "/no/such: No such file"),
    ],
)
def test_a_mistake_is_told_before_anything_is_built(command, tmp_path, words, said):
    status, out, err = command("--at", "main", *words)
    assert status == 1 and said in err and err.count("\n") == 1 and out == ""
    assert not list(tmp_path.glob("cache/rxbook/series/*/source"))
