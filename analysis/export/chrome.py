"""Chrome's trace events as JSON ("Trace Event Format"): nested slices for each thread.

A slice is a stretch of time in which records one after another have a frame on their call path: it
begins at the first of them and ends at the next record without, or where the thread ends.
``args`` of a slice has what its frame itself cost; a wait is a slice of its own, of the length it
had. So the ``args`` of all slices add up to each metric's total. Times are whole µs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np

from hpcd.analysis.export.context_table import Contexts, Detail
from hpcd.analysis.export.export_selection import Selection, TraceBlock
from hpcd.analysis.export.process_ids import ProcessIds
from hpcd.analysis.export.text import as_json, json_names, utf8
from hpcd.analysis.trace.trace_lines import Line
from hpcd.array_types import F64, I64, U32, Mask


def write(selection: Selection, path: Path) -> None:
    """Write ``selection`` to the file ``path``."""
    table = selection.contexts(Detail.PROCEDURE)
    pids = ProcessIds(selection)
    with path.open("w", encoding="ascii", newline="\n") as file:
        units = dict(zip(selection.names, selection.units, strict=True))
        about = {"exporter": "hpcd", "units": units, "origin_ns": selection.db.origin_ns}
        file.write('{"displayTimeUnit":"ns","otherData":' + as_json(about) + ',"traceEvents":[')
        slices = _Slices(file, selection, table)
        for line in selection.each_line():
            slices.begin(line, *pids(line))
            for block in selection.trace(line.number):
                slices.add(block)
            slices.finish(min(line.end, selection.span[1]))
        file.write("\n]}\n")


class _Slices:
    """Makes slices of the records of one line after another."""

    def __init__(self, file: TextIO, selection: Selection, table: Contexts) -> None:
        self._file = file
        self._table = table
        self._keys = json_names(selection.names)
        self._units = selection.units
        self._wait_names = [f'"[{name}]"' for name in map(utf8, selection.names)]
        self._names = json_names(table.frames.name)
        self._parent, self._frame = table.parent.tolist(), table.frame.tolist()
        self._depth = table.depth().tolist()
        self._events = 0
        self._place = ""
        # The slices that are open, outermost first: context, begin, own costs; and the wait within:
        # begin, end, cost.
        self._open: list[tuple[int, int, F64]] = []
        self._wait: tuple[int, int, F64] | None = None
        self._last = 0

    def begin(self, line: Line, pid: int, tid: int) -> None:
        """Go on with another line."""
        self._place = f'"pid":{pid},"tid":{tid}'
        self._last = line.start
        process = f"rank {line.rank} " if line.rank is not None else ""
        names = [("process_name", f"{process}{line.process} {line.pid} on {line.host}"),
                 ("thread_name", line.label)]  # fmt: skip
        for kind, name in names:
            name = as_json(utf8(name))
            self._event(f'{{"ph":"M","name":"{kind}",{self._place},"args":{{"name":{name}}}}}')

    def add(self, block: TraceBlock) -> None:
        """Records that follow those there were."""
        for context, time, cost, duration in _stretches(block, self._table):
            self._go_to(context, time)
            if duration:
                self._wait = (time, time + duration, cost)
            elif self._open:
                self._open[-1][2][:] += cost

    def finish(self, end: int) -> None:
        """End the line at ``end`` (ns), or 1 µs after its last record."""
        self._go_to(0, max(end, self._last + 1000))

    def _go_to(self, context: int, time: int) -> None:
        self._last = time
        if self._wait is not None:
            begin, end, cost = self._wait
            self._write(self._wait_name(cost), begin, min(end, time), cost, ',"cat":"wait"')
            self._wait = None
        entered = []
        depth, kept = self._depth, len(self._open)
        while depth[context] > kept:
            entered.append(context)
            context = self._parent[context]
        kept = depth[context]
        while context and self._open[kept - 1][0] != context:
            kept -= 1
            entered.append(context)
            context = self._parent[context]
        # Of slices of one length readers take the first for the outer one.
        for left, begin, cost in self._open[kept:]:
            self._write(self._names[self._frame[left]], begin, time, cost)
        del self._open[kept:]
        for inner in reversed(entered):
            self._open.append((inner, time, np.zeros(len(self._keys))))

    def _wait_name(self, cost: F64) -> str:
        timed = [n for n, unit in enumerate(self._units) if unit == "s" and cost[n]]
        return self._wait_names[timed[0]] if timed else '"[wait]"'

    def _write(self, name: str, begin: int, end: int, cost: F64, more: str = "") -> None:
        args = ",".join(
            f"{key}:{value:.15g}"
            for key, value in zip(self._keys, cost.tolist(), strict=True) if value
        )  # fmt: skip
        more += f',"args":{{{args}}}' if args else ""
        # Whole µs, as records have them: sums of fractions would not be where others begin.
        start = begin // 1000
        self._event(
            f'{{"ph":"X","name":{name},{self._place},"ts":{start},'
            f'"dur":{end // 1000 - start}{more}}}'
        )

    def _event(self, text: str) -> None:
        self._file.write((",\n" if self._events else "\n") + text)
        self._events += 1


def _stretches(block: TraceBlock, table: Contexts) -> Iterator[tuple[int, int, F64, int]]:
    """Context, begin, cost, and duration of waits, of records that follow one another in a
    context."""
    context: U32 = table.of_node[block.node]
    waits: Mask = block.duration > 0
    new = np.ones(len(context), bool)
    new[1:] = (context[1:] != context[:-1]) | waits[1:] | waits[:-1]
    starts: I64 = np.flatnonzero(new)
    cost = np.add.reduceat(block.cost, starts, axis=1).T
    yield from zip(
        context[starts].tolist(), block.time[starts].tolist(), cost,
        block.duration[starts].tolist(), strict=True,
    )  # fmt: skip
