# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""BPF objects through the system's libbpf.so.1, by ctypes: load, map memory, attach, run.

Every attachment is a link: its file descriptor dies with the process, so a killed run leaves none behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import importlib.resources
import mmap
import os
import platform
import struct
from collections.abc import Iterator

from rxbook import RxbookError

__all__ = [
    "LIBBPF_PACKAGES",
    "BpfObject",
    "attach_netfilter",
    "attach_raw_tracepoint",
    "attach_tracing",
    "attach_xdp",
    "kernel_functions",
    "library",
    "run_live_frames",
    "silence",
]

LIBBPF_PACKAGES = "Debian: apt install libbpf1; Fedora: dnf install libbpf"
"""Where libbpf.so.1 comes from."""

OBJECTS = importlib.resources.files("rxbook.kernel") / "bpf"
"""In an archive, too, from which another host runs a role."""

# linux/bpf.h, linux/if_link.h, linux/netfilter.h
BPF_LINK_CREATE = 28
BPF_PROG_TYPE_NETFILTER, BPF_NETFILTER = 32, 45
BPF_XDP = 37
XDP_FLAGS_SKB_MODE, XDP_FLAGS_DRV_MODE = 1 << 1, 1 << 2
BPF_F_TEST_XDP_LIVE_FRAMES = 1 << 1
NFPROTO_IPV4, NFPROTO_IPV6, NF_INET_PRE_ROUTING = 2, 10, 0
BPF_SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361}


@functools.cache
def library() -> ctypes.CDLL:
    """libbpf.so.1; raises RxbookError that names the package where it is missing."""
    try:
        libbpf = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError:
        raise RxbookError(f"libbpf.so.1 is not installed. {LIBBPF_PACKAGES}") from None
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in [
        ("bpf_object__open_mem", pointer, [pointer, ctypes.c_size_t, pointer]),
        ("bpf_object__load", ctypes.c_int, [pointer]),
        ("bpf_object__find_program_by_name", pointer, [pointer, text]),
        ("bpf_object__find_map_fd_by_name", ctypes.c_int, [pointer, text]),
        ("bpf_object__find_map_by_name", pointer, [pointer, text]),
        ("libbpf_set_print", pointer, [pointer]),
        ("bpf_program__fd", ctypes.c_int, [pointer]),
        ("bpf_program__set_type", ctypes.c_int, [pointer, ctypes.c_int]),
        ("bpf_program__set_expected_attach_type", ctypes.c_int, [pointer, ctypes.c_int]),
        ("bpf_program__set_attach_target", ctypes.c_int, [pointer, ctypes.c_int, text]),
        ("bpf_program__set_autoload", ctypes.c_int, [pointer, ctypes.c_bool]),
        ("bpf_map__set_max_entries", ctypes.c_int, [pointer, ctypes.c_uint32]),
        ("bpf_map__initial_value", pointer, [pointer, ctypes.POINTER(ctypes.c_size_t)]),
        ("bpf_map_update_elem", ctypes.c_int, [ctypes.c_int, pointer, pointer, ctypes.c_uint64]),
        ("bpf_obj_get_info_by_fd", ctypes.c_int, [ctypes.c_int, pointer, pointer]),
        ("bpf_raw_tracepoint_open", ctypes.c_int, [text, ctypes.c_int]),
        ("bpf_prog_test_run_opts", ctypes.c_int, [ctypes.c_int, pointer]),
        ("btf__load_vmlinux_btf", pointer, []),
        ("btf__new", pointer, [text, ctypes.c_uint32]),
        ("btf__free", None, [pointer]),
        ("btf__find_by_name_kind", ctypes.c_int32, [pointer, text, ctypes.c_uint32]),
        ("btf__type_by_id", pointer, [pointer, ctypes.c_uint32]),
        ("btf__name_by_offset", text, [pointer, ctypes.c_uint32]),
        ("libbpf_major_version", ctypes.c_uint32, []),
        ("libbpf_minor_version", ctypes.c_uint32, []),
    ]:
        function = getattr(libbpf, name)
        function.restype, function.argtypes = result, arguments
    return libbpf


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno() or -result
        hint = "; run as root" if number in (errno.EPERM, errno.EACCES) and os.geteuid() else ""
        raise RxbookError(f"{what}: {os.strerror(number)}{hint}")
    return result


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """libbpf says nothing on standard error meanwhile: for what may be refused."""
    before = library().libbpf_set_print(None)
    try:
        yield
    finally:
        library().libbpf_set_print(before)


class _OpenOptions(ctypes.Structure):
    """struct bpf_object_open_opts of bpf/libbpf.h, as far as it is used."""

    _fields_ = (("sz", ctypes.c_size_t), ("object_name", ctypes.c_char_p))


class BpfObject:
    """One compiled object of kernel/bpf, loaded. `rodata` fills its constants before the load.

    targets: the kernel function that each fentry or fexit program is for; one without is not loaded.
    """

    def __init__(
        self,
        name: str,
        rodata: bytes = b"",
        program_types: dict[str, tuple[int, int]] | None = None,
        map_entries: dict[str, int] | None = None,
        targets: dict[str, str | None] | None = None,
    ):
        self.name = name
        self._libbpf = library()
        self._bytes = (OBJECTS / f"{name}.bpf.o").read_bytes()
        options = _OpenOptions(ctypes.sizeof(_OpenOptions), name.encode())
        self._object = self._libbpf.bpf_object__open_mem(self._bytes, len(self._bytes), ctypes.byref(options))
        if not self._object:
            raise RxbookError(f"cannot open BPF object {name}: {os.strerror(ctypes.get_errno())}")
        if rodata:
            self._fill_rodata(rodata)
        # libbpf before 1.3 does not know netfilter's section name, so the type is set by hand
        for program, (kind, attach) in (program_types or {}).items():
            handle = self._program(program)
            self._libbpf.bpf_program__set_type(handle, kind)
            self._libbpf.bpf_program__set_expected_attach_type(handle, attach)
        for program, target in (targets or {}).items():
            handle = self._program(program)
            if target:
                self._libbpf.bpf_program__set_attach_target(handle, 0, target.encode())
            else:
                self._libbpf.bpf_program__set_autoload(handle, False)
        for map_name, entries in (map_entries or {}).items():
            handle = self._libbpf.bpf_object__find_map_by_name(self._object, map_name.encode())
            self._libbpf.bpf_map__set_max_entries(handle, entries)
        _checked(self._libbpf.bpf_object__load(self._object), f"the kernel refused BPF object {name}")

    def _fill_rodata(self, rodata: bytes) -> None:
        size = ctypes.c_size_t()
        handle = self._libbpf.bpf_object__find_map_by_name(self._object, b".rodata")
        address = self._libbpf.bpf_map__initial_value(handle, ctypes.byref(size))
        ctypes.memmove(address, rodata, min(size.value, len(rodata)))

    def _program(self, name: str) -> int:
        handle = self._libbpf.bpf_object__find_program_by_name(self._object, name.encode())
        if not handle:
            raise KeyError(f"no program {name} in BPF object {self.name}")
        return handle

    def program_fd(self, name: str) -> int:
        """File descriptor of a loaded program."""
        return self._libbpf.bpf_program__fd(self._program(name))

    def map_fd(self, name: str) -> int:
        """File descriptor of a map; global variables are the map `.bss`."""
        return _checked(
            self._libbpf.bpf_object__find_map_fd_by_name(self._object, name.encode()), f"map {name}"
        )

    def memory(self, name: str, size: int) -> mmap.mmap:
        """The first `size` bytes of an mmapable map."""
        return mmap.mmap(self.map_fd(name), size)

    def update(self, name: str, key: bytes, value: bytes) -> None:
        """Set one element of a map."""
        _checked(self._libbpf.bpf_map_update_elem(self.map_fd(name), key, value, 0), f"cannot set map {name}")

    def map_id(self, name: str) -> int:
        """The kernel's id of a map: what its tracepoints name it by."""
        info = ctypes.create_string_buffer(88)  # struct bpf_map_info: type, id, ...
        length = ctypes.c_uint32(len(info))
        result = self._libbpf.bpf_obj_get_info_by_fd(self.map_fd(name), info, ctypes.byref(length))
        _checked(result, f"cannot read the id of map {name}")
        return struct.unpack_from("=II", info)[1]


def _link_create(program_fd: int, target: int, attach_type: int, flags: int, rest: bytes, what: str) -> int:
    # libbpf's own wrapper has netfilter links only from 1.3 on
    attributes = struct.pack("=IIII", program_fd, target, attach_type, flags) + rest.ljust(32, b"\0")
    number = BPF_SYSCALL.get(platform.machine())
    if number is None:
        raise RxbookError(f"the number of the bpf() system call is not known on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    return _checked(libc.syscall(number, BPF_LINK_CREATE, buffer, len(attributes)), what)


def attach_xdp(program_fd: int, ifindex: int, generic: bool = False) -> int:
    """Attach an XDP program to a device, native unless `generic`. Returns the link's file descriptor."""
    flags = XDP_FLAGS_SKB_MODE if generic else XDP_FLAGS_DRV_MODE
    return _link_create(program_fd, ifindex, BPF_XDP, flags, b"", f"cannot attach XDP to interface {ifindex}")


def attach_netfilter(program_fd: int) -> list[int]:
    """Attach a netfilter program at prerouting, IPv4 and IPv6. Returns the links' file descriptors."""
    return [
        _link_create(
            program_fd,
            0,
            BPF_NETFILTER,
            0,
            struct.pack("=IIiI", family, NF_INET_PRE_ROUTING, -300, 0),
            "cannot attach a netfilter BPF program (Linux 6.4 and CONFIG_NETFILTER_BPF_LINK are needed)",
        )
        for family in (NFPROTO_IPV4, NFPROTO_IPV6)
    ]


def attach_raw_tracepoint(program_fd: int, name: str) -> int:
    """Attach to a raw tracepoint. Returns the link's file descriptor."""
    return _checked(
        library().bpf_raw_tracepoint_open(name.encode(), program_fd), f"cannot attach to tracepoint {name}"
    )


def attach_tracing(program_fd: int, what: str) -> int:
    """Attach a loaded fentry or fexit program to its function. Returns the link's file descriptor."""
    return _checked(library().bpf_raw_tracepoint_open(None, program_fd), f"cannot trace {what}")


def kernel_functions(*names: str) -> set[str]:
    """Those of the names that the running kernel's BTF has as functions; none where it has no BTF."""
    kind_function = 12
    btf = library().btf__load_vmlinux_btf()
    if not btf:
        return set()
    try:
        return {
            name for name in names if library().btf__find_by_name_kind(btf, name.encode(), kind_function) > 0
        }
    finally:
        library().btf__free(btf)


class TestRunOptions(ctypes.Structure):
    """struct bpf_test_run_opts of bpf/bpf.h."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("data_in", ctypes.c_char_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("ctx_in", ctypes.c_char_p),
        ("ctx_out", ctypes.c_void_p),
        ("ctx_size_in", ctypes.c_uint32),
        ("ctx_size_out", ctypes.c_uint32),
        ("retval", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    )


def run_live_frames(
    program_fd: int, frame: bytes, ingress_ifindex: int, repeat: int, batch: int = 64
) -> bool:
    """Send `repeat` frames as the program says; blocks. Returns False where a signal ended it early."""
    context = struct.pack("=IIIIII", 0, len(frame), 0, ingress_ifindex, 0, 0)  # struct xdp_md
    options = TestRunOptions(
        sz=ctypes.sizeof(TestRunOptions),
        data_in=frame,
        data_size_in=len(frame),
        ctx_in=context,
        ctx_size_in=len(context),
        repeat=repeat,
        flags=BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size=batch,
    )
    result = library().bpf_prog_test_run_opts(program_fd, ctypes.byref(options))
    if result == -errno.EINTR:
        return False
    _checked(
        result, f"the kernel refused live frames of {len(frame)} bytes (BPF_PROG_RUN, Linux 5.18 is needed)"
    )
    return True
