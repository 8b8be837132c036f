"""Which code a process had mapped where, at any moment of the last seconds.

The kernel's reports (:mod:`hpcd.bpf.events.mapping_events`) and what was read from /proc, each with
its time, of a process are one list in order of time. What lay at an address at a moment follows
from the entries before it: a fork begins with what its parent had then, an exec with nothing, a
reading is the truth at its time, and code that is mapped hides what was there.

::

    10 exec     nothing
    11 map      /bin/a at 0x1000
    14 map      libx2 at 0x9000
    17 map      libx3 at 0x9000      (libx2 was unloaded, which is not reported)

    0x9100 at 16 is libx2's, at 18 libx3's, at 12 no module's.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from hpcd.model.region import Region

# What is remembered: of all processes together, and of each. A program that loads and unloads
# libraries maps a handful each time; what is older than its last reading is let go of.
_MAX_ENTRIES, _MAX_OF_ONE = 65_536, 2048
# Reports of one process that were never read.
_MAX_UNREAD_OF_ONE = 256
# Generations of forks that are followed back where no mappings of theirs were ever read.
_MAX_GENERATIONS = 16
# Mappings one after another that are summed up when they have been looked through once.
_LONG = 16


class ReportKind(IntEnum):
    """The kind of change that an entry reports; ``READ``: a reading of /proc."""

    FORK = 0
    EXEC = 1
    MAP = 2
    READ = 3


class _Entry(NamedTuple):
    time: int
    kind: ReportKind
    parent: int
    mappings: tuple[Region, ...]
    settled: int = 0
    """End of a reading (ns): changes until then may be in it."""


class _Report(NamedTuple):
    """A report that has not been read yet."""

    time: int
    kind: ReportKind
    record: bytes


_time = itemgetter(0)


class MappingHistory:
    """The mappings of processes, by time (ns of CLOCK_MONOTONIC). Entries may come out of order.

    Bounded: what is dropped makes :meth:`at` say None or less than was there, never something
    else.
    """

    def __init__(
        self, read: Callable[[bytes], tuple[int, Region | None]] = lambda _: (0, None)
    ) -> None:
        """``read`` takes a report's record apart: the parent of a fork, 0 of others, and what was
        mapped."""
        self._read = read
        # By pid: reports that were not taken apart, since their process was never looked up.
        self._unread: OrderedDict[int, list[_Report]] = OrderedDict()
        self._unread_count = 0
        self._entries: OrderedDict[int, list[_Entry]] = OrderedDict()
        self._count = 0
        # What happened before: to all processes, and to those whose lists have lost their
        # beginning.
        self._known_since = 0
        self._settled = 0
        self._shortened: dict[int, int] = {}

    def on_report(self, pid: int, time: int, kind: ReportKind, record: bytes) -> None:
        """Keep a report, which is read when ``pid`` is looked up: most never are."""
        unread = self._unread.setdefault(pid, [])
        unread.append(_Report(time, kind, record))
        self._unread_count += 1
        self._unread.move_to_end(pid)
        if len(unread) > _MAX_UNREAD_OF_ONE:
            self._entries_of(pid)
        while self._unread_count > _MAX_ENTRIES:
            _, dropped = self._unread.popitem(last=False)
            self._unread_count -= len(dropped)
            self._known_since = max(self._known_since, dropped[-1].time)

    def on_read(self, pid: int, began: int, ended: int, mappings: tuple[Region, ...]) -> None:
        """These were all of ``pid``'s mappings between ``began`` and ``ended``."""
        entries = self._entries_of(pid)
        if entries and entries[-1].kind is ReportKind.READ and entries[-1].mappings == mappings:
            return  # nothing was reported since
        self._add(pid, _Entry(began, ReportKind.READ, 0, mappings, ended))

    def forget_before(self, time: int) -> None:
        """Forget what only moments before ``time`` depend on: they will not be looked up."""
        for pid, entries in list(self._entries.items()):
            last = bisect_right(entries, time, key=_time)
            while last > 0:
                last -= 1
                kind, settled = entries[last].kind, entries[last].settled
                if kind in (ReportKind.READ, ReportKind.EXEC) and settled <= time:
                    self._shorten(pid, entries, last)
                    break

    def forget(self, pid: int, until: int) -> None:
        """Forget a process that has ended: what was reported of ``pid`` until then (ns)."""
        unread = self._unread.pop(pid, [])
        later = [report for report in unread if report.time > until]
        self._unread_count -= len(unread) - len(later)
        if later:  # of another process, with the same pid
            self._unread[pid] = later
        entries = self._entries.get(pid, [])
        count = bisect_right(entries, until, key=_time)
        del entries[:count]
        self._count -= count
        if not entries:
            self._entries.pop(pid, None)
            self._shortened.pop(pid, None)

    def clear(self, time: int) -> None:
        """Reports were lost before ``time``: nothing from before it can be relied on."""
        self._entries.clear()
        self._unread.clear()
        self._unread_count = 0
        self._shortened.clear()
        self._count = 0
        self._known_since = time

    def _shorten(self, pid: int, entries: list[_Entry], count: int) -> None:
        if count:
            self._shortened[pid] = entries[count].time if count < len(entries) else 1 << 63
            del entries[:count]
            self._count -= count

    def at(self, pid: int, time: int) -> list[Region] | None:
        """The executable mappings ``pid`` had at ``time``, in order of address; None when it is not
        known."""
        return self._at(pid, time, _MAX_GENERATIONS)

    def executed_after(self, pid: int, time: int) -> bool:
        """Return whether ``pid`` is known to have begun another program after ``time`` (ns)."""
        entries = self._entries_of(pid)
        newest_first = reversed(entries)
        return any(one.kind is ReportKind.EXEC and one.time > time for one in newest_first)

    def program_of(self, pid: int, time: int) -> str:
        """The path of the program that ``pid`` had begun at ``time``, "" when it is not known: of
        what an exec maps it is the first."""
        first: _Entry | _Report | None = None
        known: Sequence[_Entry | _Report] = self._entries.get(pid, ())
        if not known:  # it has ended, most likely, and nothing else will be asked
            known = sorted(self._unread.get(pid, ()), key=_time)
        elif pid in self._unread:
            known = self._entries_of(pid)
        for entry in reversed(known[: bisect_right(known, time, key=_time)]):
            if entry.kind is ReportKind.MAP:
                first = entry
            elif entry.kind is ReportKind.EXEC:
                break
        else:
            return ""
        mapped = self._entry_of(first).mappings if first else ()
        return mapped[0].path if mapped and mapped[0].path.startswith("/") else ""

    def mapped_after(self, pid: int, time: int) -> list[tuple[int, Region]]:
        """Return (time, region) of what ``pid`` has mapped after ``time``, the last first."""
        mapped = []
        for entry in reversed(self._entries_of(pid)):
            if entry.time <= time:
                break
            if entry.kind is ReportKind.MAP:
                mapped.append((entry.time, entry.mappings[0]))
        return mapped

    def changes_after(self, pid: int, time: int) -> int:
        """Until when :meth:`at` says of ``pid`` what it says of ``time``, as far as is known."""
        entries = self._entries_of(pid)
        end = bisect_right(entries, time, key=_time)
        until = entries[end].time if end < len(entries) else 1 << 63
        for entry in islice(reversed(entries), len(entries) - end, None):
            if entry.kind is ReportKind.READ:
                if entry.settled <= time:
                    break
                until = min(until, entry.settled)
        return until

    def lookup(self, pid: int, address: int, time: int) -> Region | None:
        """The mapping of ``pid`` that held ``address`` at ``time``."""
        return self._lookup(pid, address, time, _MAX_GENERATIONS)

    def _lookup(self, pid: int, address: int, time: int, generations: int) -> Region | None:
        entries = self._entries_at(pid, time, generations)
        end = bisect_right(entries, time, key=_time)
        for entry in reversed(entries[:end]):
            read = entry.kind is ReportKind.READ and entry.settled <= time
            if entry.kind is ReportKind.MAP or read:
                for region in entry.mappings:
                    if region.start <= address < region.end:
                        return region
                if entry.kind is ReportKind.READ:
                    return None
            elif entry.kind is ReportKind.EXEC:
                return None
            elif entry.kind is ReportKind.FORK:
                return self._lookup(entry.parent, address, entry.time, generations - 1)
        regions = self._at(pid, time, generations) or ()
        return next((r for r in regions if r.start <= address < r.end), None)

    def _entries_at(self, pid: int, time: int, generations: int) -> list[_Entry]:
        """The entries of ``pid`` if they go back to ``time``; else none."""
        if not generations or time < max(self._known_since, self._shortened.get(pid, 0)):
            return []
        return self._entries_of(pid)

    def _entries_of(self, pid: int) -> list[_Entry]:
        """The entries of ``pid``, its reports taken apart."""
        unread = self._unread.pop(pid, None)
        if unread:
            self._unread_count -= len(unread)
            for report in unread:
                self._add(pid, self._entry_of(report))
        return self._entries.get(pid, [])

    def _entry_of(self, report: _Entry | _Report) -> _Entry:
        if isinstance(report, _Entry):
            return report
        parent, mapped = self._read(report.record)
        return _Entry(report.time, report.kind, parent, (mapped,) if mapped else ())

    def settle(self, time: int) -> None:
        """All that happened before ``time`` has been told."""
        self._settled = time

    def _at(self, pid: int, time: int, generations: int) -> list[Region] | None:
        entries = self._entries_at(pid, time, generations)
        if not entries:
            return None
        end = bisect_right(entries, time, key=_time)
        first = end
        base: list[Region] | None = None
        while first > 0:
            first -= 1
            entry = entries[first]
            if entry.kind is ReportKind.EXEC:
                base = []
            elif entry.kind is ReportKind.READ and entry.settled <= time:
                base = list(entry.mappings)
            elif entry.kind is ReportKind.FORK:
                base = self._at(entry.parent, entry.time, generations - 1)
                if base is None:
                    first = 0
            if base is not None:
                first += 1
                break
        if base is None:
            # Nothing is known from before, but it was read before anything else was mapped.
            if end < len(entries) and entries[end].kind is ReportKind.READ:
                return list(entries[end].mappings)
            return None
        for entry in entries[first:end]:
            if entry.kind is ReportKind.MAP:
                base = _lay_over(base, entry.mappings[0])
        if end - first > _LONG and entries[end - 1].time < self._settled:
            # Next time it is looked up from here.
            when = entries[end - 1].time
            entries.insert(end, _Entry(when, ReportKind.READ, 0, tuple(base), when))
            self._count += 1
        return base

    def _add(self, pid: int, entry: _Entry) -> None:
        entries = self._entries.get(pid)
        if entries is None:
            entries = self._entries[pid] = []
        if entries and entries[-1].time > entry.time:
            insort(entries, entry, key=_time)
        else:
            entries.append(entry)
        self._entries.move_to_end(pid)
        self._count += 1
        if len(entries) > _MAX_OF_ONE:
            # A list that lost its beginning says nothing until it is read again.
            self._shorten(pid, entries, _MAX_OF_ONE // 2)
        while self._count > _MAX_ENTRIES:
            oldest, dropped = self._entries.popitem(last=False)
            self._shortened.pop(oldest, None)
            self._count -= len(dropped)
            self._known_since = max(self._known_since, dropped[-1].time)


def _lay_over(mappings: list[Region], new: Region) -> list[Region]:
    """``mappings`` in order of address with ``new``, which hides what it covers."""
    result = []
    placed = False
    for old in mappings:
        if old.start >= new.end and not placed:
            result.append(new)
            placed = True
        if old.end <= new.start or old.start >= new.end:
            result.append(old)
            continue
        if old.start < new.start:
            result.append(old._replace(end=new.start))
        if not placed:
            result.append(new)
            placed = True
        if old.end > new.end:
            result.append(old._replace(start=new.end, offset=old.offset + (new.end - old.start)))
    if not placed:
        result.append(new)
    return result
