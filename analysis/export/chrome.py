"""Chrome's trace events as JSON ("Trace Event Format"): nested slices for each thread.

A slice is a stretch of time in which records one after another have a frame on their call path: it
begins at the first of them and ends at the next record without, or where the thread ends.
``args`` of a slice has what its frame itself cost; a wait is a slice of its own, of the length it
had. So the ``args`` of all slices add up to each metric's total.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np

from hpcd.analysis.export.context_table import Contexts, Detail
from hpcd.analysis.export.export_selection import Selection, TraceBlock
from hpcd.analysis.export.text import as_json, json_names, utf8
from hpcd.analysis.trace.trace_lines import Line
from hpcd.array_types import F64, I64, U32, Mask


def write(selection: Selection, path: Path) -> None:
    """Write ``selection`` to the file ``path``."""
    table = selection.contexts(Detail.PROCEDURE)
    pids = _ProcessIds(selection)
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


class _ProcessIds:
    """Numbers that tell processes and threads apart, even where several hosts have the same."""

    def __init__(self, selection: Selection) -> None:
        lines = selection.db.lines
        chosen = selection.lines
        processes = np.unique(lines.process[chosen])
        pid_of = dict(zip(lines.process[chosen].tolist(), lines.pid[chosen].tolist(), strict=True))
        self._pids_differ = len(set(pid_of.values())) == len(processes)
        both = np.stack([lines.process[chosen].astype(np.int64), lines.tid[chosen]])
        self._tids_differ = np.unique(both, axis=1).shape[1] == len(chosen)
        self._process = lines.process

    def __call__(self, line: Line) -> tuple[int, int]:
        """The pid and the tid of a line: the real ones where they are unique."""
        pid = line.pid if self._pids_differ else int(self._process[line.number]) + 1
        return pid, line.tid if self._tids_differ else line.number + 1


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
        # The slices that are open, outermost first: context, begin (ns), own costs.
        self._open: list[tuple[int, int, F64]] = []

    def begin(self, line: Line, pid: int, tid: int) -> None:
        """Go on with another line."""
        self._place = f'"pid":{pid},"tid":{tid}'
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
                self._write(self._wait_name(cost), time, duration, cost, category="wait")
            elif self._open:
                self._open[-1][2][:] += cost

    def finish(self, end: int) -> None:
        """End the line at ``end`` (ns)."""
        self._go_to(0, end)

    def _go_to(self, context: int, time: int) -> None:
        entered = []
        depth = self._depth
        while depth[context] > len(self._open):
            entered.append(context)
            context = self._parent[context]
        while len(self._open) > depth[context]:
            self._close(time)
        while context and self._open[-1][0] != context:
            self._close(time)
            entered.append(context)
            context = self._parent[context]
        for inner in reversed(entered):
            self._open.append((inner, time, np.zeros(len(self._keys))))

    def _close(self, time: int) -> None:
        context, begin, cost = self._open.pop()
        self._write(self._names[self._frame[context]], begin, max(time - begin, 0), cost)

    def _wait_name(self, cost: F64) -> str:
        timed = [n for n, unit in enumerate(self._units) if unit == "s" and cost[n]]
        return self._wait_names[timed[0]] if timed else '"[wait]"'

    def _write(self, name: str, begin: int, duration: int, cost: F64, category: str = "") -> None:
        values = cost.tolist()
        args = ",".join(
            f"{key}:{value:.15g}"
            for key, value in zip(self._keys, values, strict=True) if value
        )  # fmt: skip
        about = (f',"cat":"{category}"' if category else "") + (
            f',"args":{{{args}}}' if args else ""
        )
        self._event(
            f'{{"ph":"X","name":{name},{self._place},'
            f'"ts":{_micro(begin)},"dur":{_micro(duration)}{about}}}'
        )

    def _event(self, text: str) -> None:
        self._file.write((",\n" if self._events else "\n") + text)
        self._events += 1


def _micro(time: int) -> str:
    """ns as µs."""
    sign, time = ("-", -time) if time < 0 else ("", time)
    return f"{sign}{time // 1000}.{time % 1000:03}"


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
