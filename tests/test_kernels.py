# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The store of kernels: what an image tells, its modules and configuration, and which of Debian's is the newest."""

from __future__ import annotations

import lzma

import pytest

from kernel_images import COMPRESS, bzimage, elf, module
from rxbook import RxbookError
from rxbook.guests import debian, images, kernels
from rxbook.kernel import facts

needs_btf = pytest.mark.skipif(
    not facts.BTF_VMLINUX.exists(), reason="this kernel has no BTF to put into an image"
)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("form", COMPRESS)
def test_an_image_tells_its_release_and_its_btf(form):
    btf = b"as it was" * 1_000_000  # of lz4 more than one block
    image = bzimage(COMPRESS[form](elf(btf)))
    assert images.release(image) == "6.99.1-mine"
    assert images.btf(image) == btf


@needs_btf
def test_the_btf_of_an_image_tells_what_that_of_its_kernel_does():
    image = bzimage(elf(facts.BTF_VMLINUX.read_bytes()))
    assert facts.btf_facts(images.btf(image)) == facts.btf_facts()


@pytest.mark.parametrize("payload", [b"\x04\x22\x4d\x18 lz4", elf(b"")[:64] + bytes(400)])
def test_an_image_without_readable_btf_is_no_error(payload):
    assert not images.btf(bzimage(payload))


def test_what_is_no_kernel_is_refused(store):
    (store / "vmlinuz").write_bytes(b"\x7fELF" + bytes(1000))
    with pytest.raises(RxbookError, match="no x86 kernel image"):
        kernels.add("mine", store / "vmlinuz")
    assert kernels.known() == []


def test_a_kernel_is_added_with_the_modules_it_needs_in_their_order(store):
    (store / "vmlinuz").write_bytes(bzimage(b""))
    (store / "config").write_text("# made\nCONFIG_VETH=m\n")
    deep = store / "modules" / "kernel" / "drivers"
    deep.mkdir(parents=True)
    (deep / "veth.ko.xz").write_bytes(lzma.compress(module("page-pool")))
    (deep / "page_pool.ko").write_bytes(module())
    (deep / "other.ko").write_bytes(module())
    added = kernels.add("patch 3", store / "vmlinuz", store / "modules")
    assert [name for name, _ in added.modules()] == ["0-page_pool.ko", "1-veth.ko"]
    assert added.modules()[1][1] == module("page-pool")
    assert added.options() == {"CONFIG_VETH=m"}
    assert kernels.find("patch 3") == added == kernels.known()[0]
    assert added.image.read_bytes() == bzimage(b"")


def test_a_missing_module_is_named(store):
    (store / "vmlinuz").write_bytes(bzimage(b""))
    (store / "config").write_text("CONFIG_VETH=m\n")
    with pytest.raises(RxbookError, match=r"veth is a module, and --modules has no veth\.ko"):
        kernels.add("mine", store / "vmlinuz")


def test_a_built_tree_is_added_again_after_an_edit(store):
    tree = store / "linux"
    with pytest.raises(RxbookError, match="build the tree first"):
        kernels.add_tree("patch 8", tree)
    (tree / "arch/x86/boot").mkdir(parents=True)
    (tree / ".config").write_text("CONFIG_VETH=y\n")
    for release in ("6.13.0-a", "6.13.0-b"):
        (tree / "arch/x86/boot/bzImage").write_bytes(bzimage(b"", release))
        assert kernels.add_tree("patch 8", tree).release == release
    assert [kernel.release for kernel in kernels.known()] == ["6.13.0-b"]


def test_configurations_are_compared_by_option(store):
    (store / "image").write_bytes(bzimage(b""))
    texts = {"a": "CONFIG_X=y\nCONFIG_Y=1\n", "b": "# CONFIG_X is not set\nCONFIG_Y=2\n", "c": None}
    made = {}
    for label, text in texts.items():
        config = store / label
        config.write_text(text or "")
        made[label] = kernels.add(label, store / "image", config=config if text else None)
    assert kernels.differing_options([made["a"], made["a"]]) == 0
    assert kernels.differing_options([made["a"], made["b"]]) == 2
    assert kernels.differing_options([made["a"], made["c"]]) is None


@pytest.mark.parametrize("label", ["", "../x", "a/b", "x" * 31, "é"])
def test_a_label_that_a_table_cannot_show_is_refused(store, label):
    with pytest.raises(RxbookError, match="label"):
        kernels.add(label, store / "vmlinuz")


def test_an_unknown_kernel_is_refused_with_those_that_are_known(store):
    (store / "vmlinuz").write_bytes(bzimage(b""))
    kernels.add("baseline", store / "vmlinuz")
    with pytest.raises(RxbookError, match="no kernel is named patch 3; there are: baseline"):
        kernels.find("patch 3")


def test_the_list_begins_with_the_running_kernel(store):
    lines = kernels.listing().splitlines()
    assert lines[1].split()[:2] == ["running", facts.kernel_release()]


NAMES = [
    "linux-image-6.12.9+deb13-cloud-amd64", "linux-image-6.12.107+deb13-cloud-amd64",
    "linux-image-6.12.200+deb13-cloud-amd64-dbg", "linux-image-6.12.200+deb13-cloud-amd64-unsigned",
    "linux-image-6.12.200+deb13-amd64", "linux-image-6.1.0-41-cloud-amd64", "linux-image-cloud-amd64",
    "linux-binary-7.3-cloud-amd64", "linux-image-7.2.13+deb14-cloud-amd64",
]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "flavour"),
    [("6.12", "6.12.107+deb13-cloud-amd64"), ("6.1", "6.1.0-41-cloud-amd64"), ("", "7.3-cloud-amd64")],
)
def test_the_newest_debian_kernel_of_a_version(wanted, flavour):
    assert debian.newest(NAMES, wanted) == flavour


def test_a_version_that_the_mirror_has_not():
    with pytest.raises(RxbookError, match=r"debian:5\.9: .* serves 6\.1, 6\.12, 7\.2, 7\.3"):
        debian.newest(NAMES, "5.9")


def test_pktgens_module_is_only_loaded_where_it_is_asked_for(store):
    (store / "vmlinuz").write_bytes(bzimage(b""))
    (store / "modules").mkdir()
    for name in ("veth", "pktgen"):
        (store / "modules" / f"{name}.ko").write_bytes(module())
    added = kernels.add("both", store / "vmlinuz", store / "modules")
    assert [name for name, _ in added.modules()] == ["0-veth.ko"]
    assert [name for name, _ in added.modules(["pktgen"])] == ["0-veth.ko", "1-pktgen.ko"]
    (store / "modules" / "pktgen.ko").unlink()
    lacking = kernels.add("one", store / "vmlinuz", store / "modules")
    with pytest.raises(RxbookError, match=r"one was added without pktgen\.ko.*CONFIG_NET_PKTGEN"):
        lacking.modules(["pktgen"])
