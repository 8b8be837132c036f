"""Structures at offsets of a mapped file, none of which need be right."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.array_types import Array
from hpcd.errors import FormatError, NotFoundError


class MappedFile:
    """A file whose offsets and sizes are taken from itself.

    Every method raises :class:`FormatError` naming the file for what lies outside it, the
    constructor :class:`NotFoundError` when it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise NotFoundError(f"{path}: {error.strerror}") from None
        except ValueError:
            raise FormatError(f"{path}: empty") from None

    def __len__(self) -> int:
        return len(self._data)

    def unpack(self, layout: struct.Struct, at: int) -> tuple[Any, ...]:
        """The fields of the structure at ``at``."""
        self._check(at, layout.size)
        return layout.unpack_from(self._data, at)

    def array(self, dtype: np.dtype[np.void], at: int, count: int) -> Array:
        """``count`` structures from ``at`` on, copied."""
        self._check(at, count * dtype.itemsize)
        return np.frombuffer(self._data, dtype, count, at).copy()

    def text(self, at: int, limit: int = 1 << 20) -> bytes:
        """The string that ends in a zero byte, at most ``limit`` long."""
        self._check(at, 1)
        end = self._data.find(b"\0", at, at + limit)
        if end < 0:
            raise self.damaged(f"string at byte {at} does not end")
        return self._data[at:end]

    def damaged(self, what: str) -> FormatError:
        """An error that says what is wrong with the file."""
        return FormatError(f"{self.path}: damaged: {what}")

    def _check(self, at: int, size: int) -> None:
        if at < 0 or size < 0 or at + size > len(self._data):
            raise self.damaged(f"{size} bytes at {at} of {len(self._data)}")
