"""The files of a database directory, and the manifest that vouches for them.

The promise: a database exists whole or not at all (it is written beside its place and renamed),
nothing in it is changed afterwards, and its bytes depend on the measurements alone. See
``docs/database.md``.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcd.analysis.arrays.column_files import storage_error
from hpcd.errors import FormatError, NotFoundError
from hpcd.regular_file import open_regular

FORMAT = "hpcd-database"
VERSION = 3
MANIFEST = "manifest.json"
SQLITE = "hpcd.sqlite"

# A checksum per block says where a big column is damaged, and blocks are checked in parallel.
BLOCK_BYTES = 16 << 20
_READ_BYTES = 1 << 20
_MANIFEST_LIMIT = 64 << 20


def part_name(number: int) -> str:
    """File name of part ``number``."""
    return f"{number:06d}.part"


WAITS = "waits"
"""The folder of waits; a database without waits has none."""
INTERFERENCE = "interference"
"""The folder of waits for a CPU by interferer; a database without them has none."""
CALLS = "calls"
"""The folder of recorded calls; a database without them has none."""

SYMBOLS = "cct/symbols.archive"
"""The symbols that measurements brought along, by load module."""

FOLDERS = ("cct", "lines", "trace", "metrics")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file the manifest vouches for: its size and the CRC-32 of each 16 MiB block."""

    bytes: int
    crc32: tuple[int, ...]


def block_checksums(path: Path, first: int = 0, blocks: int | None = None) -> FileEntry:
    """Read ``path`` from block ``first`` on, ``blocks`` of them or all that follow.

    Reads a MiB at a time into one buffer: memory does not grow with the file, nor does the
    process map any of it. Raises :class:`FormatError` when it cannot be read.
    """
    sums: list[int] = []
    size = 0
    limit = None if blocks is None else blocks * BLOCK_BYTES
    buffer = memoryview(bytearray(_READ_BYTES))
    try:
        with open_regular(path) as file:
            file.seek(first * BLOCK_BYTES)
            while limit is None or size < limit:
                # Never across the end of a block: a short read shifts the blocks that follow.
                count = file.readinto(buffer[: BLOCK_BYTES - size % BLOCK_BYTES])
                if not count:
                    break
                if size % BLOCK_BYTES == 0:
                    sums.append(0)
                sums[-1] = zlib.crc32(buffer[:count], sums[-1])
                size += count
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror or error}") from None
    return FileEntry(size, tuple(sums))


def write_manifest(root: Path, facts: dict[str, object], files: dict[str, FileEntry]) -> None:
    """Write the manifest, last of all files. Raises :class:`StorageError`."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        **facts,
        "block_bytes": BLOCK_BYTES,
        "files": {
            name: {"bytes": entry.bytes, "crc32": entry.crc32}
            for name, entry in sorted(files.items())
        },
    }
    text = json.dumps(content, indent=1, sort_keys=False) + "\n"
    try:
        (root / MANIFEST).write_text(text)
    except OSError as error:
        raise storage_error(root / MANIFEST, error) from None


def is_database(root: Path) -> bool:
    """Whether ``root`` is an hpcd database, of whatever version."""
    try:
        read_manifest(root)
    except FormatError as error:
        return isinstance(error, OtherVersionError)
    except NotFoundError:
        return False
    return True


class OtherVersionError(FormatError):
    """A database another hpcd made."""


def read_manifest(root: Path) -> dict[str, Any]:
    """The manifest of the database ``root``.

    Raises :class:`NotFoundError` when there is nothing, :class:`FormatError` when it is not a
    database or of another version.
    """
    if not root.exists():
        raise NotFoundError(f"{root}: no such database")
    path = root / MANIFEST
    try:
        if not root.is_dir() or not path.is_file():
            merged = "; hpcd merge makes one of it" if any(root.glob("segment-*.hpcd")) else ""
            raise FormatError(f"{root}: not an hpcd database{merged}")
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > _MANIFEST_LIMIT:
                raise FormatError(f"{path}: too big to be a manifest")
            content = json.loads(file.read())
    except OSError as error:
        raise NotFoundError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise FormatError(f"{path}: damaged (not JSON)") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise FormatError(f"{root}: not an hpcd database")
    if content.get("version") != VERSION:
        raise OtherVersionError(
            f"{root}: database format {content.get('version')}, this hpcd reads format {VERSION}:"
            " merge the measurements again, or use the hpcd that made it"
        )
    return content


def manifest_files(root: Path, manifest: dict[str, Any]) -> dict[str, FileEntry]:
    """The files a manifest vouches for. Raises :class:`FormatError` when it is malformed."""
    try:
        return {
            str(name): FileEntry(int(entry["bytes"]), tuple(int(n) for n in entry["crc32"]))
            for name, entry in manifest["files"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise FormatError(f"{root / MANIFEST}: damaged (its list of files)") from None
