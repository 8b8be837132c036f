"""Column files: one-dimensional ``.npy`` arrays, written in place and read memory-mapped.

``.npy`` because it is documented, describes itself, and ``numpy.load`` reads it without hpcd.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.file_mapping import map_file
from hpcd.array_types import I64, Array
from hpcd.errors import FormatError, StorageError
from hpcd.regular_file import open_regular


def storage_error(path: Path, error: OSError) -> StorageError:
    """Return the one-line error for a failed write of ``path``."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(f"{path}: no space left on the disk")
    return StorageError(f"{path}: {error.strerror or error}")


def create_column(path: Path, dtype: npt.DTypeLike, rows: int) -> None:
    """Make a column of ``rows`` zeros, its blocks reserved.

    Reserved, so that a full disk is an error here and not a lost merge later. Raises
    :class:`StorageError`.
    """
    kind = np.dtype(dtype)
    try:
        with path.open("xb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": kind.str, "fortran_order": False, "shape": (rows,)}
            )
            if rows:
                os.posix_fallocate(file.fileno(), file.tell(), rows * kind.itemsize)
    except OSError as error:
        raise storage_error(path, error) from None


def save_column(path: Path, values: Array) -> None:
    """Write a whole column. Raises :class:`StorageError`."""
    try:
        with path.open("xb") as file:
            np.save(file, np.ascontiguousarray(values), allow_pickle=False)
    except OSError as error:
        raise storage_error(path, error) from None


class ColumnWriter:
    """Writes rows of an existing column at any position, from any number of processes.

    ``pwrite``, not a writable mapping: mapped pages count as this process's memory, and a write
    the disk refuses is an error here where it would be a fatal signal there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise storage_error(path, error) from None
        with os.fdopen(os.dup(self._fd), "rb") as file:
            _, self.dtype = _read_header(file, path)
            self._data = file.tell()

    def __enter__(self) -> ColumnWriter:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def write(self, row: int, values: Array) -> None:
        """Put ``values`` from ``row`` on."""
        data = np.ascontiguousarray(values, dtype=self.dtype).view(np.uint8).data
        at = self._data + row * self.dtype.itemsize
        try:
            while data:
                done = os.pwrite(self._fd, data, at)
                data, at = data[done:], at + done
        except OSError as error:
            raise storage_error(self._path, error) from None


def map_column(path: Path) -> Array:
    """Map an existing column for writing all of it in any order."""
    with path.open("rb") as file:
        rows, kind = _read_header(file, path)
        offset = file.tell()
    if rows == 0:
        return np.zeros(0, kind)
    return np.memmap(path, kind, "r+", offset, (rows,))


def open_column(path: Path, dtype: npt.DTypeLike, rows: int | None = None) -> Array:
    """Map a column read-only. Raises :class:`FormatError` unless it has this type and length."""
    try:
        with open_regular(path) as file:
            return _mapped(file, path, dtype, rows)
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror or error}") from None


def _mapped(file: BinaryIO, path: Path, dtype: npt.DTypeLike, rows: int | None) -> Array:
    shape, kind = _read_header(file, path)
    offset = file.tell()
    size = file.seek(0, os.SEEK_END) - offset
    if kind != np.dtype(dtype):
        raise FormatError(f"{path}: column of {kind}, expected {np.dtype(dtype)}")
    if size != shape * kind.itemsize or (rows is not None and shape != rows):
        raise FormatError(f"{path}: column has another length than it should")
    if shape == 0:
        # An empty file part cannot be mapped.
        return np.zeros(0, kind)
    # No memmap: making one takes 50 us, and slicing it several times as long as another array.
    return np.ndarray(shape, kind, map_file(file, offset + size), offset)


def are_below(numbers: Array, count: int) -> bool:
    """Whether unsigned ``numbers`` number ``count`` things: all are below it."""
    return not len(numbers) or int(numbers.max()) < count


def release(column: Array) -> None:
    """Give the pages of a mapped column back to the kernel; they are read again when needed.

    Pages that a process has read of its mappings count as its memory until then. Other arrays stay
    as they are.
    """
    base: object = column
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap):
        base.madvise(mmap.MADV_DONTNEED)


def open_narrow(path: Path, count: int) -> Array:
    """Map a column of ``count`` unsigned integers of 1 to 8 bytes. Raises :class:`FormatError`."""
    for kind in (np.uint8, np.uint16, np.uint32):
        with suppress(FormatError):
            return open_column(path, kind, count)
    return open_column(path, np.uint64, count)


def open_bounds(path: Path, rows: int, total: int) -> I64:
    """Map an ``int64[rows + 1]`` column that cuts ``total`` entries into ``rows`` ranges.

    Raises :class:`FormatError` unless the ranges follow one another and cover them all.
    """
    bounds = open_column(path, np.int64, rows + 1)
    if bounds[0] != 0 or bounds[-1] != total or bool((bounds[1:] < bounds[:-1]).any()):
        raise FormatError(f"{path}: not the ranges of {total} entries")
    return bounds


# Exactly the header that numpy writes for such arrays. numpy's own parser evaluates Python syntax,
# which may raise any exception.
_HEADER = re.compile(
    rb"\{'descr': '([<|][iuf][1248])', 'fortran_order': False, 'shape': \((\d{1,18}),\), \} *\n"
)
_MAGIC = b"\x93NUMPY\x01\x00"


def _read_header(file: BinaryIO, path: Path) -> tuple[int, np.dtype[Any]]:
    """Rows and type of a column, the file left at its data. Raises :class:`FormatError`."""
    start = file.read(len(_MAGIC) + 2)
    if len(start) != len(_MAGIC) + 2 or not start.startswith(_MAGIC):
        raise FormatError(f"{path}: not a column")
    match = _HEADER.fullmatch(file.read(int.from_bytes(start[-2:], "little")))
    if match is None:
        raise FormatError(f"{path}: not a column")
    return int(match[2]), np.dtype(match[1].decode())
