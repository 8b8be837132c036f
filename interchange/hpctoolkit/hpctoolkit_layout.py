"""The layout of HPCToolkit's database, version 4: headers, structures, strings, identifiers.

Layouts follow FORMATS.md, which hpcprof puts into each database, where {PI} has a stride of
48 bytes. Strides of arrays are in the files, so that structures may grow within the version. A file
is a header with the size and position of each section, the sections, and a footer.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hpcd.array_types import Array
from hpcd.errors import FormatError, NotFoundError
from hpcd.interchange.fitted_names import utf8

MAGIC = b"HPCTOOLKIT"
_VERSION = (4, 0)
_FOOTERS = {"meta": b"_meta.db", "prof": b"_prof.db", "ctxt": b"__ctx.db", "trce": b"trace.db"}

_HEADER = struct.Struct("<10s4sBB")
SECTION = struct.Struct("<QQ")  # size, position
POINTER = struct.Struct("<Q")
TITLE = struct.Struct("<QQ")  # title, description
# meta.db
NAMES = struct.Struct("<QB7x")  # names, count
METRICS = struct.Struct("<QIBBBxQHB5x")  # metrics, count, 3 strides, scopes, count, stride
METRIC = struct.Struct("<QQQHH4x")  # name, scope instances, summaries, counts of both
SCOPE_INSTANCE = struct.Struct("<QH6x")  # scope, metric
SUMMARY = struct.Struct("<QQBxH4x")  # scope, formula, combine, metric
SCOPE = struct.Struct("<QBB6x")  # name, type, bit
TABLE = struct.Struct("<QIH2x")  # rows, count, stride
SOURCE = struct.Struct("<QQ")  # flags, path: load modules and source files
FUNCTION = struct.Struct("<QQQQII")  # name, module, offset, file, line, flags
ENTRIES = struct.Struct("<QHB5x")  # entry points, count, stride
ENTRY = struct.Struct("<QQIH2xQ")  # size of children, children, context, kind, name
CONTEXT = struct.Struct("<QQIBBBBH6x")  # children, context, flags, relation, kind, words, scopes
# profile.db
PROFILES = struct.Struct("<QIB3x")  # profiles, count, stride
PROFILE = struct.Struct("<QQI4xQQI4x")  # values, contexts, identifiers, flags
ID_COUNT = struct.Struct("<H6x")
ID = struct.Struct("<BxHIQ")  # kind, flags, logical, physical
VALUE = np.dtype([("metric", "<u2"), ("value", "<f8")])
INDEX = np.dtype([("context", "<u4"), ("start", "<u8")])
# trace.db
TRACES = struct.Struct("<QIB3xQQ")  # traces, count, stride, first and last time
TRACE = struct.Struct("<I4xQQ")  # profile, begin, end
ELEMENT = np.dtype([("time", "<u8"), ("context", "<u4")])

SCOPE_EXECUTION, SCOPE_FUNCTION = 2, 3
HAS_FUNCTION, HAS_LINE, HAS_POINT = 1, 2, 4
KIND_FUNCTION, KIND_LINE, KIND_INSTRUCTION = 0, 2, 3
IS_SUMMARY = 1
IS_PHYSICAL = 1
ID_KINDS = ["SUMMARY", "NODE", "RANK", "THREAD", "GPUDEVICE", "GPUCONTEXT", "GPUSTREAM", "CORE",
            "PROCESS"]  # fmt: skip
"""Names of the identifiers of threads, by the numbers that HPCToolkit gives them; the last is of
processes without a rank."""

Section = tuple[int, int]
"""Size and position of a section."""

# --- writing ---


def header_size(sections: int) -> int:
    """Return the bytes of a header."""
    return _HEADER.size + SECTION.size * sections


def finish_file(file: BinaryIO, kind: str, sections: list[Section]) -> None:
    """Write the footer of a file of ``kind`` at its end, and its header."""
    align(file)
    file.write(_FOOTERS[kind])
    file.seek(0)
    file.write(_HEADER.pack(MAGIC, kind.encode(), *_VERSION))
    for section in sections:
        file.write(SECTION.pack(*section))


def align(file: BinaryIO) -> int:
    """Fill the file up to a multiple of 8 bytes; returns the position."""
    file.write(bytes(-file.tell() % 8))
    return file.tell()


def c_string(text: str) -> bytes:
    """Return ``text`` with a NUL at its end and none within."""
    return utf8(text).replace("\0", "\\x00").encode() + b"\0"


class StringTable:
    """Strings stored consecutively in a file from ``start`` on."""

    def __init__(self, start: int) -> None:
        self.data = bytearray()
        self._start = start
        self._place: dict[str, int] = {}

    def __getitem__(self, text: str) -> int:
        """Return the position of ``text``."""
        if text not in self._place:
            self._place[text] = self._start + len(self.data)
            self.data += c_string(text)
        return self._place[text]


# --- reading: no offset or size need be right ---


class StructureFile:
    """A mapped file whose offsets and sizes are taken from itself.

    Every method raises FormatError naming the file for offsets outside it, the constructor
    NotFoundError when it cannot be read.
    """

    def __init__(self, path: Path, kind: bytes) -> None:
        """Open a file of a database. Raises FormatError if it is of another kind or version."""
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise NotFoundError(f"{path}: {error.strerror}") from None
        except ValueError:
            raise FormatError(f"{path}: empty") from None
        magic, stored_kind, major, _ = self.unpack(_HEADER, 0)
        if (magic, stored_kind) != (MAGIC, kind):
            raise FormatError(f"{path}: not a file of an HPCToolkit database")
        if major != _VERSION[0]:
            raise FormatError(f"{path}: version {major} of HPCToolkit's format; only 4 is read")

    def __len__(self) -> int:
        return len(self._data)

    def section(self, number: int) -> int:
        """Return the position of a section."""
        position: int = self.unpack(SECTION, header_size(number))[1]
        return position

    def unpack(self, layout: struct.Struct, at: int) -> tuple[Any, ...]:
        """Return the fields of the structure at ``at``."""
        self._check(at, layout.size)
        return layout.unpack_from(self._data, at)

    def array(self, dtype: np.dtype[np.void], at: int, count: int) -> Array:
        """Return a copy of the ``count`` structures from ``at`` on."""
        self._check(at, count * dtype.itemsize)
        return np.frombuffer(self._data, dtype, count, at).copy()

    def text(self, at: int, limit: int = 1 << 20) -> bytes:
        """Return the string at ``at`` that ends in a zero byte, at most ``limit`` bytes."""
        self._check(at, 1)
        end = self._data.find(b"\0", at, at + limit)
        if end < 0:
            raise self.damaged(f"string at byte {at} does not end")
        return self._data[at:end]

    def damaged(self, what: str) -> FormatError:
        """Return an error that names the damage."""
        return FormatError(f"{self.path}: damaged: {what}")

    def _check(self, at: int, size: int) -> None:
        if at < 0 or size < 0 or at + size > len(self._data):
            raise self.damaged(f"{size} bytes at {at} of {len(self._data)}")
