"""Arrays by name in one file or message: scratch files, caches, workers' and the page's answers.

A header of 16 bytes (magic, u32 length and u32 CRC-32 of what follows), JSON that lists name, type,
shape and CRC-32 of each array, and the arrays in this order, each at a multiple of 8 bytes.
"""

from __future__ import annotations

import json
import math
import mmap
import struct
import zlib
from collections.abc import Iterator, Mapping
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.arrays.column_files import storage_error
from hpcd.array_types import Array
from hpcd.errors import FormatError
from hpcd.measurement.zstd_contexts import compressor

Arrays = Mapping[str, Array]

_MAGIC = b"HPCDARR1"
_HEAD = struct.Struct("<8sII")
_KINDS = frozenset(f"{order}{kind}{size}" for order in "<|" for kind in "biuf" for size in "1248")


class NamedArrays(Arrays):
    """The read-only arrays of ``data``, each checked when it is taken.

    Raises :class:`FormatError`, which names ``source``, for anything damaged.
    """

    def __init__(self, data: bytes | memoryview | mmap.mmap, source: object = "arrays") -> None:
        self._data, self._source = data, source
        self._index: dict[str, tuple[np.dtype[Any], list[int], int, int]] = {}
        try:
            magic, size, check = _HEAD.unpack_from(data)
            at = _HEAD.size + size
            header = bytes(data[_HEAD.size : at])
            if magic != _MAGIC or zlib.crc32(header) != check:
                raise self._damaged()
            for name, kind, shape, crc in json.loads(header):
                at += -at % 8
                sides = [index(side) for side in shape]
                if kind not in _KINDS or not all(0 <= side <= len(data) for side in sides):
                    raise self._damaged()
                dtype = np.dtype(kind)
                self._index[name] = dtype, sides, at, crc
                at += math.prod(sides) * dtype.itemsize
            if at > len(data):
                raise self._damaged()
        except (struct.error, ValueError, TypeError, RecursionError):
            raise self._damaged() from None

    def __getitem__(self, name: str) -> Array:
        dtype, shape, at, crc = self._index[name]
        array: Array = np.frombuffer(self._data, dtype, math.prod(shape), at)
        if zlib.crc32(array.data) != crc:
            raise self._damaged()
        return array.reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def _damaged(self) -> FormatError:
        return FormatError(f"{self._source}: damaged (named arrays)")


def pack_arrays(arrays: Arrays) -> bytes:
    """Return ``arrays`` of integers, booleans or floats as a message."""
    return b"".join(array_parts(arrays))


def pack_archive(entries: Mapping[str, bytes]) -> bytes:
    """Return named bytes as a message of zstd frames, each of which :func:`unpack_frame` undoes."""
    pack = compressor(3).compress
    return pack_arrays({name: np.frombuffer(pack(one), "u1") for name, one in entries.items()})


def json_bytes(value: object) -> Array:
    """Return the JSON of ``value`` as an array of bytes."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def array_parts(arrays: Arrays) -> list[Any]:
    """Return the buffers that make up the message of ``arrays``."""
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    described = [(name, a.dtype.str, a.shape, zlib.crc32(a.data)) for name, a in plain.items()]
    header = json.dumps(described, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    parts: list[Any] = [_HEAD.pack(_MAGIC, len(header), zlib.crc32(header)), header]
    for array in plain.values():
        parts += [array.data, bytes(-array.nbytes % 8)]
    return parts


def save_arrays(path: Path, arrays: Arrays) -> None:
    """Write a file of ``arrays``. Raises :class:`StorageError`."""
    try:
        with path.open("wb") as file:
            file.writelines(array_parts(arrays))
    except OSError as error:
        raise storage_error(path, error) from None


def load_arrays(path: Path) -> NamedArrays:
    """Map a file of :func:`save_arrays`. Raises :class:`FormatError`."""
    try:
        with path.open("rb") as file:
            return NamedArrays(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), path)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: damaged ({error})") from None
