"""The rows of a database's SQLite tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcd.analysis.database import directory
from hpcd.analysis.database.schema import by_column
from hpcd.analysis.merge.publish.call_columns import CallTables
from hpcd.analysis.merge.publish.context_statistics import ContextStatistics
from hpcd.analysis.merge.publish.node_names import NamedTree
from hpcd.analysis.merge.unite.canonical_modules import CanonicalModule
from hpcd.analysis.merge.unite.clock_alignment import offsets_by_boot
from hpcd.analysis.merge.unite.line_order import (
    NO_NUMBER,
    LineOrder,
    ProcessTable,
    ThreadTable,
)
from hpcd.analysis.merge.unite.metric_cells import metric_table
from hpcd.analysis.trace.part_contents import MeasurementContents
from hpcd.analysis.trace.trace_lines import LineColumns
from hpcd.array_types import F64, I64
from hpcd.model.calls import CalledObject
from hpcd.model.cct import CCT
from hpcd.model.identity import Event
from hpcd.model.scope import ScopeKind

# Times beyond are no times of a thread, and no integers of SQLite's.
_LATEST_NS = 1 << 61
_AT_ONCE = 1 << 12


@dataclass(frozen=True, slots=True)
class ClockOffsets:
    """Realtime of the origin, and per measurement the offset of realtime from monotonic (ns)."""

    origin_ns: int
    offsets: list[int]

    @staticmethod
    def of(measurements: Sequence[MeasurementContents], windows: I64) -> ClockOffsets:
        """Return the offsets that put ``measurements``, which watched in these ``windows``
        (``int64[n, 2]``), on one clock by their clock pairs."""
        pairs: dict[str, list[I64]] = {}
        for contents in measurements:
            pairs.setdefault(_boot(contents), []).append(contents.clock_pairs)
        by_boot = offsets_by_boot(pairs)
        offsets = [by_boot[_boot(contents)] for contents in measurements]
        starts = [begin + at for begin, at in zip(windows[:, 0].tolist(), offsets, strict=True)]
        return ClockOffsets(min(starts, default=0), offsets)


def _boot(contents: MeasurementContents) -> str:
    return f"{contents.host.hostname}\0{contents.host.boot_id}"


@dataclass(frozen=True, slots=True)
class DatabaseContents:
    """Everything the SQLite tables are made of."""

    measurements: Sequence[MeasurementContents]
    modules: Sequence[CanonicalModule]
    events: Sequence[Event]
    clock: ClockOffsets
    order: LineOrder
    processes: ProcessTable
    threads: ThreadTable
    columns: LineColumns
    windows: I64

    def measured(self) -> dict[str, Iterator[tuple[Any, ...]]]:
        """Rows of the tables of hosts, processes and threads by table name, which come first."""
        hosts = sorted({_host(contents) for contents in self.measurements})
        texts = _SharedTexts()
        return {
            "meta": iter(
                [("format", directory.FORMAT), ("origin_ns", str(self.clock.origin_ns)),
                 ("version", str(directory.VERSION))]
            ),
            "host": ((n, *map(text, host[:4]), host[4]) for n, host in enumerate(hosts)),
            "measurement": self._measurements(hosts),
            "event": ((e.id, text(e.name), text(e.unit), e.scale, text(e.metric), e.frequency,
                       e.interval)
                      for e in self.events),
            "process_row": self._processes(texts),
            # Written after the rows that refer to them.
            "shared_text": texts.rows(),
            "thread": self._threads(),
        }  # fmt: skip

    def line_totals(self, totals: Sequence[F64]) -> dict[str, Iterator[tuple[Any, ...]]]:
        """Rows of the table of sums by trace line, of each metric ``float64[lines]``."""
        if by_column(len(totals)):
            return {"trace_line_total": _by_line(totals)}
        return {
            "trace_line_metric": (
                (metric, line, value)
                for metric, total in enumerate(totals)
                for line, value in enumerate(total.tolist())
            )
        }

    def contexts(
        self,
        tree: CCT,
        named: NamedTree,
        node_totals: Sequence[F64],
        inclusives: Sequence[F64],
        statistics: Sequence[ContextStatistics],
        calls: CallTables | None,
        objects: Sequence[tuple[int, CalledObject]],
    ) -> dict[str, Iterator[tuple[Any, ...]]]:
        """Rows of all other tables. Of each metric are given its sums by node, inclusive ones too,
        and its statistics; ``objects`` are those that calls and waits refer to, each with the
        measurement it is of.
        """
        metrics = metric_table(self.events)
        return {
            "module": (
                (m.id, str(m.kind), text(m.path), text(m.build_id), note)
                for m, note in zip(self.modules, named.module_notes, strict=True)
            ),
            "procedure": (
                (n, text(p.name), p.module or None, p.address, p.size, text(p.file) or None,
                 p.line or None, text(p.linkage_name) or None)
                for n, p in enumerate(named.procedures)
            ),
            "scope": _scopes(named),
            "cct": _nodes(tree, named),
            "metric": ((n, text(name), text(unit)) for n, (name, unit) in enumerate(metrics)),
            "node_metric": self._node_metrics(node_totals, inclusives),
            "node_statistic": self._statistics(statistics),
            **(call_rows(calls) if calls else {}),
            "called_object": _object_rows(objects),
        }  # fmt: skip

    def _measurements(self, hosts: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        host_of = {host: number for number, host in enumerate(hosts)}
        windows = self.windows.tolist()
        for number, contents in enumerate(self.measurements):
            shift = self.clock.offsets[number] - self.clock.origin_ns
            opened, closed = windows[number]
            yield (
                number, f"{contents.id:016x}", text(contents.path.name),
                host_of[_host(contents)], opened + shift, closed + shift,
                self.clock.offsets[number], contents.records, contents.nodes,
                contents.closed, dumps(contents.damage), dumps(contents.options),
                dumps(contents.summary),
            )  # fmt: skip

    def _processes(self, texts: _SharedTexts) -> Iterator[tuple[Any, ...]]:
        table = self.processes
        shift = self._shifts()[table.measurement]
        start = table.start_ns + shift
        columns = (table.name, table.exe, table.command, table.job)
        known = [np.full(len(column.texts), -1) for column in columns]
        for some in _stretches(len(start)):
            mine = [column.number[some] for column in columns]
            new = [numbers[own] < 0 for numbers, own in zip(known, mine, strict=True)]
            # Row by row, as they come.
            for row, column in np.argwhere(np.stack(new, axis=1)).tolist():
                place = mine[column][row]
                if known[column][place] < 0:
                    known[column][place] = texts.number(columns[column].texts[place])
            name, exe, command, job = (
                numbers[own].tolist() for numbers, own in zip(known, mine, strict=True)
            )
            yield from zip(
                range(some.start, some.stop), table.measurement[some].tolist(),
                table.pid[some].tolist(), table.parent_pid[some].tolist(), name, exe, command,
                table.uid[some].tolist(), start[some].tolist(), job,
                _numbers(table.rank[some]), _numbers(table.size[some]),
                _moments(table.end_ns[some], shift[some]), _numbers(table.cpu_before_ns[some]),
                _numbers(table.cpu_ns[some]), strict=True,
            )  # fmt: skip

    def _threads(self) -> Iterator[tuple[Any, ...]]:
        columns, threads, order = self.columns, self.threads, self.order
        shifts = self._shifts()
        names = np.array([text(name) for name in threads.name.texts], object)
        for some in _stretches(len(threads.tid)):
            shift = shifts[order.measurement[some]]
            first = columns.first[some.start : some.stop + 1]
            yield from zip(
                range(some.start, some.stop), order.process[some].tolist(),
                columns.tid[some].tolist(), names[threads.name.number[some]].tolist(),
                columns.start[some].tolist(), columns.end[some].tolist(), first[:-1].tolist(),
                np.diff(first).tolist(), order.source[some].tolist(),
                _moments(threads.attached_ns[some], shift),
                _moments(threads.asleep_since_ns[some], shift), strict=True,
            )  # fmt: skip

    def _shifts(self) -> I64:
        """Return ``int64[n]``: the ns from each measurement's monotonic times to the database's
        times."""
        return np.array([at - self.clock.origin_ns for at in self.clock.offsets], np.int64)

    def _node_metrics(
        self, totals: Sequence[F64], inclusives: Sequence[F64]
    ) -> Iterator[tuple[Any, ...]]:
        for number, (exclusive, inclusive) in enumerate(zip(totals, inclusives, strict=True)):
            nodes = np.flatnonzero(inclusive)
            rows = (nodes.tolist(), exclusive[nodes].tolist(), inclusive[nodes].tolist())
            for node, own, whole in zip(*rows, strict=True):
                yield number, node, own, whole

    def _statistics(self, statistics: Sequence[ContextStatistics]) -> Iterator[tuple[Any, ...]]:
        for number, spread in enumerate(statistics):
            nodes = np.flatnonzero(spread.lines)
            mean, stddev = spread.mean[nodes], spread.stddev[nodes]
            cv = np.divide(stddev, mean, out=np.zeros(len(nodes)), where=mean != 0)
            columns = (
                nodes, spread.lines[nodes], mean, spread.least[nodes], spread.most[nodes], stddev,
                cv, spread.least_line[nodes], spread.most_line[nodes],
            )  # fmt: skip
            for row in zip(*(column.tolist() for column in columns), strict=True):
                yield number, *row


def _nodes(tree: CCT, named: NamedTree) -> Iterator[tuple[Any, ...]]:
    columns = (
        np.arange(len(tree)), tree.parent, tree.depth(),
        named.procedure_of_node, named.module_of_node, named.offset_of_node,
    )  # fmt: skip
    scopes = (scope or None for scope in named.scope_of_node.tolist())
    return zip(*(column.tolist() for column in columns), scopes, strict=True)


def _scopes(named: NamedTree) -> Iterator[tuple[Any, ...]]:
    scopes = named.scopes
    columns = (scopes.parent, scopes.kind, scopes.procedure, scopes.line)
    rows = zip(*(column.tolist() for column in columns), scopes.name, scopes.file, strict=True)
    for number, (parent, kind, procedure, line, name, file) in enumerate(rows):
        if number:
            yield (
                number, parent or None, ScopeKind(kind).name.lower(), procedure,
                text(name) or None, text(file) or None, line or None,
            )  # fmt: skip


class _SharedTexts:
    """Texts that processes share, numbered, each once: all processes of a job have the same."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}

    def number(self, value: str | tuple[str, ...]) -> int:
        """The number of a name or a path, or of a command, which is stored as JSON."""
        stored = text(value) if isinstance(value, str) else dumps(value)
        return self._number.setdefault(stored, len(self._number))

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield (number, value) of all values that are there when the first row is requested."""
        yield from ((number, value) for value, number in self._number.items())


def _stretches(rows: int) -> Iterator[slice]:
    """Yield slices of ``rows`` rows: as Python's objects they take ten times the memory."""
    for first in range(0, rows, _AT_ONCE):
        yield slice(first, min(first + _AT_ONCE, rows))


def _by_line(totals: Sequence[F64]) -> Iterator[tuple[Any, ...]]:
    for some in _stretches(len(totals[0])):
        columns = (total[some].tolist() for total in totals)
        yield from zip(range(some.start, some.stop), *columns, strict=True)


def call_rows(calls: CallTables) -> dict[str, Iterator[tuple[Any, ...]]]:
    """Rows of the tables about recorded calls."""
    return {
        "called_function": (
            (f.id, text(f.name), text(f.library), text(f.group)) for f in calls.functions
        ),
        "called_value": (
            (f.id, number, text(value.name), str(value.kind), text(value.unit))
            for f in calls.functions
            for number, value in enumerate(f.values)
        ),
        "call_total": (row for row, _ in calls.totals()),
        "call_value_total": (value for _, values in calls.totals() for value in values),
    }


def _object_rows(objects: Sequence[tuple[int, CalledObject]]) -> Iterator[tuple[Any, ...]]:
    for measurement, called in objects:
        yield (
            called.id,
            measurement,
            text(called.kind),
            text(called.name),
            *(_detail(called.details.get(key)) for key in ("file_system", "mount", "peer")),
            dumps(called.details),
        )


def _detail(value: object) -> str | None:
    return text(value) if isinstance(value, str) else None


def _numbers(column: I64) -> list[int | None]:
    """``column`` with None where there is no number."""
    numbers: list[int | None] = column.tolist()
    for place in np.flatnonzero(column == NO_NUMBER).tolist():
        numbers[place] = None
    return numbers


def _moments(time: I64, shift: I64) -> list[int | None]:
    """Return ``time`` shifted; None for a missing or impossible time."""
    return _numbers(np.where(np.abs(time) >= _LATEST_NS, NO_NUMBER, time + shift))


def _host(contents: MeasurementContents) -> tuple[str, str, str, str, int]:
    host = contents.host
    return (host.hostname, host.boot_id, host.kernel, host.machine, host.cpus)


# Names come from the recorded programs: none may control a terminal on which they are printed.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def text(value: str) -> str:
    """``value`` without control characters and bytes of file names that are no characters."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", value)


dumps = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
"""JSON of plain data, the same for equal data."""
