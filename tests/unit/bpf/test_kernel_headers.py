"""Kernel headers: found in order, put together, kept, and not taken from anybody else."""

from __future__ import annotations

import io
import os
import platform
import shutil
import tarfile
import threading
from pathlib import Path

import pytest

from hpcd.bpf.loading import kernel_headers as headers
from hpcd.bpf.loading.kernel_headers import kernel_headers
from hpcd.errors import PlatformError, StorageError

ARCH = {"x86_64": "x86", "aarch64": "arm64"}.get(platform.machine(), "")
SHARED = ("include/linux/kconfig.h", f"arch/{ARCH}/include/asm/ptrace.h")
BUILT = ("include/generated/autoconf.h", f"arch/{ARCH}/include/generated/asm/rwonce.h")

pytestmark = pytest.mark.skipif(not ARCH, reason=f"hpcd does not run on {platform.machine()}")


def lay(folder: Path, *names: str, text: str = "") -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or f"/* {folder.name} */\n")
    return folder


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any headers; its root directory."""
    for name in ("src", "modules"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(headers, "_SOURCES", tmp_path / "src")
    monkeypatch.setattr(headers, "_MODULES", tmp_path / "modules")
    monkeypatch.setattr(headers, "_KHEADERS", tmp_path / "kheaders.tar.xz")
    monkeypatch.setenv("HPCD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BCC_KERNEL_SOURCE", raising=False)
    return tmp_path


def debian(machine: Path, version: str, flavour: str = "amd64", common: str = "common") -> None:
    lay(machine / f"src/linux-headers-{version}-{common}", *SHARED, "include/linux/both.h")
    lay(machine / f"src/linux-headers-{version}-{flavour}", *BUILT, "include/linux/both.h")


def kheaders(machine: Path, *members: str) -> None:
    with tarfile.open(machine / "kheaders.tar.xz", "w:xz") as archive:
        for name in members:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.uid = 2, 0o666, 65534
            archive.addfile(member, io.BytesIO(b"/\n"))


def test_none_is_one_line_with_the_command_that_helps(machine: Path) -> None:
    with pytest.raises(PlatformError, match="apt-get install linux-headers-") as raised:
        kernel_headers()
    assert "\n" not in str(raised.value)


def test_a_debian_pair_is_joined_and_the_flavour_wins(machine: Path) -> None:
    debian(machine, "6.1.0-9")
    tree = kernel_headers()
    assert tree == machine / "cache/headers/linux-headers-6.1.0-9-amd64"
    assert all((tree / name).is_file() for name in SHARED + BUILT)
    assert (tree / "include/linux/both.h").read_text() == "/* linux-headers-6.1.0-9-amd64 */\n"


def test_the_newest_pair_is_taken_and_the_running_kernels_before_it(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("6.1.0-9", "6.1.0-10", "5.10.0-30"):
        debian(machine, version)
    assert kernel_headers().name == "linux-headers-6.1.0-10-amd64"
    monkeypatch.setattr(platform, "release", lambda: "5.10.0-30-amd64")
    assert kernel_headers().name == "linux-headers-5.10.0-30-amd64"


@pytest.mark.parametrize(
    ("version", "flavour", "common"),
    [
        ("6.1.0-9", "cloud-amd64", "common"),
        ("6.1.0-9", "rt-amd64", "common-rt"),
        ("6.12.43+deb12", "amd64", "common"),
    ],
)
def test_every_naming_of_debian_is_understood(
    machine: Path, version: str, flavour: str, common: str
) -> None:
    debian(machine, version, flavour, common)
    assert kernel_headers().name == f"linux-headers-{version}-{flavour}"


def test_half_a_pair_is_passed_over_or_named(machine: Path) -> None:
    lay(machine / "src/linux-headers-6.9.0-1-amd64", *BUILT)
    with pytest.raises(PlatformError, match="lacks its common part"):
        kernel_headers()
    debian(machine, "6.1.0-9")
    assert kernel_headers().name == "linux-headers-6.1.0-9-amd64"


def test_the_running_kernels_build_directory_comes_first(machine: Path) -> None:
    debian(machine, "6.1.0-9")
    build = lay(machine / f"modules/{platform.release()}/build", *BUILT)
    assert kernel_headers() != build  # Debian's own lacks what all flavours share
    lay(build, *SHARED)
    assert kernel_headers() == build


def test_the_kernels_own_headers_are_unpacked_as_ours(machine: Path) -> None:
    debian(machine, "6.1.0-9")
    kheaders(
        machine, *(f"./{name}" for name in SHARED + BUILT), "../escaped", str(machine / "escaped")
    )
    tree = kernel_headers()
    assert tree.name.startswith("kheaders-") and all((tree / n).is_file() for n in SHARED + BUILT)
    for path in tree.rglob("*"):
        assert path.stat().st_uid == os.geteuid() and not path.stat().st_mode & 0o022
    assert not list(machine.rglob("escaped"))


@pytest.mark.parametrize("damage", ["truncated", "foreign"])
def test_damaged_kernel_headers_are_one_line(machine: Path, damage: str) -> None:
    kheaders(machine, *SHARED, *BUILT)
    path = machine / "kheaders.tar.xz"
    path.write_bytes(path.read_bytes()[:100] if damage == "truncated" else b"nonsense" * 99)
    with pytest.raises(PlatformError) as raised:
        kernel_headers()
    assert "\n" not in str(raised.value)
    assert not list((machine / "cache/headers").iterdir())


def test_what_is_kept_is_used_again(machine: Path) -> None:
    debian(machine, "6.1.0-9")
    status = kernel_headers().stat()
    assert kernel_headers().stat().st_ino == status.st_ino
    assert [path.name for path in (machine / "cache/headers").iterdir()] == [
        "linux-headers-6.1.0-9-amd64"
    ]


def test_an_upgraded_package_is_joined_anew(machine: Path) -> None:
    debian(machine, "6.1.0-9")
    before = kernel_headers().stat().st_ino
    flavour = machine / "src/linux-headers-6.1.0-9-amd64"
    shutil.rmtree(flavour)
    lay(flavour, *BUILT, "include/linux/added.h")
    tree = kernel_headers()
    assert tree.stat().st_ino != before and (tree / "include/linux/added.h").is_file()


@pytest.mark.parametrize("hostile", ["link", "file", "writable", "truncated"])
def test_what_others_could_have_put_there_is_not_used(machine: Path, hostile: str) -> None:
    debian(machine, "6.1.0-9")
    tree = kernel_headers()
    evil = lay(machine / "evil", *SHARED, *BUILT, text="evil")
    if hostile == "truncated":
        (tree / SHARED[0]).unlink()
    elif hostile == "writable":
        tree.chmod(0o777)
        (tree / "planted.h").write_text("evil")
    else:
        shutil.rmtree(tree)
        if hostile == "link":
            shutil.copy(machine / "src/linux-headers-6.1.0-9-common" / SHARED[0], evil)
            tree.symlink_to(evil)
        else:
            tree.write_text("in the way")
    tree = kernel_headers()
    assert not tree.is_symlink() and not (tree / "planted.h").exists()
    assert "evil" not in (tree / SHARED[0]).read_text()


def test_a_cache_others_write_to_is_refused(machine: Path) -> None:
    debian(machine, "6.1.0-9")
    kernel_headers()
    (machine / "cache/headers").chmod(0o777)
    with pytest.raises(StorageError, match="HPCD_CACHE"):
        kernel_headers()


def test_an_unusable_cache_is_one_line(machine: Path) -> None:
    debian(machine, "6.1.0-9")
    (machine / "cache").write_text("a file")
    with pytest.raises(StorageError, match="cannot put kernel headers together"):
        kernel_headers()


def test_the_environment_is_believed_when_it_is_right(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = lay(machine / "own", *SHARED)
    monkeypatch.setenv("BCC_KERNEL_SOURCE", str(own))
    with pytest.raises(PlatformError, match="BCC_KERNEL_SOURCE"):
        kernel_headers()
    lay(own, *BUILT)
    assert kernel_headers() == own


def test_several_at_once_agree(machine: Path) -> None:
    debian(machine, "6.1.0-9")
    trees: list[Path] = []
    threads = [threading.Thread(target=lambda: trees.append(kernel_headers())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(trees) == 8 and len(set(trees)) == 1
    assert len(list((machine / "cache/headers").iterdir())) == 1
