"""Find a module's debug information: in the file itself or in a separate one.

Searched in gdb's order: the file itself, the file under the build id, the file its
``.gnu_debuglink`` names, and a debuginfod server if ``DEBUGINFOD_URLS`` names any.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

from hpcd.elf.elf_file import ElfFile
from hpcd.elf.elf_reader import string_at
from hpcd.errors import FormatError

DEBUG_ROOT = Path("/usr/lib/debug")
# A server may have to unpack a package first. What does not come in this time is not there.
_SERVER_SECONDS = 90
_MAX_LINK = 4096


def debug_file(path: Path) -> Path | None:
    """Return the file with debug information on the module at ``path``, often that itself.

    None without one. Raises :class:`FormatError` and :class:`OSError` when ``path`` itself
    cannot be read.
    """
    with ElfFile.open(path) as elf:
        if has_lines(elf):
            return path
        build_id = elf.build_id()
        link = _link(elf)
    for candidate in _candidates(path, build_id, link):
        if _fits(candidate, build_id, link):
            return candidate
    return _from_server(build_id)


def has_lines(elf: ElfFile) -> bool:
    """Whether a file has debug information."""
    names = {section.name for section in elf.sections if section.size}
    return bool({".debug_info", ".zdebug_info"} & names)


def _candidates(path: Path, build_id: str, link: tuple[str, int] | None) -> Iterator[Path]:
    if build_id.isalnum() and len(build_id) > 2:
        yield DEBUG_ROOT / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    if link:
        # Resolve a link; a distribution's /lib may be /usr/lib.
        for folder in dict.fromkeys((path.parent, path.parent.resolve())):
            yield folder / link[0]
            yield folder / ".debug" / link[0]
            yield DEBUG_ROOT / str(folder).lstrip("/") / link[0]


def _link(elf: ElfFile) -> tuple[str, int] | None:
    """The name and CRC-32 in .gnu_debuglink."""
    section = elf.section(".gnu_debuglink")
    if section is None or not 8 <= section.size <= _MAX_LINK:
        return None
    data = elf.contents(section)
    name = string_at(data, 0)
    # A name, not a path: it must not lead anywhere.
    if not name or "/" in name or name in (".", ".."):
        return None
    return name, int.from_bytes(data[-4:], "little")


def _fits(candidate: Path, build_id: str, link: tuple[str, int] | None) -> bool:
    """Whether ``candidate`` is there, and made from the same program."""
    try:
        with ElfFile.open(candidate) as elf:
            if not has_lines(elf):
                return False
            own_id = elf.build_id()
        if not own_id.startswith("hash-") or link is None:
            return own_id == build_id
        # Only without build ids is it worth reading all of it.
        crc = 0
        with candidate.open("rb") as file:
            while block := file.read(1 << 20):
                crc = zlib.crc32(block, crc)
        return crc == link[1]
    except (OSError, FormatError):
        return False


def _from_server(build_id: str) -> Path | None:
    """The file from a debuginfod server, fetched and kept by elfutils' own client."""
    if not os.environ.get("DEBUGINFOD_URLS") or not build_id.isalnum():
        return None
    try:
        done = subprocess.run(
            ["debuginfod-find", "debuginfo", build_id],
            capture_output=True,
            text=True,
            timeout=_SERVER_SECONDS,
            stdin=subprocess.DEVNULL,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    path = Path(done.stdout.strip())
    return path if path.is_absolute() and _fits(path, build_id, None) else None
