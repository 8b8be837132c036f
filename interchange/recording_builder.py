"""Building a measurement of samples whose frames have names instead of addresses.

A frame is a module and a name. Its offset in the module is 40 bits of the name's hash, so that
equal names are equal frames in every measurement, and trees of several imports unite as those of
recordings do. That two of 10,000 names of a module share a hash happens once in 20,000 imports;
within one measurement the second then takes the next offset that is free.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hpcd.array_types import U32, U64
from hpcd.errors import FormatError
from hpcd.interchange.names import readable
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.summary import SampleCounts, Summary
from hpcd.measurement.writer import MeasurementWriter, by_line_and_time
from hpcd.model import frame as frames
from hpcd.model.calls import MAX_VALUES, CalledFunction, CalledObject, CallValue, Group
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread

NO_MODULE = "[imported]"
"""The module of frames that come with a name only."""
_FLUSH_RECORDS = 1 << 18
# A chunk of symbols is JSON, at most three times as long, and must not exceed 64 MiB.
_FLUSH_NAME_BYTES = 8 << 20
_MAX_NAME_BYTES = 1 << 30
_MAX_NODES = 1 << 24
_MAX_LINES = 1 << 18
_MAX_EVENTS = 1 << 10
_MAX_VALUE = 1 << 56
# As the recorder keeps them.
_MAX_DEPTH = 1 << 14
_OUTERMOST = 256
_MAX_TIME_NS = 1 << 59
# What the steps between times in a measurement hold: 203 days.
_MAX_SPAN_NS = (1 << 44) * 1000


class RecordingBuilder:
    """Writes the measurement ``output`` (new), recorded on ``host``.

    ``origin`` says where it comes from; it is the option ``imported`` of the measurement.
    Raises :class:`StorageError` as the writer does, and :class:`FormatError` naming ``source``
    for what no recording has: numbers out of range, more names than fit.
    """

    def __init__(self, output: Path, host: Host, origin: dict[str, object], source: str) -> None:
        self.writer = MeasurementWriter(output, host, options={"imported": origin})
        self.source = source
        self.dropped: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        """What else than samples was not taken in."""
        self.taken = 0
        """Samples the records stand for."""
        self.default_name = "imported"
        """What a thread is called that the file does not name."""
        self.job = ""
        self.rank: int | None = None
        self.size: int | None = None
        self._modules: dict[tuple[str, bool], int] = {}
        self._frames: list[int] = []
        self._frame_of: dict[tuple[int, str], int] = {}
        self._special: dict[int, int] = {}
        self._offsets: set[int] = set()
        self._name_bytes = self._name_bytes_unflushed = 0
        self._children: dict[int, int] = {}
        self._nodes = 1
        self._new_parents: list[int] = []
        self._new_frames: list[int] = []
        self._processes: dict[int, Process] = {}
        self._process_names: dict[int, str] = {}
        self._ranks: dict[int, int] = {}
        self._lines: dict[tuple[int, int, int], int] = {}
        self._threads: list[Thread] = []
        self._events: dict[str, int] = {}
        self._clock = ""
        self._records: tuple[list[int], ...] = ([], [], [], [], [])
        self._calls: list[tuple[int, ...]] = []
        self._called_functions = self._called_objects = self._called = 0
        self._samples_of: Counter[int] = Counter()
        self._first_ns, self._last_ns = _MAX_TIME_NS, 0

    # --- places ---

    def module(self, path: bytes | str, *, kernel: bool = False) -> int:
        """The number of the load module at ``path``."""
        key = readable(path), kernel
        number = self._modules.get(key)
        if number is None:
            number = len(self._modules) + 1
            if number > frames.MODULE_MAX:
                raise FormatError(f"{self.source}: more than {frames.MODULE_MAX:,} load modules")
            self._modules[key] = number
            kind = ModuleKind.NAMED_KERNEL if kernel else ModuleKind.NAMED
            self.writer.add_module(Module(number, kind, key[0]))
        return number

    def frame(self, module: int, name: bytes | str) -> int:
        """The number of the frame of the procedure ``name`` in ``module``."""
        text = readable(name)
        number = self._frame_of.get((module, text))
        if number is not None:
            return number
        encoded = text.encode("utf-8", "surrogatepass")
        self._name_bytes += len(encoded)
        self._name_bytes_unflushed += len(encoded)
        if self._name_bytes > _MAX_NAME_BYTES:
            raise FormatError(f"{self.source}: names exceed {_MAX_NAME_BYTES >> 20} MiB")
        offset = int.from_bytes(hashlib.blake2b(encoded, digest_size=5).digest(), "little")
        while (place := frames.module_frame(module, offset)) in self._offsets:
            offset += 1
        self._offsets.add(place)
        self.writer.add_symbols(module, [(offset & frames.OFFSET_MASK, 1, text)])
        number = len(self._frames)
        self._frames.append(place)
        self._frame_of[module, text] = number
        if self._name_bytes_unflushed > _FLUSH_NAME_BYTES:
            self.flush()
        return number

    def unknown(self) -> int:
        """The number of a frame that lies in no module."""
        return self._special_frame(frames.SPECIAL)

    def node(self, path: Sequence[int]) -> int:
        """The node of a call path of frame numbers, the outermost first."""
        if len(path) > _MAX_DEPTH:
            inner = _MAX_DEPTH - _OUTERMOST
            left_out = self._special_frame(frames.omitted_frames(len(path) - _MAX_DEPTH))
            path = [*path[:_OUTERMOST], left_out, *path[-inner:]]
        if not path:
            path = [self.frame(self.module(NO_MODULE), "[no call path]")]
        children = self._children
        node = 0
        for frame in path:
            key = node << 32 | frame
            child = children.get(key)
            if child is None:
                child = self._new_node(key, node, frame)
            node = child
        return node

    def child(self, parent: int, frame: int) -> int:
        """The node of a frame number called from the node ``parent``, 0 being the root."""
        key = parent << 32 | frame
        return self._children.get(key) or self._new_node(key, parent, frame)

    def _new_node(self, key: int, parent: int, frame: int) -> int:
        number = self._nodes
        if number > _MAX_NODES:
            raise FormatError(f"{self.source}: more than {_MAX_NODES:,} calling contexts")
        self._children[key] = number
        self._nodes += 1
        self._new_parents.append(parent)
        self._new_frames.append(self._frames[frame])
        return number

    def _special_frame(self, value: int) -> int:
        number = self._special.get(value)
        if number is None:
            number = self._special[value] = len(self._frames)
            self._frames.append(value)
        return number

    # --- who ---

    def event(
        self, name: str, unit: str, scale: float, metric: str, frequency: int = 0,
        *, interval: bool = False,
    ) -> int:  # fmt: skip
        """The number of an event, announced when it is new."""
        number = self._events.get(name)
        if number is None:
            number = self._events[name] = len(self._events)
            if number >= _MAX_EVENTS:
                raise FormatError(f"{self.source}: more than {_MAX_EVENTS:,} events")
            self.writer.add_event(Event(number, name, unit, scale, metric, frequency, interval))
        return number

    def first_clock(self, name: str) -> bool:
        """Whether ``name`` is the clock that was asked about first: CPU time counts once."""
        self._clock = self._clock or name
        return self._clock == name

    def line(self, pid: int, tid: int, name: bytes | str, cpu: int = 0) -> int:
        """The trace line of a thread; ``cpu`` tells apart threads that share a number, as idle
        ones do."""
        key = pid, tid, cpu
        number = self._lines.get(key)
        if number is not None:
            return number
        number = len(self._lines)
        if number >= _MAX_LINES:
            raise FormatError(f"{self.source}: more than {_MAX_LINES:,} threads")
        if not -1 <= pid < 1 << 31 or not -1 <= tid < 1 << 63:
            raise FormatError(f"{self.source}: no process has the number {max(pid, tid)}")
        text = readable(name)
        process = self._processes.get(pid)
        if process is None:
            process = Process(len(self._processes), pid, 0, text, "", (), 0, 0, self.job)
            self._processes[pid] = process
            self.writer.add_process(process)
        self._lines[key] = number
        thread = Thread(number, process.id, tid, text, 0)
        self._threads.append(thread)
        self.writer.add_thread(thread)
        return number

    @property
    def line_count(self) -> int:
        """How many trace lines there are."""
        return len(self._lines)

    def name_process(self, pid: int, name: bytes | str) -> None:
        """Name a process by another thing than its main thread."""
        self._process_names[pid] = readable(name)

    def set_rank(self, pid: int, rank: int) -> None:
        """Say which rank a process is."""
        self._ranks[pid] = rank

    def rename(self, line: int, name: bytes | str) -> None:
        """Give a thread the name it had last, and its process that of its main thread."""
        thread = self._threads[line]
        self._threads[line] = replace(thread, name=readable(name))

    # --- records ---

    def add(self, line: int, time_ns: int, node: int, event: int, value: int) -> None:
        """Add a record."""
        if not (0 <= time_ns < _MAX_TIME_NS and 0 <= value < _MAX_VALUE):
            what = f"time {time_ns} ns" if 0 <= value < _MAX_VALUE else f"value {value}"
            raise FormatError(f"{self.source}: a sample's {what} is out of range")
        lines, times, nodes, events, values = self._records
        lines.append(line)
        times.append(time_ns)
        nodes.append(node)
        events.append(event)
        values.append(value)
        if len(lines) >= _FLUSH_RECORDS:
            self.flush()

    def called_function(self, name: str, group: Group, values: tuple[CallValue, ...]) -> int:
        """The number of a recorded function, which is announced."""
        number = self._called_functions
        self._called_functions += 1
        self.writer.add_function(CalledFunction(number, name, "", group, values))
        return number

    def called_object(self, kind: str, name: str, details: Mapping[str, object]) -> int:
        """The number of what calls refer to, which is announced."""
        self._called_objects += 1
        self.writer.add_object(CalledObject(self._called_objects, kind, name, dict(details)))
        return self._called_objects

    def add_call(
        self, line: int, begin_ns: int, length_ns: int, node: int, function: int, weight: int,
        values: tuple[int, ...],
    ) -> None:  # fmt: skip
        """Add a call of a recorded function, which stands for ``weight`` calls."""
        if not (0 <= begin_ns < _MAX_TIME_NS and 0 <= length_ns < _MAX_SPAN_NS and weight > 0):
            raise FormatError(f"{self.source}: a call's time is out of range")
        if any(not 0 <= value < 1 << 64 for value in values):
            raise FormatError(f"{self.source}: a call's values are out of range")
        padding = (0,) * (MAX_VALUES - len(values))
        self._calls.append((line, begin_ns, length_ns, node, function, weight, *values, *padding))
        if len(self._calls) >= _FLUSH_RECORDS:
            self.flush()

    def _write_calls(self) -> None:
        rows = np.array(self._calls, np.uint64)
        self._called += len(self._calls)
        self._calls = []
        line, time, length, node, function, weight = rows[:, :6].T
        calls = Calls(
            line.astype(np.uint32), time, length, node.astype(np.uint32),
            function.astype(np.uint16), weight.astype(np.uint32), rows[:, 6:],
        )  # fmt: skip
        self.writer.add_calls(calls.in_order())
        for number in np.unique(line).tolist():
            mine = line == number
            self.alive(int(number), int(time[mine].min()), int((time + length)[mine].max()))

    def flush(self) -> None:
        """Write what has come."""
        if self._new_parents:
            self.writer.add_nodes(
                np.array(self._new_parents, np.uint32), np.array(self._new_frames, np.uint64)
            )
            self._new_parents, self._new_frames = [], []
        lines, times, nodes, events, values = self._records
        if lines:
            line, time = np.array(lines, np.uint32), np.array(times, np.uint64)
            self._first_ns = min(self._first_ns, int(time.min()))
            if int(time.max()) - self._first_ns >= _MAX_SPAN_NS:
                raise FormatError(f"{self.source}: samples are more than 203 days apart")
            self.writer.add_records(
                line, time, np.array(nodes, np.uint32), np.array(events, np.uint16),
                np.array(values, np.uint64),
            )  # fmt: skip
            self._note_times(line, time)
            self._records = ([], [], [], [], [])
        if self._calls:
            self._write_calls()
        self.writer.flush()
        self._name_bytes_unflushed = 0

    def _note_times(self, line: U32, time: U64) -> None:
        self._last_ns = max(self._last_ns, int(time.max()))
        order = by_line_and_time(line, time)
        numbers, first, counts = np.unique(line[order], return_index=True, return_counts=True)
        times = time[order]
        rows = (numbers, times[first], times[first + counts - 1], counts)
        for number, begin, end, count in zip(*(row.tolist() for row in rows), strict=True):
            self.alive(number, begin, end)
            self._samples_of[self._threads[number].process] += count

    def alive(self, line: int, begin_ns: int, end_ns: int) -> None:
        """Say that a thread was there from ``begin_ns`` to ``end_ns`` at least."""
        thread = self._threads[line]
        if thread.end_ns is not None:
            begin_ns, end_ns = min(begin_ns, thread.start_ns), max(end_ns, thread.end_ns)
        self._threads[line] = replace(thread, start_ns=begin_ns, end_ns=end_ns)

    def close(self, realtime_ns: int | None, began_ns: int | None = None) -> int:
        """Write the rest; returns the number of records.

        ``realtime_ns`` is when the last record was taken, None when nobody knows; ``began_ns`` when
        it was time 0, which is better known where it is. Raises :class:`FormatError` when there are
        no records.
        """
        self.flush()
        if not (self.writer.records_written or self._called):
            raise FormatError(f"{self.source}: no samples in it")
        if began_ns:
            realtime_ns = began_ns + self._last_ns
        if realtime_ns is not None and realtime_ns > self._last_ns:
            self.writer.add_clock_pair(self._last_ns, realtime_ns)
        self._finish_processes(self._threads)
        for thread in self._threads:
            self.writer.add_thread(thread)
        taken = self.taken or self.writer.records_written
        samples = SampleCounts(taken=taken, dropped=dict(self.dropped))
        self.writer.close(Summary(samples=samples))
        return self.writer.records_written

    def _finish_processes(self, threads: Iterable[Thread]) -> None:
        """Names of main threads, and the rank of the process that has most samples."""
        main = {(thread.process, thread.tid): thread.name for thread in threads}
        busiest = next((one for one, _ in self._samples_of.most_common(1)), -1)
        for process in self._processes.values():
            name = main.get((process.id, process.pid), process.name)
            name = self._process_names.get(process.pid, name)
            rank = self._ranks.get(process.pid)
            if rank is None and process.id == busiest:
                rank = self.rank
            size = None if rank is None else self.size
            self.writer.add_process(replace(process, name=name, rank=rank, size=size))
