"""Perfetto's trace: a StackSample for each record, with its weight (``perfetto_trace.proto``).

The primary weight of a sample is its record's weight in the record's metric, which the weight's
descriptor names; times are in ns, so waits carry their duration. Times are times of day. Frames
are interned at the beginning, call paths when they are first used. Phases are slices on a track
below their thread's, waits with who ended them on another, with a flow from the thread that did.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import BinaryIO

import numpy as np

from hpcd.analysis.database.metrics import RECORDS
from hpcd.array_types import I64, Mask
from hpcd.interchange.numbering import Numbering
from hpcd.interchange.output.context_table import Detail, path_maker
from hpcd.interchange.output.export_selection import (
    ExportSelection,
    ProcessIds,
    ProcessNames,
    whole_numbers,
)
from hpcd.interchange.output.exported_waits import ExportedWaits
from hpcd.interchange.output.trace_blocks import TraceBlock
from hpcd.interchange.protobuf import encode_varints, fixed64, integer, message, text

# Fields of TracePacket.
_CLOCK_SNAPSHOT, _TIMESTAMP, _SEQUENCE, _EVENT, _INTERNED, _FLAGS = 6, 8, 10, 11, 12, 13
_TRACK, _STACK_SAMPLE, _CLEARED = 60, 135, 41
_NEEDS_STATE = 2
_BOOTTIME, _REALTIME = 6, 1
# Fields of InternedData.
_FUNCTION_NAMES, _FRAMES, _CALLSTACKS = 5, 6, 7
_BUILD_IDS, _PATHS, _SOURCES, _MAPPINGS = 16, 17, 18, 19
_TASKS, _COUNTERS = 48, 50
# Fields of StackSample.
_TASK_ID, _CALLSTACK_ID, _DESCRIPTOR_ID, _WEIGHT = 2, 6, 10, 11
_NANOSECONDS, _COUNT = 1, 9
# Fields of TrackDescriptor and TrackEvent.
_UUID, _TRACK_NAME, _PARENT = 1, 2, 5
_TYPE, _OF_TRACK, _CATEGORY, _NAME = 9, 11, 22, 23
_FLOW, _LAST_OF_FLOW = 47, 48
_BEGIN, _END, _INSTANT = 1, 2, 3
# Tracks of threads, above all pids, which are the processes' own identifiers, of their phases, and
# of their waits and wake-ups.
_THREAD_TRACKS, _PHASE_TRACKS, _WAIT_TRACKS = 1 << 32, 1 << 33, 1 << 34
# Entries interned in one packet: some 100 kB.
_BATCH = 1000
_HEAD = integer(_SEQUENCE, 1)


def write(selection: ExportSelection, file: BinaryIO, _: Path) -> None:
    """Write ``selection`` to ``file``."""
    _Writer(file, selection).write()


class _Writer:
    """Writes one trace, as one sequence of packets."""

    def __init__(self, file: BinaryIO, selection: ExportSelection) -> None:
        self._file = file
        self._selection = selection
        self._table = selection.contexts(Detail.PLACE)
        names = selection.names
        # Each record adds to one metric other than samples, which count if there is no other.
        self._rows = [row for row, name in enumerate(names) if name != RECORDS] or [0]
        self._scale = np.array([1e9 if selection.units[row] == "s" else 1.0 for row in self._rows])
        self._waits = ExportedWaits(selection)
        self._task: dict[int, int] = {}
        self._known: Mask = np.zeros(len(self._table), bool)
        self._path = path_maker(self._table)
        self._flags = integer(_SEQUENCE, 1) + integer(_FLAGS, _NEEDS_STATE)

    def write(self) -> None:
        origin = self._selection.db.origin_ns
        clocks = [
            message(1, integer(1, clock), integer(2, origin)) for clock in (_BOOTTIME, _REALTIME)
        ]
        self._packet(_HEAD, integer(_CLEARED, 1), integer(_FLAGS, 1),
                     message(_CLOCK_SNAPSHOT, *clocks))  # fmt: skip
        self._intern_code()
        self._intern([message(_COUNTERS, *self._counter(n)) for n in range(len(self._rows))])
        ids, names = ProcessIds(self._selection), ProcessNames(self._selection)
        pids: set[int] = set()
        # A wake-up is on the waker's track, which may be that of a later line.
        for task, line in enumerate(self._selection.iterate_lines("describe"), start=1):
            pid, tid = ids(line)
            if pid not in pids:
                pids.add(pid)
                process = message(3, integer(1, pid), text(6, names(line)))
                self._packet(_HEAD, message(_TRACK, integer(1, pid), process))
            self._thread(task, line.label, pid, tid)
            self._task[line.number] = task
        for task, line in enumerate(self._selection.iterate_lines(), start=1):
            self._write_waits(task, line.number, origin)
            self._phases(task, line.number, origin)
            for block in self._selection.trace(line.number):
                self._samples(task, block, origin)

    def _packet(self, *parts: bytes) -> None:
        self._file.write(message(1, *parts))

    def _intern(self, entries: list[bytes]) -> None:
        for at in range(0, len(entries), _BATCH):
            self._packet(self._flags, message(_INTERNED, *entries[at : at + _BATCH]))

    def _counter(self, number: int) -> list[bytes]:
        selection, row = self._selection, self._rows[number]
        unit = selection.units[row]
        kind = integer(3, _NANOSECONDS) if unit == "s" else text(4, unit) if unit else b""
        return [integer(1, number + 1), text(2, selection.names[row]), kind or integer(3, _COUNT)]

    def _thread(self, task: int, label: str, pid: int, tid: int) -> None:
        names = message(4, integer(1, pid), integer(2, tid), text(5, label))
        track = message(_TRACK, integer(1, _THREAD_TRACKS + task), integer(5, pid), names)
        self._packet(_HEAD, track)
        self._intern([message(_TASKS, integer(1, task), integer(2, pid), integer(3, tid))])
        if len(self._selection.db.waits):
            self._below(_WAIT_TRACKS + task, "waits", task)

    def _below(self, track: int, name: str, task: int) -> None:
        """Describe a track below a thread's."""
        parent = integer(_PARENT, _THREAD_TRACKS + task)
        described = message(_TRACK, integer(_UUID, track), text(_TRACK_NAME, name), parent)
        self._packet(_HEAD, described)

    def _event(self, time: int, event: bytes, flow: bytes = b"") -> None:
        self._packet(_HEAD, integer(_TIMESTAMP, time), message(_EVENT, event, flow))

    def _write_waits(self, task: int, line: int, origin: int) -> None:
        """Write the waits of trace line ``line`` as slices. Where an exported thread ended one, a
        flow leads from a moment on that thread's track to one at the end of the slice: it follows
        the begins of what it connects, and that of the wait is before the wake-up."""
        track, label = _WAIT_TRACKS + task, self._waits.label(line)
        end_of_slice = _on_track(_END, track)
        # Many waits are alike but for their time.
        alike: dict[tuple[str, int], tuple[bytes, bytes, bytes]] = {}
        for wait in self._waits.of_line(line):
            events = alike.get((wait.text, wait.waker))
            if events is None:
                of_waker = _WAIT_TRACKS + self._task.get(wait.waker, 0)
                events = alike[wait.text, wait.waker] = (
                    _on_track(_BEGIN, track, "wait", f"wait: {wait.text}"),
                    _on_track(_INSTANT, of_waker, "wait", f"wakes {label}"),
                    _on_track(_INSTANT, track, "wait", f"woken by {wait.text}"),
                )
            began, ended = wait.begin + origin, wait.end + origin
            self._event(began, events[0])
            if wait.waker >= 0:
                self._event(ended, events[1], fixed64(_FLOW, wait.number + 1))
                self._event(ended, events[2], fixed64(_LAST_OF_FLOW, wait.number + 1))
            self._event(ended, end_of_slice)

    def _phases(self, task: int, line: int, origin: int) -> None:
        """Write the phases of trace line ``line``: a track below its thread's, and slices on it."""
        phases, track = self._selection.phases, _PHASE_TRACKS + task
        for number, (begin, end, group) in enumerate(phases.of_line(line)):
            if not number:
                self._below(track, "phases", task)
            self._event(begin + origin, _on_track(_BEGIN, track, "phase", phases.names[group]))
            self._event(end + origin, _on_track(_END, track))

    def _intern_code(self) -> None:
        strings: list[bytes] = []

        def numbered(field: int, values: list[str]) -> dict[str, int]:
            numbers = Numbering(values, first=1)
            for value, number in numbers.items():
                data = value.encode("utf-8", "backslashreplace")
                strings.append(message(field, integer(1, number), message(2, data)))
            return numbers

        modules, frames = self._selection.db.modules, self._table.frames
        names = numbered(_FUNCTION_NAMES, frames.name)
        sources = numbered(_SOURCES, [file for file in frames.file if file])
        builds = numbered(_BUILD_IDS, [module.build_id for module in modules if module.build_id])
        parts = [[part for part in PurePath(m.path).parts if part != "/"] for m in modules]
        paths = numbered(_PATHS, [part for path in parts for part in path])
        self._intern(strings)
        self._intern([
            message(_MAPPINGS, integer(1, module.id),
                    integer(2, builds[module.build_id]) if module.build_id else b"",
                    *(integer(7, paths[part]) for part in path))
            for module, path in zip(modules, parts, strict=True)
        ])  # fmt: skip
        columns = zip(frames.name, frames.module.tolist(), frames.address.tolist(), frames.file,
                      frames.line.tolist(), strict=True)  # fmt: skip
        entries = []
        for number, (name, module, address, file, line) in enumerate(columns, start=1):
            place = integer(3, module) + integer(4, address) if module else b""
            source = (
                integer(5, sources[file]) + (integer(6, line) if line else b"") if file else b""
            )
            entries.append(
                message(_FRAMES, integer(1, number), integer(2, names[name]), place, source)
            )
            if len(entries) == _BATCH:
                self._intern(entries)
                entries = []
        self._intern(entries)

    def _samples(self, task: int, block: TraceBlock, origin: int) -> None:
        cost = block.cost[self._rows] * self._scale[:, None]
        whole = whole_numbers(cost.sum(axis=0))
        kept = np.flatnonzero(block.recorded)
        context: I64 = self._table.of_node[block.node[kept]].astype(np.int64)
        fresh = np.unique(context[~self._known[context]])
        self._known[fresh] = True
        self._intern([self._callstack(number) for number in fresh.tolist()])
        counter = cost[:, kept].argmax(axis=0) + 1
        head = self._flags + bytes([_TIMESTAMP << 3])
        thread = integer(_TASK_ID, task)
        # Samples of a context often differ only in their time.
        alike: dict[tuple[int, int, int], bytes] = {}
        columns = zip(context.tolist(), counter.tolist(), whole[kept].tolist(), strict=True)
        written = []
        for time, key in zip(encode_varints(block.time[kept] + origin), columns, strict=True):
            sample = alike.get(key)
            if sample is None:
                number, which, weight = key
                sample = alike[key] = message(
                    _STACK_SAMPLE, thread, integer(_CALLSTACK_ID, number + 1),
                    integer(_DESCRIPTOR_ID, which), integer(_WEIGHT, weight),
                )  # fmt: skip
            written.append(message(1, head, time, sample))
        self._file.write(b"".join(written))

    def _callstack(self, context: int) -> bytes:
        frames = [integer(2, frame + 1) for frame in reversed(self._path(context))]
        return message(_CALLSTACKS, integer(1, context + 1), *frames)


def _on_track(kind: int, track: int, category: str = "", name: str = "") -> bytes:
    """Fields of an event on a track; the end of a slice has no name."""
    named = text(_CATEGORY, category) + text(_NAME, name) if name else b""
    return integer(_TYPE, kind) + integer(_OF_TRACK, track) + named
