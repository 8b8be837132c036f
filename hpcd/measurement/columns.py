"""Columns of unsigned integers as bytes: the single encoding of measurements and databases.

A column is a header (coding u8, width u8, two bytes of padding, u32 size of the rest) and one
of these:

====== =================================================================================
0      the u64 value of all entries
1      byte planes, of all values the lowest byte, then the next: ``width`` of them, as many
       of 1, 2, 4, 8 as the greatest value needs
3      a dictionary of ``n`` values (n u32, bytes of a value and of a place u8 each, padding),
       these as planes, the most frequent first, and places in it as planes
====== =================================================================================

zstd then sees the nearly constant high bytes apart from the busy low ones.
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hpcd.array_types import U8, U32, Array
from hpcd.errors import FormatError
from hpcd.kernels.library import kernels
from hpcd.measurement.record_columns import scratch

_Kind = TypeVar("_Kind", np.uint16, np.uint32, np.uint64)
_COLUMN = struct.Struct("<BBHI")
_DICTIONARY = struct.Struct("<IBB2x")
_LENGTH = struct.Struct("<I")
_CONSTANT, _PLANES, _RANKED = 0, 1, 3
# Bound on a column's length: a constant column takes no bytes in the file, but memory when decoded.
_MOST_VALUES = 1 << 26


def encode_column(values: Array) -> bytes:
    """``values`` ``uint16``, ``uint32``, ``uint64`` or not negative ``int64[n]`` as a column."""
    n = len(values)
    out = scratch(kernels.column_bytes(n))
    if values.itemsize == 8:
        length = kernels.encode_column64(np.ascontiguousarray(values, np.uint64), n, out)
    else:
        length = kernels.encode_column32(np.ascontiguousarray(values, np.uint32), n, out)
    return out[:length].tobytes()


def encode_ranked(values: U32) -> bytes:
    """``values`` ``uint32[n]``, few distinct ones, as a column with a dictionary, if that is
    smaller."""
    n = len(values)
    memory = scratch(kernels.encode_bytes(n) + kernels.column_bytes(n))
    out = memory[-kernels.column_bytes(n) :]
    length = kernels.encode_ranked(np.ascontiguousarray(values), n, memory, out)
    return out[:length].tobytes()


class ColumnCursor:
    """Reads consecutive columns, never past the end of ``data``."""

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        self._data = memoryview(data)
        self._at = at

    def at_end(self) -> bool:
        """Whether there is nothing more."""
        return self._at == len(self._data)

    def column(self, count: int, kind: type[_Kind]) -> npt.NDArray[_Kind]:
        """The next column, of ``count`` integers of type ``kind``. Raises :class:`FormatError`."""
        if count > _MOST_VALUES:
            raise FormatError(f"column of {count} values: more than {_MOST_VALUES}")
        if kind is np.uint16:
            wide = self.column(count, np.uint32)
            if int(wide.max(initial=0)) >> 16:
                raise FormatError(f"column of {count} values: {int(wide.max())} exceeds 16 bits")
            narrow: Array = wide.astype(np.uint16)
            return narrow
        values = np.empty(count, kind)
        self.fill(values)
        return values

    def fill(self, values: Array) -> None:
        """Fill ``values``, of 32 or 64 bits, with the next column. Raises :class:`FormatError`."""
        planes, words = self._planes(len(values), values.dtype)
        decode = kernels.decode_column32 if values.itemsize == 4 else kernels.decode_column64
        if not decode(planes, len(planes), words, len(words), values, len(values)):
            raise FormatError(f"column of {len(values)} values has an inconsistent dictionary")

    def _planes(self, count: int, kind: np.dtype[Any]) -> tuple[U8, Array]:
        """The next column as it is stored: its planes ``uint8[width, count]``, and the words of
        type ``kind`` that these are places in, if any. A constant has one word and no planes."""
        coding, width, _, size = _COLUMN.unpack(self._take(_COLUMN.size))
        data = self._take(size)
        most = (1 << 8 * kind.itemsize) - 1
        if coding == _CONSTANT and size == 8:
            (value,) = struct.unpack("<Q", data)
            if value <= most:
                return np.zeros((0, count), np.uint8), np.array([value], kind)
        elif coding == _PLANES and width in (1, 2, 4, 8) and size == width * count:
            if width <= kind.itemsize:
                return np.frombuffer(data, np.uint8).reshape(width, count), np.zeros(0, kind)
        elif coding == _RANKED and size >= _DICTIONARY.size:
            entries, word_width, width = _DICTIONARY.unpack_from(data)
            at = _DICTIONARY.size + word_width * entries
            if (
                word_width in (1, 2, 4)
                and width in (1, 2, 4)
                and 0 < entries <= count
                and size == at + width * count
            ):
                words = np.empty(entries, kind)
                stored = np.frombuffer(data[_DICTIONARY.size : at], np.uint8)
                none = np.zeros(0, kind)
                decode = kernels.decode_column32 if kind.itemsize == 4 else kernels.decode_column64
                decode(stored, word_width, none, 0, words, entries)
                planes = np.frombuffer(data, np.uint8, offset=at).reshape(width, count)
                return planes, words
        raise FormatError(
            f"column of {count} values: coding {coding} of width {width} does not fit {size} bytes"
        )

    def _take(self, count: int) -> memoryview:
        end = self._at + count
        if end > len(self._data):
            raise FormatError(
                f"{count} bytes of a column at {self._at} exceed {len(self._data)} bytes"
            )
        part = self._data[self._at : end]
        self._at = end
        return part


def pack_columns(*columns: Array) -> bytes:
    """Pack columns of one length: the length, u32, then each of them."""
    return _LENGTH.pack(len(columns[0])) + b"".join(map(encode_column, columns))


def unpack_columns(data: bytes, *kinds: Any) -> list[Array]:
    """The columns of ``kinds`` that :func:`pack_columns` packed. Raises :class:`FormatError`."""
    if len(data) < _LENGTH.size:
        raise FormatError("columns without a length")
    (count,) = _LENGTH.unpack_from(data)
    cursor = ColumnCursor(data, _LENGTH.size)
    columns = [cursor.column(count, kind) for kind in kinds]
    if not cursor.at_end():
        raise FormatError("more than columns")
    return columns
