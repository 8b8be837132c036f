"""Building a measurement of another tool's recording: its records, events and recorded calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hpcd.array_types import U32, U64
from hpcd.errors import FormatError
from hpcd.interchange.input.imported_threads import ImportedThreads
from hpcd.interchange.input.imported_tree import ImportedTree
from hpcd.measurement import codec
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.record_columns import by_line_and_time
from hpcd.measurement.summary import SampleCounts, Summary
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.calls import MAX_VALUES, CalledFunction, CalledObject, CallValue, Group
from hpcd.model.identity import Event, Host

_FLUSH_RECORDS = 1 << 18
_MAX_EVENTS = 1 << 10
_MAX_VALUE = 1 << 56
_MAX_TIME_NS = 1 << 59
# The largest step between times in a measurement: 203 days.
_MAX_SPAN_NS = (1 << 44) * 1000


class RecordingBuilder:
    """Writes the measurement ``output`` (new), recorded on ``host``.

    ``origin`` describes the source in the measurement's option ``imported``. Raises StorageError as
    the writer does, and FormatError naming ``source`` for impossible contents: numbers out of
    range, more names than fit.
    """

    def __init__(self, output: Path, host: Host, origin: dict[str, object], source: str) -> None:
        self.writer = MeasurementWriter(output, host, options={"imported": origin})
        self.source = source
        self.tree = ImportedTree(self.writer, source)
        self.threads = ImportedThreads(self.writer, source)
        self.dropped: Counter[str] = Counter()
        """Samples that could not be read, by reason."""
        self.left_out: Counter[str] = Counter()
        """Other things than samples that were not imported, by kind."""
        self.notes: list[str] = []
        """Sentences for the user on how the file was read."""
        self.taken = 0
        """Number of samples that the records represent."""
        self._events: dict[str, int] = {}
        self._clock = ""
        self._records: tuple[list[int], ...] = ([], [], [], [], [])
        self._calls: list[tuple[int, ...]] = []
        self._called_functions = self._called_objects = self._called = 0
        self._first_ns, self._last_ns = _MAX_TIME_NS, 0

    def damaged(self, what: str) -> FormatError:
        """Return an error that names the damage."""
        return FormatError(f"{self.source}: damaged: {what}")

    def event(
        self, name: str, unit: str, scale: float, metric: str, frequency: int = 0,
        *, interval: bool = False,
    ) -> int:  # fmt: skip
        """Return the number of an event, announced when it is new."""
        number = self._events.get(name)
        if number is None:
            number = self._events[name] = len(self._events)
            if number >= _MAX_EVENTS:
                raise FormatError(f"{self.source}: more than {_MAX_EVENTS:,} events")
            self.writer.add_event(Event(number, name, unit, scale, metric, frequency, interval))
        return number

    def first_clock(self, name: str) -> bool:
        """Whether ``name`` is the first clock of the recording: CPU time counts once."""
        self._clock = self._clock or name
        return self._clock == name

    def add(self, line: int, time_ns: int, node: int, event: int, value: int) -> None:
        """Add a record."""
        if not (0 <= time_ns < _MAX_TIME_NS and 0 <= value < _MAX_VALUE):
            number = f"time {time_ns} ns" if 0 <= value < _MAX_VALUE else f"value {value}"
            raise FormatError(f"{self.source}: a sample's {number} is out of range")
        lines, times, nodes, events, values = self._records
        lines.append(line)
        times.append(time_ns)
        nodes.append(node)
        events.append(event)
        values.append(value)
        if len(lines) >= _FLUSH_RECORDS:
            self._flush()

    def called_function(self, name: str, group: Group, values: tuple[CallValue, ...]) -> int:
        """Announce a recorded function; returns its number."""
        number = self._called_functions
        self._called_functions += 1
        self.writer.add_function(CalledFunction(number, name, "", group, values))
        return number

    def called_object(self, kind: str, name: str, details: Mapping[str, object]) -> int:
        """Announce an object that calls refer to; returns its number."""
        self._called_objects += 1
        self.writer.add_object(CalledObject(self._called_objects, kind, name, dict(details)))
        return self._called_objects

    def add_call(
        self, line: int, begin_ns: int, length_ns: int, node: int, function: int, weight: int,
        values: tuple[int, ...],
    ) -> None:  # fmt: skip
        """Add a call of a recorded function, which represents ``weight`` calls."""
        if not (0 <= begin_ns < _MAX_TIME_NS and 0 <= length_ns < _MAX_SPAN_NS and weight > 0):
            raise FormatError(f"{self.source}: a call's time is out of range")
        if any(not 0 <= value < 1 << 64 for value in values):
            raise FormatError(f"{self.source}: a call's values are out of range")
        padding = (0,) * (MAX_VALUES - len(values))
        self._calls.append((line, begin_ns, length_ns, node, function, weight, *values, *padding))
        if len(self._calls) >= _FLUSH_RECORDS:
            self._flush()

    def _flush(self) -> None:
        self.tree.write_nodes()
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

    def _note_times(self, line: U32, time: U64) -> None:
        """Note the times of records, and their number, with their threads."""
        self._last_ns = max(self._last_ns, int(time.max()))
        order = by_line_and_time(line, time)
        numbers, first, counts = np.unique(line[order], return_index=True, return_counts=True)
        times = time[order]
        rows = (numbers, times[first], times[first + counts - 1], counts)
        for number, begin, end, count in zip(*(row.tolist() for row in rows), strict=True):
            self.threads.extend(number, begin, end, count)

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
            begin, end = int(time[mine].min()), int((time + length)[mine].max())
            self.threads.extend(int(number), begin, end)

    def close(self, realtime_ns: int | None, began_ns: int | None = None) -> int:
        """Write the rest; returns the number of records.

        ``realtime_ns`` is when the last record was taken, None if unknown; ``began_ns`` when it was
        time 0, which is preferred; a time that no clock shows counts as unknown. Raises FormatError
        when there are no records.
        """
        self._flush()
        if not (self.writer.records_written or self._called):
            raise FormatError(f"{self.source}: no samples in it")
        if began_ns:
            realtime_ns = began_ns + self._last_ns
        if (
            realtime_ns is not None
            and self._last_ns < min(realtime_ns, codec.MONOTONIC_LIMIT)
            and realtime_ns < codec.REALTIME_LIMIT
        ):
            self.writer.add_clock_pair(self._last_ns, realtime_ns)
        self.threads.finish()
        taken = self.taken or self.writer.records_written
        samples = SampleCounts(taken=taken, dropped=dict(self.dropped))
        self.writer.close(Summary(samples=samples))
        return self.writer.records_written
