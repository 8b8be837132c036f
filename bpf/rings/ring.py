"""Draining BPF ring buffers in bulk, by mapping them and reading with numpy.

Layout (kernel/bpf/ringbuf.c): a page with the consumer position, a page with the producer
position, then the data. (The kernel would map the data twice in a row, so that a record never
wraps; a copy of the few bytes that do is cheaper than to have each page count twice.) Each record
has an 8-byte header: length with the busy and discard bits, then the page offset.

A reader must see the data no later than the producer position. x86-64 orders loads; on aarch64 the
interpreter's own work between the two loads makes a reorder implausible but not impossible
(untested there).
"""

from __future__ import annotations

import mmap
import os
import select
import struct
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt

from hpcd.bpf.kernel.maps import Map, ring_map
from hpcd.errors import PlatformError

_BUSY = 1 << 31
_DISCARD = 1 << 30
_HEADER = 8
_length_at = struct.Struct("<I").unpack_from
# How often the reader yields its CPU for a record still being written. Each yield is a system call:
# a writer whose CPU a hypervisor took away for milliseconds is waited for, one that died is not.
_MAX_YIELDS = 100_000


class Ring:
    """A BPF ring buffer of ``size`` bytes (a power of two, at least a page) and its reader.

    ``existing`` is its map where that is there already (:func:`hpcd.bpf.kernel.maps.ring_map`).
    """

    def __init__(self, name: str, size: int, existing: Map | None = None) -> None:
        page = mmap.PAGESIZE
        with ExitStack() as resources:
            self.map = existing or ring_map(name, size)
            resources.callback(self.map.close)
            self._consumer = mmap.mmap(
                self.map.fd, page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=0
            )
            resources.callback(self._consumer.close)
            self._producer = mmap.mmap(
                self.map.fd, page + size, mmap.MAP_SHARED, mmap.PROT_READ, offset=page
            )
            resources.callback(self._producer.close)
            # Edge-triggered: only records sent with a wake-up make it readable, and those that are
            # there already.
            self._urgent = select.epoll()
            resources.callback(self._urgent.close)
            self._urgent.register(self.map.fd, select.EPOLLIN | select.EPOLLET)
            self._resources = resources.pop_all()
        self.size = size
        self._mask = size - 1
        self._consumed = np.frombuffer(self._consumer, np.uint64, 1)
        self._produced = np.frombuffer(self._producer, np.uint64, 1)
        self._data = np.frombuffer(self._producer, np.uint8, size, page)

    @property
    def urgent_descriptor(self) -> int:
        """A descriptor that is readable when a record was sent that cannot wait."""
        return self._urgent.fileno()

    @property
    def pending(self) -> int:
        """Bytes waiting."""
        return int(self._produced[0]) - int(self._consumed[0])

    def take_fixed(self, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
        """All records of a ring whose records are all one ``dtype``; a copy.

        One pass of numpy over the pending bytes, whatever their number. Records that are still
        being written are waited for, as :meth:`take_any` does. Raises :class:`PlatformError` when a
        record has another size.
        """
        self._urgent.poll(0)
        stride = (_HEADER + dtype.itemsize + 7) & ~7
        start = int(self._consumed[0])
        count = (int(self._produced[0]) - start) // stride
        if not count:
            return np.empty(0, dtype)
        rows, header = self._rows(start, count, stride)
        if bool((header != dtype.itemsize).any()):
            busy = np.flatnonzero(header & np.uint32(_BUSY)).tolist()
            if busy:
                waited = (at for at in busy if not self._is_finished(start + at * stride))
                count = next(waited, count)
                rows, header = self._rows(start, count, stride)
            wrong = np.flatnonzero(header != dtype.itemsize)
            if len(wrong):
                size = int(header[wrong[0]]) & ~_DISCARD
                raise PlatformError(
                    f"ring {self.map.name}: record size {size}, expected {dtype.itemsize}"
                )
        taken = rows[:count, _HEADER : _HEADER + dtype.itemsize].copy().view(dtype).ravel()
        self._consumed[0] = start + count * stride
        return taken

    def _rows(
        self, start: int, count: int, stride: int
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
        """``count`` records from position ``start`` on: their bytes, a row each, and headers."""
        rows = self._bytes(start, count * stride).reshape(count, stride)
        return rows, rows[:, :4].copy().view(np.uint32).ravel()

    def _is_finished(self, position: int) -> bool:
        """Wait for the record at ``position`` to be written; return whether it was."""
        for _ in range(_MAX_YIELDS):
            (length,) = _length_at(self._bytes(position, _HEADER).tobytes())
            if not length & _BUSY:
                return True
            os.sched_yield()
        return False

    def take_any(self) -> list[bytes]:
        """All records of a ring with records of any size. One Python step a record.

        Everything reserved before the call is taken: a record another CPU is still writing is
        waited for (it takes microseconds), because what comes after it may already be needed.
        """
        self._urgent.poll(0)
        end = int(self._produced[0])
        start = int(self._consumed[0])
        yields = 0
        taken: list[bytes] = []
        take = taken.append
        while start < end and yields < _MAX_YIELDS:
            raw = self._bytes(start, end - start).tobytes()
            offset, last = 0, len(raw) - _HEADER
            while offset <= last:
                (length,) = _length_at(raw, offset)
                begin = offset + _HEADER
                if length < _DISCARD:  # whole, and meant
                    take(raw[begin : begin + length])
                elif length & _BUSY:
                    yields += 1
                    os.sched_yield()
                    break
                else:
                    length &= ~_DISCARD
                offset = begin + length + 7 & ~7
            start += offset
            self._consumed[0] = start
        return taken

    def _bytes(self, start: int, length: int) -> npt.NDArray[np.uint8]:
        """The bytes from position ``start`` on, in one piece."""
        at = start & self._mask
        first = self._data[at : at + length]
        if len(first) == length:
            return first
        return np.concatenate([first, self._data[: length - len(first)]])

    def close(self) -> None:
        """Unmap and drop the map."""
        # The mappings cannot be unmapped while arrays look into them.
        del self._consumed, self._produced, self._data
        self._resources.close()
