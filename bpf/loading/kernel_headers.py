"""Kernel headers for bcc, found or put together.

bcc compiles against kernel headers, and looks for those of the running kernel only. The programs
here read stable layouts only (offsets that vary come from BTF), so headers of any recent kernel do.

What is put together is kept in the cache and used again as long as only this user can write
there (root compiles it into the kernel) and what it was made from has not changed.
"""

from __future__ import annotations

import errno
import lzma
import os
import platform
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

from hpcd.cache_directory import cache_directory
from hpcd.errors import PlatformError, StorageError

_ARCHITECTURES = {"x86_64": "x86", "aarch64": "arm64"}
_SOURCES = Path("/usr/src")
_MODULES = Path("/lib/modules")
_KHEADERS = Path("/sys/kernel/kheaders.tar.xz")
_MARKER = "include/generated/autoconf.h"
_ORIGIN = ".origin"
_REMEDY = "apt-get install linux-headers-$(dpkg --print-architecture)"


def kernel_headers() -> Path:
    """A directory bcc can use as ``BCC_KERNEL_SOURCE``.

    In this order: ``BCC_KERNEL_SOURCE`` itself, the running kernel's build directory, the headers
    the kernel carries in itself, a pair of Debian header packages (the running kernel's, else the
    newest), joined by symbolic links. Takes 0.4 s the first time, then 1 ms. Raises
    :class:`PlatformError` with the command that helps when there is none, and
    :class:`StorageError` when the cache cannot be written or trusted.
    """
    if platform.machine() not in _ARCHITECTURES:
        raise PlatformError(f"processor {platform.machine()} is not supported")
    override = os.environ.get("BCC_KERNEL_SOURCE")
    if override:
        if not _complete(Path(override)):
            raise PlatformError(
                f"BCC_KERNEL_SOURCE={override} holds no complete kernel headers; unset it"
            )
        return Path(override)
    build = _MODULES / platform.release() / "build"
    if _complete(build):
        return build
    kept = cache_directory() / "headers"
    if _KHEADERS.is_file():
        # Two builds of a kernel may share the release; the version has the date of the build.
        name = f"kheaders-{platform.release()}-{zlib.crc32(platform.version().encode()):08x}"
        return _made(kept / name, platform.version(), _unpack)
    problem = f"no kernel headers for bcc; {_REMEDY}"
    for flavour in _debian_flavours():
        if _complete(flavour):
            return flavour
        common = _common(flavour)
        if common is None:
            problem = f"{flavour} lacks its common part; apt-get install {flavour.name}"
            continue
        if not _complete(flavour, common):
            problem = f"{flavour} and {common} do not make complete kernel headers; {_REMEDY}"
            continue
        return _made(kept / flavour.name, _origin(common, flavour), _joiner(common, flavour))
    raise PlatformError(problem)


def _complete(*parts: Path) -> bool:
    """Whether these directories together have what an architecture's build makes and all share."""
    arch = _ARCHITECTURES[platform.machine()]
    wanted = (_MARKER, "include/linux/kconfig.h", f"arch/{arch}/include/asm/ptrace.h")
    return all(any((part / path).is_file() for part in parts) for path in wanted)


def _debian_flavours() -> list[Path]:
    """Debian's linux-headers-VERSION-FLAVOUR directories: the running kernel's, then the newest."""

    def preference(path: Path) -> tuple[bool, list[int]]:
        running = path.name == f"linux-headers-{platform.release()}"
        return running, [int(number) for number in re.findall(r"\d+", path.name)]

    flavours = [path for path in _SOURCES.glob("linux-headers-*") if (path / _MARKER).is_file()]
    return sorted(flavours, key=preference, reverse=True)


def _common(flavour: Path) -> Path | None:
    """The part all flavours of a version share; the real-time ones have their own."""
    ending = "common-rt" if "-rt-" in flavour.name else "common"
    stem = flavour.name.rsplit("-", 1)[0]
    while stem.count("-") > 1:
        path = flavour.parent / f"{stem}-{ending}"
        if path.is_dir():
            return path
        stem = stem.rsplit("-", 1)[0]
    return None


def _origin(common: Path, flavour: Path) -> str:
    """Return text that changes when dpkg replaces either package under the same name."""
    arch = _ARCHITECTURES[platform.machine()]
    lines = []
    for path in (
        flavour / _MARKER,
        flavour / "include/generated/uapi/linux/version.h",
        common / "include/linux",
        common / f"arch/{arch}/include/asm",
    ):
        status = path.stat() if path.exists() else None
        lines.append(f"{path} {(status.st_ino, status.st_mtime_ns) if status else 'missing'}\n")
    return "".join(lines)


def _joiner(common: Path, flavour: Path) -> Callable[[Path], None]:
    """Links to the common headers, the flavour's own over them. Either package alone fails."""
    arch = _ARCHITECTURES[platform.machine()]

    def join(tree: Path) -> None:
        for source in (common, flavour):
            for folder in ("include", f"arch/{arch}/include"):
                if (source / folder).is_dir():
                    into = tree / folder
                    # cp makes 25,000 links in a third of a second; Python takes five times that.
                    subprocess.run(["mkdir", "-p", into], check=True, umask=0o022)
                    subprocess.run(
                        ["cp", "-asfT", source / folder, into],
                        check=True,
                        umask=0o022,
                        capture_output=True,
                    )

    return join


def _unpack(tree: Path) -> None:
    """Unpack what the kernel itself carries (CONFIG_IKHEADERS)."""
    with tarfile.open(_KHEADERS, "r:xz") as archive:
        for member in archive:
            inside = not Path(member.name).is_absolute() and ".." not in Path(member.name).parts
            if not inside or not (member.isdir() or member.isreg()):
                continue
            # The archive names the kernel's builder, whose number may be another user's here.
            member.uid, member.gid = os.geteuid(), os.getegid()
            member.mode = 0o755 if member.isdir() else 0o644
            archive.extract(member, tree, numeric_owner=True)


def _made(tree: Path, origin: str, make: Callable[[Path], None]) -> Path:
    """``tree``, as it is kept when it was made from ``origin``, else made anew by ``make``.

    It appears complete or not at all, whoever else is making it at the same time.
    """
    kept = tree.parent
    try:
        for folder in (kept.parent, kept):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not _trusted(kept) or not _holds_fast(kept.parent):
            raise StorageError(
                f"others can write to {kept}, where kernel headers are kept; "
                "set HPCD_CACHE to a directory of your own"
            )
        if _current(tree, origin):
            return tree
        with tempfile.TemporaryDirectory(prefix=".part-", dir=kept) as part:
            new = Path(part) / "new"
            new.mkdir()
            new.chmod(0o755)
            make(new)
            if not _complete(new):
                raise PlatformError(f"{tree.name} does not make complete kernel headers; {_REMEDY}")
            (new / _ORIGIN).write_text(origin)
            for attempt in range(100):  # each round lost is a round another process won
                _take_away(tree, Path(part) / f"old-{attempt}")
                try:
                    return new.rename(tree)
                except OSError:
                    if _current(tree, origin):
                        return tree
    except subprocess.CalledProcessError as error:
        messages = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        raise StorageError(
            f"cannot put kernel headers together in {tree}: {(messages or [str(error)])[-1]}"
        ) from None
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise PlatformError(f"{_KHEADERS}: {error}; {_REMEDY}") from None
    except OSError as error:
        raise StorageError(f"cannot put kernel headers together in {tree}: {error}") from None
    raise StorageError(f"cannot put kernel headers together in {tree}: others keep replacing it")


def _current(tree: Path, origin: str) -> bool:
    try:
        return _trusted(tree) and (tree / _ORIGIN).read_text() == origin and _complete(tree)
    except (OSError, UnicodeDecodeError):
        return False


def _trusted(folder: Path) -> bool:
    """Whether no other user could have written there: what root compiles must be root's."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & 0o022
    )


def _holds_fast(folder: Path) -> bool:
    """Whether no other user could replace a directory of ours in ``folder``."""
    status = folder.stat()
    sticky = bool(status.st_mode & stat.S_ISVTX)
    return status.st_uid in (0, os.geteuid()) and (sticky or not status.st_mode & 0o022)


def _take_away(tree: Path, to: Path) -> None:
    """Move ``tree`` out of the way, if it is there."""
    try:
        tree.rename(to)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # overlayfs, which containers live on, does not rename a folder of a lower layer.
        shutil.rmtree(tree, ignore_errors=True)
