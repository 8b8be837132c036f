"""News of executable mappings, node-wide: which processes have just mapped code.

A dummy software event per CPU with ``attr.mmap2`` costs nothing until something is mapped
executable. (Samples alone would not do: another library may be loaded where one was unloaded, and
the old rows would then be used for the new code.) Records: ``include/uapi/linux/perf_event.h``.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from collections import OrderedDict
from typing import NamedTuple

from hpcd.bpf import syscalls

_MMAP2 = 10
_FLAG_MMAP, _FLAG_WATERMARK, _FLAG_MMAP2 = 1 << 8, 1 << 14, 1 << 23
_PAGES = 16  # 64 KiB: 500 mappings of 130 bytes
_HEAD, _TAIL = 1024, 1032  # offsets of data_head and data_tail in struct perf_event_mmap_page


# What is remembered: the newest mappings of the processes that mapped last, in all 4 MB. One that
# lives longer has its mappings read from /proc; one that loads and unloads maps the same places.
_MAX_MAPPINGS, _MAX_OF_ONE = 16_384, 64


class Mapped(NamedTuple):
    """Code that was mapped: ``device`` as /proc/PID/maps writes it, ``path`` as the process sees
    it."""

    start: int
    end: int
    offset: int
    device: str
    inode: int
    path: str


class MmapEvents:
    """Reads the pids that mapped code since the last look, and remembers what the last ones mapped:
    a process may have ended, or the code have been unmapped, before /proc is read."""

    def __init__(self, cpus: int) -> None:
        event = syscalls.PerfEvent(
            syscalls.PERF_TYPE_SOFTWARE,
            syscalls.SW_DUMMY,
            period=1,
            flags=_FLAG_MMAP | _FLAG_MMAP2 | _FLAG_WATERMARK,
            wakeup_events=1,
        )
        self._recent: OrderedDict[int, list[Mapped]] = OrderedDict()
        self._remembered = 0
        self._rings: list[tuple[int, mmap.mmap]] = []
        for cpu in range(cpus):
            try:
                fd = syscalls.perf_event_open(event, -1, cpu)
            except syscalls.KernelRefusedError:
                continue  # possible but offline
            size = (1 + _PAGES) * mmap.PAGESIZE
            self._rings.append((fd, mmap.mmap(fd, size)))

    @property
    def descriptors(self) -> list[int]:
        """Readable when there is news."""
        return [fd for fd, _ in self._rings]

    def take(self) -> set[int]:
        """Pids named by the records waiting."""
        pids: set[int] = set()
        for _, ring in self._rings:
            head = struct.unpack_from("<Q", ring, _HEAD)[0]
            tail = struct.unpack_from("<Q", ring, _TAIL)[0]
            size = _PAGES * mmap.PAGESIZE
            while tail < head:
                # Records are whole multiples of 8 bytes; the header and the pid never wrap apart
                # by less than that.
                at = mmap.PAGESIZE + tail % size
                kind, _, length = struct.unpack_from("<IHH", ring, at)
                if length < 8:
                    tail = head
                    break
                if kind == _MMAP2:
                    pids.add(self._remember(_piece(ring, tail % size, length, size)))
                tail += length
            struct.pack_into("<Q", ring, _TAIL, head)
        return pids

    def lookup(self, pid: int, address: int) -> Mapped | None:
        """What ``pid`` mapped last at ``address``, as far as it is remembered."""
        for mapped in reversed(self._recent.get(pid, ())):
            if mapped.start <= address < mapped.end:
                return mapped
        return None

    def _remember(self, record: bytes) -> int:
        """Keep a PERF_RECORD_MMAP2; the pid it is of."""
        (pid, _, start, length, offset, major, minor, inode) = _FIELDS.unpack_from(record, 8)
        # Most map the same few files: one string each.
        path = sys.intern(record[_PATH:].split(b"\0", 1)[0].decode(errors="replace"))
        mappings = self._recent.setdefault(pid, [])
        self._recent.move_to_end(pid)
        device = sys.intern(f"{major:02x}:{minor:02x}")
        mapped = Mapped(start, start + length, offset, device, inode, path)
        before = len(mappings)
        if mapped in mappings:
            mappings.remove(mapped)
        mappings.append(mapped)
        del mappings[:-_MAX_OF_ONE]
        self._remembered += len(mappings) - before
        while self._remembered > _MAX_MAPPINGS:
            _, oldest = self._recent.popitem(last=False)
            self._remembered -= len(oldest)
        return int(pid)

    def close(self) -> None:
        """Stop listening."""
        for fd, ring in self._rings:
            ring.close()
            os.close(fd)
        self._rings.clear()


# struct perf_record_mmap2 after its header: pid, tid, addr, len, pgoff, maj, min, ino.
_FIELDS = struct.Struct("<IIQQQIIQ")
_PATH = 8 + _FIELDS.size + 8 + 8  # then the inode's generation, protection and flags


def _piece(ring: mmap.mmap, at: int, length: int, size: int) -> bytes:
    """``length`` bytes from ``at`` on, around the ring's end."""
    base = mmap.PAGESIZE
    first = ring[base + at : base + min(at + length, size)]
    return first + ring[base : base + max(at + length - size, 0)]
