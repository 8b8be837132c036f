"""Perfetto's trace: a StackSample for each record, with its weight (``perfetto_trace.proto``).

The primary weight of a sample is that of its record in the record's metric, times in ns, whose
descriptor names the metric: so waits carry the time they lasted. Times are those of the day. Frames
are interned in the beginning, call paths where they are first used.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import BinaryIO

import numpy as np

from hpcd.analysis.database.metrics import SAMPLES
from hpcd.array_types import I64, Mask
from hpcd.interchange.context_table import Detail
from hpcd.interchange.export_selection import ExportSelection, ProcessIds
from hpcd.interchange.perfetto_phases import phase_packets
from hpcd.interchange.protobuf import encode_varints, integer, message, text
from hpcd.interchange.trace_blocks import TraceBlock

# Fields of TracePacket.
_CLOCK_SNAPSHOT, _TIMESTAMP, _SEQUENCE, _INTERNED, _FLAGS = 6, 8, 10, 12, 13
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
# Tracks of threads, above all pids, which are the processes' own identifiers.
_THREAD_TRACKS = 1 << 32
# What is interned in one packet: some 100 kB.
_BATCH = 1000


def write(selection: ExportSelection, path: Path) -> None:
    """Write ``selection`` to the file ``path``."""
    with path.open("wb") as file:
        _Writer(file, selection).write()


class _Writer:
    """Writes one trace, as one sequence of packets."""

    def __init__(self, file: BinaryIO, selection: ExportSelection) -> None:
        self._file = file
        self._selection = selection
        self._table = selection.contexts(Detail.PLACE)
        names = selection.names
        # Each record adds to one metric besides samples; those count where there is no other.
        self._rows = [row for row, name in enumerate(names) if name != SAMPLES] or [0]
        self._scale = np.array([1e9 if selection.units[row] == "s" else 1.0 for row in self._rows])
        self._known: Mask = np.zeros(len(self._table), bool)
        self._parent = self._table.parent.tolist()
        self._frame = self._table.frame.tolist()
        self._flags = integer(_SEQUENCE, 1) + integer(_FLAGS, _NEEDS_STATE)

    def write(self) -> None:
        """All of it."""
        origin = self._selection.db.origin_ns
        clocks = [
            message(1, integer(1, clock), integer(2, origin)) for clock in (_BOOTTIME, _REALTIME)
        ]
        self._packet(integer(_SEQUENCE, 1), integer(_CLEARED, 1), integer(_FLAGS, 1),
                     message(_CLOCK_SNAPSHOT, *clocks))  # fmt: skip
        self._intern_code()
        self._intern([message(_COUNTERS, *self._counter(n)) for n in range(len(self._rows))])
        ids = ProcessIds(self._selection)
        pids: set[int] = set()
        for task, line in enumerate(self._selection.iterate_lines(), start=1):
            pid, tid = ids(line)
            if pid not in pids:
                pids.add(pid)
                name = f"rank {line.rank} {line.process}" if line.rank is not None else line.process
                process = message(3, integer(1, pid), text(6, name))
                self._packet(integer(_SEQUENCE, 1), message(_TRACK, integer(1, pid), process))
            self._thread(task, line.label, pid, tid)
            self._file.writelines(
                phase_packets(
                    self._selection.phases, line.number, task, _THREAD_TRACKS + task, origin
                )
            )
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
        self._packet(integer(_SEQUENCE, 1), track)
        self._intern([message(_TASKS, integer(1, task), integer(2, pid), integer(3, tid))])

    def _intern_code(self) -> None:
        """Load modules, names, files and frames."""
        strings: list[bytes] = []

        def numbered(field: int, values: list[str]) -> dict[str, int]:
            numbers = {value: n for n, value in enumerate(dict.fromkeys(values), start=1)}
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
        whole = np.rint(cost.sum(axis=0)).astype(np.int64)
        kept = np.flatnonzero(block.recorded)
        context: I64 = self._table.of_node[block.node[kept]].astype(np.int64)
        fresh = np.unique(context[~self._known[context]])
        self._known[fresh] = True
        self._intern([self._callstack(number) for number in fresh.tolist()])
        counter = cost[:, kept].argmax(axis=0) + 1
        head = self._flags + bytes([_TIMESTAMP << 3])
        who = integer(_TASK_ID, task)
        # Samples of a context are often alike but for their time.
        alike: dict[tuple[int, int, int], bytes] = {}
        columns = zip(context.tolist(), counter.tolist(), whole[kept].tolist(), strict=True)
        written = []
        for time, key in zip(encode_varints(block.time[kept] + origin), columns, strict=True):
            sample = alike.get(key)
            if sample is None:
                number, which, weight = key
                sample = alike[key] = message(
                    _STACK_SAMPLE, who, integer(_CALLSTACK_ID, number + 1),
                    integer(_DESCRIPTOR_ID, which), integer(_WEIGHT, weight),
                )  # fmt: skip
            written.append(message(1, head, time, sample))
        self._file.write(b"".join(written))

    def _callstack(self, context: int) -> bytes:
        number = context
        frames = []
        while context:
            frames.append(integer(2, self._frame[context] + 1))
            context = self._parent[context]
        return message(_CALLSTACKS, integer(1, number + 1), *(reversed(frames or [integer(2, 1)])))
