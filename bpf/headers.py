"""Kernel headers for bcc, found or put together.

bcc compiles against kernel headers, and only those of the running kernel are looked for by bcc
itself. The programs here read stable layouts only (offsets that vary come from BTF), so headers of
any recent kernel do.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
import subprocess
from pathlib import Path

from hpcd.errors import PlatformError

_ARCHITECTURES = {"x86_64": "x86", "aarch64": "arm64"}
_SOURCES = Path("/usr/src")
_MODULES = Path("/lib/modules")
_MARKER = "include/generated/autoconf.h"


def kernel_headers(cache: Path | None = None) -> Path:
    """A directory bcc can use as ``BCC_KERNEL_SOURCE``.

    In this order: ``BCC_KERNEL_SOURCE`` itself, the running kernel's build directory, a pair of
    Debian header packages of any version, joined by symbolic links. Raises :class:`PlatformError`
    with the command that helps when there is none.
    """
    override = os.environ.get("BCC_KERNEL_SOURCE")
    if override:
        return Path(override)
    build = _MODULES / platform.release() / "build"
    if _complete(build):
        return build
    for flavour in _debian_flavours():
        return _joined(flavour, cache or _cache_directory())
    raise PlatformError(
        "no kernel headers for bcc; apt-get install linux-headers-$(dpkg --print-architecture)"
    )


def _complete(path: Path) -> bool:
    arch = _ARCHITECTURES.get(platform.machine(), "")
    return (path / _MARKER).is_file() and (path / f"arch/{arch}/include/asm/ptrace.h").is_file()


def _version(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.name)]


def _debian_flavours() -> list[Path]:
    """Debian's linux-headers-VERSION-FLAVOUR directories, newest first."""
    flavours = [path for path in _SOURCES.glob("linux-headers-*") if (path / _MARKER).is_file()]
    return sorted(flavours, key=_version, reverse=True)


def _common(flavour: Path) -> Path | None:
    """The part all flavours of a version share."""
    stem = flavour.name.rsplit("-", 1)[0]
    while stem.count("-") > 1:
        path = flavour.parent / f"{stem}-common"
        if path.is_dir():
            return path
        stem = stem.rsplit("-", 1)[0]
    return None


def _cache_directory() -> Path:
    override = os.environ.get("HPCD_CACHE")
    if override:
        return Path(override)
    if os.geteuid() == 0:
        return Path("/var/cache/hpcd")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpcd"


def _joined(flavour: Path, cache: Path) -> Path:
    """A tree of links: the common headers, the flavour's own over them. Either alone fails."""
    common = _common(flavour)
    if common is None:
        raise PlatformError(f"{flavour} lacks its common part; apt-get install --reinstall "
                            f"{flavour.name}")  # fmt: skip
    tree = cache / "headers" / flavour.name
    if _trusted(tree) and _complete(tree):
        return tree
    arch = _ARCHITECTURES[platform.machine()]
    part = tree.with_name(f"{tree.name}.{os.getpid()}")
    try:
        shutil.rmtree(part, ignore_errors=True)
        for source in (common, flavour):
            for folder in ("include", f"arch/{arch}/include"):
                if (source / folder).is_dir():
                    (part / folder).mkdir(parents=True, exist_ok=True)
                    # cp makes 25,000 links in a third of a second; Python takes five times that.
                    subprocess.run(
                        ["cp", "-asfT", str(source / folder), str(part / folder)], check=True
                    )
        shutil.rmtree(tree, ignore_errors=True)
        part.rename(tree)
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise PlatformError(f"cannot put kernel headers together in {tree}: {error}") from None
    if not _complete(tree):
        raise PlatformError(f"{flavour} and {common} do not make complete kernel headers")
    return tree


def _trusted(tree: Path) -> bool:
    """Whether nobody else could have put the tree there: what root compiles must be root's."""
    try:
        status = tree.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & 0o022
    )
