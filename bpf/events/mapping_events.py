"""Changes of processes' code on the whole node, as they happen: perf's records of mappings,
forks, execs and exits.

A dummy software event per CPU with ``attr.mmap2`` costs nothing until something is mapped
executable. (Samples alone would not do: another library may be loaded where one was unloaded, and
the old rows would then be used for the new code.) A second one reports forks, execs and exits,
which wake nobody. Records: ``include/uapi/linux/perf_event.h``.
"""

from __future__ import annotations

import mmap
import os
import select
import struct
import sys
import time
from pathlib import Path

from hpcd.bpf.events.mapping_history import MappingHistory, ReportKind
from hpcd.bpf.kernel import syscalls
from hpcd.bpf.kernel.libbpf import KernelRefusedError
from hpcd.model.region import Region

_LOST, _COMM, _EXIT, _FORK, _MMAP2 = 2, 3, 4, 7, 10
_MISC_EXEC = 1 << 13
_MMAP, _WITH_COMM, _TASK, _WATERMARK = 1 << 8, 1 << 9, 1 << 13, 1 << 14
_SAMPLE_ID_ALL, _WITH_MMAP2, _COMM_EXEC, _USE_CLOCK = 1 << 18, 1 << 23, 1 << 24, 1 << 25
_SAMPLE_TIME = 1 << 2
_PAGES = 64  # 256 KiB: 2000 mappings of 130 bytes, 5000 forks
_HEAD, _TAIL = 1024, 1032  # offsets of data_head and data_tail in struct perf_event_mmap_page
_MANY_BYTES = _PAGES * mmap.PAGESIZE // 4
# How long ago what is requested may have happened.
_REMEMBERED_NS = 30_000_000_000
# The interval at which older reports are forgotten: a process that loads hundreds of libraries a
# second adds 0.3 MB a second.
_FORGOTTEN_EVERY_NS = 5_000_000_000
# A record has its time before it is there to be taken.
_LATE_NS = 10_000_000


class MmapEvents:
    """Reads which processes have mapped code, and keeps what they had mapped when
    (:class:`~hpcd.bpf.events.mapping_history.MappingHistory`): a process may have ended, or the
    code have been unmapped, before /proc is read.

    Raises :class:`hpcd.errors.PrivilegeError` or :class:`hpcd.errors.PlatformError`.
    """

    def __init__(self, cpus: int, *, at_once: bool = True) -> None:
        """A mapping of code makes :attr:`descriptor` readable ``at_once``, or many together do."""
        timed = _WATERMARK | _SAMPLE_ID_ALL | _USE_CLOCK
        mapping = self._event(timed | _MMAP | _WITH_MMAP2, 1 if at_once else _MANY_BYTES)
        lifecycle = self._event(timed | _TASK | _WITH_COMM | _COMM_EXEC)
        self.history = MappingHistory(self._read)
        self.taken_until = 0
        """All that happened before this time (ns) is in the history."""
        self.needed_since = 1 << 63
        """Changes since then (ns) are remembered, however long ago that is."""
        self.lost = 0
        """Times that the kernel had more to report than its memory for it held."""
        self._forgotten_at = 0
        # By pid, when the last of its threads to end did.
        self._ended: dict[int, int] = {}
        self._mapped: set[int] = set()
        """Pids of the processes that have mapped code since :meth:`take`."""
        self._files: dict[bytes, tuple[int, str, int, str]] = {}
        self._news = select.epoll()
        self._rings: list[tuple[int, mmap.mmap]] = []
        self._quiet: list[tuple[int, mmap.mmap]] = []
        try:
            for cpu in range(cpus):
                self._listen(mapping, cpu, self._rings)
                self._listen(lifecycle, cpu, self._quiet)
            for fd, _ in self._rings:
                self._news.register(fd, select.EPOLLIN)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _event(flags: int, wakeup_bytes: int = 1) -> syscalls.PerfEvent:
        return syscalls.PerfEvent(
            syscalls.PERF_TYPE_SOFTWARE,
            syscalls.SW_DUMMY,
            period=1,
            flags=flags,
            wakeup_events=wakeup_bytes,
            sample_type=_SAMPLE_TIME,
            clock=time.CLOCK_MONOTONIC,
        )

    @staticmethod
    def _listen(event: syscalls.PerfEvent, cpu: int, rings: list[tuple[int, mmap.mmap]]) -> None:
        try:
            fd = syscalls.perf_event_open(event, -1, cpu)
        except KernelRefusedError:
            return  # possible but offline
        try:
            ring = mmap.mmap(fd, (1 + _PAGES) * mmap.PAGESIZE)
        except BaseException:
            os.close(fd)
            raise
        rings.append((fd, ring))

    @property
    def descriptor(self) -> int:
        """Readable when code was mapped since the last :meth:`take`."""
        return self._news.fileno()

    def take(self) -> set[int]:
        """Take the records waiting; the pids of the processes that mapped code."""
        # Else what was mapped until now, and is taken, would make it readable once more.
        self._news.poll(0)
        self._take_rings()
        pids, self._mapped = self._mapped, set()
        return pids

    def catch_up(self, until: int) -> None:
        """Bring the history up to the time ``until`` (ns), between two calls of :meth:`take`."""
        if until >= self.taken_until:
            self._take_rings()

    def _take_rings(self) -> None:
        now = time.monotonic_ns()
        lost = self.lost
        for _, ring in (*self._quiet, *self._rings):
            self._take_ring(ring)
        self.taken_until = now
        self.history.settle(now - _LATE_NS)
        if self.lost > lost:
            self.history.clear(now)
        elif now - self._forgotten_at > _FORGOTTEN_EVERY_NS:
            self._forgotten_at = now
            self._forget_before(min(now - _REMEMBERED_NS, self.needed_since))

    def _forget_before(self, time_ns: int) -> None:
        self.history.forget_before(time_ns)
        for pid, ended in list(self._ended.items()):
            if ended < time_ns and not Path(f"/proc/{pid}").exists():
                self.history.forget(pid, ended)
                del self._ended[pid]

    def _take_ring(self, ring: mmap.mmap) -> None:
        head = struct.unpack_from("<Q", ring, _HEAD)[0]
        tail = struct.unpack_from("<Q", ring, _TAIL)[0]
        pending = _pending(ring, tail, head)
        at = 0
        while at < len(pending):
            kind, misc, length = _HEADER.unpack_from(pending, at)
            if length < _HEADER.size:
                break
            record = pending[at : at + length]
            at += length
            if kind in _KINDS:
                pid, parent = _PIDS.unpack_from(record, _HEADER.size)
                if kind == _MMAP2:
                    self._mapped.add(pid)
                if kind == _MMAP2 or (pid != parent if kind == _FORK else misc & _MISC_EXEC):
                    when = int.from_bytes(record[-8:], "little")  # its time is its end
                    self.history.on_report(pid, when, _KINDS[kind], record)
            elif kind == _EXIT:
                pid, when = _EXITED.unpack_from(record, _HEADER.size)
                self._ended[pid] = max(when, self._ended.get(pid, 0))
            elif kind == _LOST:
                self.lost += 1
        struct.pack_into("<Q", ring, _TAIL, head)

    def _read(self, record: bytes) -> tuple[int, Region | None]:
        """The parent of a fork, 0 of others, and what was mapped."""
        kind = _HEADER.unpack_from(record)[0]
        if kind != _MMAP2:
            return _PIDS.unpack_from(record, _HEADER.size)[1] if kind == _FORK else 0, None
        _, _, start, length = _WHERE.unpack_from(record, _HEADER.size)
        what = record[_WHAT:-8]  # most map the same few files
        file = self._files.get(what) or self._file(what)
        return 0, Region(start, start + length, *file)

    def _file(self, what: bytes) -> tuple[int, str, int, str]:
        """Offset, device, inode and path of a mapping, by what its record says after its place."""
        offset, major, minor, inode = _FILE.unpack_from(what)
        path = sys.intern(what[_PATH:].split(b"\0", 1)[0].decode(errors="replace"))
        if len(self._files) >= _MAX_FILES:
            self._files.clear()
        file = self._files[what] = offset, sys.intern(f"{major:02x}:{minor:02x}"), inode, path
        return file

    def close(self) -> None:
        """Stop listening."""
        self._news.close()
        for fd, ring in (*self._rings, *self._quiet):
            ring.close()
            os.close(fd)
        self._rings.clear()
        self._quiet.clear()


_HEADER = struct.Struct("<IHH")
# struct perf_record_mmap2 after its header: pid, tid, addr, len; pgoff, maj, min, ino.
_WHERE, _FILE = struct.Struct("<IIQQ"), struct.Struct("<QIIQ")
_WHAT = 8 + _WHERE.size
_PATH = _FILE.size + 8 + 8  # then the inode's generation, protection and flags
_MAX_FILES = 1024
# After the header: of PERF_RECORD_FORK pid and ppid, of PERF_RECORD_COMM and _MMAP2 pid and tid.
_PIDS = struct.Struct("<II")
# PERF_RECORD_EXIT's pid and time; between them are its parent and the two threads.
_EXITED = struct.Struct("<I12xQ")
_KINDS = {_FORK: ReportKind.FORK, _COMM: ReportKind.EXEC, _MMAP2: ReportKind.MAP}


def _pending(ring: mmap.mmap, tail: int, head: int) -> bytes:
    """The records between the positions ``tail`` and ``head``, around the ring's end."""
    size = _PAGES * mmap.PAGESIZE
    begin = tail % size
    end = begin + head - tail
    data = ring[mmap.PAGESIZE + begin : mmap.PAGESIZE + min(end, size)]
    return data + ring[mmap.PAGESIZE : mmap.PAGESIZE + max(end - size, 0)]
