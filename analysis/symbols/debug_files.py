"""Find a module's debug information and symbols: in the file itself or in a separate one.

Searched in gdb's order: the file itself, the file under the build id, the file its
``.gnu_debuglink`` names, and for lines a debuginfod server if ``DEBUGINFOD_URLS`` names any.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from hpcd.elf.elf_file import ElfFile
from hpcd.elf.elf_reader import string_at
from hpcd.elf.go_table import go_table
from hpcd.errors import FormatError

DEBUG_ROOT = Path("/usr/lib/debug")
# A server may have to unpack a package first. Later files count as missing.
_SERVER_SECONDS = 90
_MAX_LINK = 4096


def debug_file(path: Path) -> Path | None:
    """Return the file with debug information on the module at ``path``, often that itself.

    Without one a Go program itself, whose own table says lines, and None of others. Raises
    :class:`FormatError` and :class:`OSError` when ``path`` itself cannot be read.
    """
    with ElfFile.open(path) as elf:
        if has_lines(elf):
            return path
        build_id = elf.build_id()
        with contextlib.suppress(FormatError):
            for debug in separate_files(path, elf):
                if has_lines(debug):
                    return Path(debug.name)
    served = _from_server(build_id)
    if served is not None:
        return served
    with ElfFile.open(path) as elf:
        return None if go_table(elf) is None else path


def separate_files(path: Path, elf: ElfFile) -> Iterator[ElfFile]:
    """Open the debug files on this machine that were made from the module ``elf`` at ``path``.

    Each is closed when the next is requested. Raises :class:`FormatError` at the end if there are
    files that do not fit.
    """
    build_id, link = elf.build_id(), _link(elf)
    refused = []
    for candidate, crc in _candidates(path, build_id, link):
        try:
            debug = ElfFile.open(candidate)
        except (FormatError, OSError):
            continue
        with debug:
            try:
                _require_fit(debug, build_id, crc)
            except FormatError as error:
                refused.append(str(error))
                continue
            yield debug
    if refused:
        raise FormatError("; ".join(refused))


def has_lines(elf: ElfFile) -> bool:
    """Whether a file has debug information."""
    names = {section.name for section in elf.sections if section.size}
    return bool({".debug_info", ".zdebug_info"} & names)


def _candidates(
    path: Path, build_id: str, link: tuple[str, int] | None
) -> Iterator[tuple[Path, int | None]]:
    """Paths at which a debug file may be, each with the CRC-32 that the file must have, if any."""
    if build_id.isalnum() and len(build_id) > 2:
        yield DEBUG_ROOT / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug", None
    if link:
        name, crc = link
        # Resolve a link; a distribution's /lib may be /usr/lib.
        for folder in dict.fromkeys((path.parent, path.parent.resolve())):
            yield folder / name, crc
            yield folder / ".debug" / name, crc
            yield DEBUG_ROOT / str(folder).lstrip("/") / name, crc


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


def _require_fit(debug: ElfFile, build_id: str, crc: int | None) -> None:
    """Raise :class:`FormatError` unless ``debug`` was made from the module of this build id, or is
    the file of this CRC-32."""
    own_id = debug.build_id()
    # A file without a build id is known by a hash of its contents.
    if own_id != build_id and (crc is None or not own_id.startswith("hash-")):
        raise FormatError(f"{debug.name}: has another build id")
    if crc is not None and debug.crc32() != crc:
        raise FormatError(f"{debug.name}: has another checksum")


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
    if not path.is_absolute():
        return None
    try:
        with ElfFile.open(path) as debug:
            _require_fit(debug, build_id, None)
            return path if has_lines(debug) else None
    except (FormatError, OSError):
        return None
