"""speedscope's file format (https://www.speedscope.app/file-format-schema.json).

For each metric a profile of all trace lines together, then for each trace line one in time order
of each metric it has. Times are in ns. Weights of consecutive records of one context are added up.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TextIO

import numpy as np

from hpcd.analysis.export.context_table import Contexts, Detail
from hpcd.analysis.export.export_selection import Selection, TraceBlock
from hpcd.analysis.export.text import as_json, utf8
from hpcd.array_types import F64, U32

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write(selection: Selection, path: Path) -> None:
    """Write ``selection`` to the file ``path``."""
    table = selection.contexts(Detail.PROCEDURE)
    with path.open("w", encoding="ascii", newline="\n") as file:
        file.write('{"$schema":' + as_json(_SCHEMA) + ',"exporter":"hpcd","name":')
        file.write(as_json(utf8(selection.db.path.name)) + ',"shared":{"frames":[')
        frames = table.frames
        columns = zip(frames.name, frames.file, frames.line.tolist(), strict=True)
        for number, (name, source, line) in enumerate(columns):
            entry: dict[str, object] = {"name": utf8(name)}
            if source:
                entry["file"] = utf8(source)
            if line:
                entry["line"] = line
            file.write(("," if number else "") + as_json(entry))
        file.write(']},"activeProfileIndex":0,"profiles":[')
        paths = _Paths(table)
        total = selection.total_costs(table)
        for row, name in enumerate(selection.names):
            context = np.flatnonzero(total[row])
            one = [(context.astype(np.uint32), total[row, context])]
            file.write("," if row else "")
            _write_profile(file, selection, row, f"{name}: all trace lines", one, one, paths)
        for line in selection.each_line():
            used = selection.line_costs(line.number, table).cost.any(axis=1)
            for row in np.flatnonzero(used).tolist():
                file.write(",")
                name = f"{selection.names[row]}: {utf8(line.label)}"
                contexts = _runs(selection, line.number, row, table)
                weights = _runs(selection, line.number, row, table)
                _write_profile(file, selection, row, name, contexts, weights, paths)
        file.write("]}\n")


# Call paths kept as text: what a trace is in over and over again. Some MB.
_PATHS_KEPT = 10_000


class _Paths:
    """Call paths as JSON lists of frames, outermost first."""

    def __init__(self, table: Contexts) -> None:
        self._parent, self._frame = table.parent.tolist(), table.frame.tolist()
        self.text = lru_cache(_PATHS_KEPT)(self._text)

    def _text(self, context: int) -> str:
        frames = []
        while context:
            frames.append(self._frame[context])
            context = self._parent[context]
        return f"[{','.join(map(str, reversed(frames or [0])))}]"


def _runs(selection: Selection, line: int, row: int, table: Contexts) -> Iterator[tuple[U32, F64]]:
    for block in selection.trace(line):
        yield runs_of(block, row, table)


def runs_of(block: TraceBlock, row: int, table: Contexts) -> tuple[U32, F64]:
    """Contexts ``uint32[k]`` one after another, and what each stretch cost, ``float64[k]``."""
    cost = block.cost[row]
    kept = cost != 0
    context, cost = table.of_node[block.node[kept]], cost[kept]
    if not len(context):
        return context, cost
    starts = np.flatnonzero(np.concatenate(([True], context[1:] != context[:-1])))
    return context[starts], np.add.reduceat(cost, starts)


def _write_profile(
    file: TextIO,
    selection: Selection,
    row: int,
    name: str,
    contexts: Iterator[tuple[U32, F64]] | list[tuple[U32, F64]],
    weights: Iterator[tuple[U32, F64]] | list[tuple[U32, F64]],
    paths: _Paths,
) -> None:
    timed = selection.units[row] == "s"
    file.write(as_json({"type": "sampled", "name": name,
                        "unit": "nanoseconds" if timed else "none"})[:-1])  # fmt: skip
    file.write(',"startValue":0,"samples":[')
    first = True
    for context, _ in contexts:
        stacks = ",".join(map(paths.text, context.tolist()))
        if stacks:
            file.write(("" if first else ",") + stacks)
            first = False
    file.write('],"weights":[')
    total, first = 0.0, True
    for _, cost in weights:
        # Whole ns; counts may have fractions, where a window of time cut a wait.
        rounded = np.rint(cost * 1e9) if timed else np.round(cost, 6)
        total += float(rounded.sum())
        text = ",".join([f"{value:.15g}" for value in rounded.tolist()])
        if text:
            file.write(("" if first else ",") + text)
            first = False
    file.write(f'],"endValue":{total:.15g}}}')
