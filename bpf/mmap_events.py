"""News of executable mappings, node-wide: which processes have just mapped code.

A dummy software event per CPU with ``attr.mmap2`` costs nothing until something is mapped
executable. (Samples alone would not do: another library may be loaded where one was unloaded, and
the old rows would then be used for the new code.) Records: ``include/uapi/linux/perf_event.h``.
"""

from __future__ import annotations

import mmap
import os
import struct

from hpcd.bpf import syscalls

_MMAP2 = 10
_FLAG_MMAP, _FLAG_WATERMARK, _FLAG_MMAP2 = 1 << 8, 1 << 14, 1 << 23
_PAGES = 16  # 64 KiB: 500 mappings of 130 bytes
_HEAD, _TAIL = 1024, 1032  # offsets of data_head and data_tail in struct perf_event_mmap_page


class MmapEvents:
    """Reads the pids that mapped code since the last look."""

    def __init__(self, cpus: int) -> None:
        event = syscalls.PerfEvent(
            syscalls.PERF_TYPE_SOFTWARE,
            syscalls.SW_DUMMY,
            period=1,
            flags=_FLAG_MMAP | _FLAG_MMAP2 | _FLAG_WATERMARK,
            wakeup_events=1,
        )
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
                    where = mmap.PAGESIZE + (tail + 8) % size
                    pids.add(struct.unpack_from("<I", ring, where)[0])
                tail += length
            struct.pack_into("<Q", ring, _TAIL, head)
        return pids

    def close(self) -> None:
        """Stop listening."""
        for fd, ring in self._rings:
            ring.close()
            os.close(fd)
        self._rings.clear()
