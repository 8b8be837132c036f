"""speedscope's file format (https://www.speedscope.app/file-format-schema.json).

There is a profile of all trace lines for each metric, then a profile in time order of each trace
line and each of its metrics. Times are in ns. Weights of a context's consecutive records are added.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import lru_cache
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO

import numpy as np

from hpcd.array_types import F64, U32
from hpcd.distinct import begins_run
from hpcd.interchange.fitted_names import utf8
from hpcd.interchange.output.context_table import ContextTable, Detail, path_maker
from hpcd.interchange.output.decimal_text import numbers
from hpcd.interchange.output.export_selection import ExportSelection
from hpcd.interchange.output.json_text import JsonColumns, as_json, json_columns
from hpcd.interchange.output.trace_blocks import TraceBlock

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_COLUMNS = ("samples", "weights")
# Decimals of counts.
_PLACES = 6
# Samples made at once: paths have hundreds of frames.
_AT_ONCE = 4096
# Call paths kept as text: traces repeat them. Some MB.
_PATHS_KEPT = 10_000


def write(selection: ExportSelection, raw: BinaryIO, folder: Path) -> None:
    """Write ``selection`` to the file ``raw``; columns are kept in ``folder`` first."""
    table = selection.contexts(Detail.PROCEDURE)
    with TextIOWrapper(raw, "ascii", newline="\n") as file:
        file.write('{"$schema":' + as_json(_SCHEMA) + ',"exporter":"hpcd","name":')
        file.write(as_json(utf8(selection.db.path.name)) + ',"shared":{"frames":[')
        frames = table.frames
        entries = zip(frames.name, frames.file, frames.line.tolist(), strict=True)
        for number, (name, source, line) in enumerate(entries):
            entry: dict[str, object] = {"name": utf8(name)}
            if source:
                entry["file"] = utf8(source)
            if line:
                entry["line"] = line
            file.write(("," if number else "") + as_json(entry))
        file.write(']},"activeProfileIndex":0,"profiles":[')
        path = path_maker(table)
        paths = lru_cache(_PATHS_KEPT)(
            lambda context: f"[{','.join(map(str, reversed(path(context))))}]"
        )
        total = selection.total_costs(table)
        for row in range(len(selection.names)):
            context = np.flatnonzero(total[row])
            with json_columns(_COLUMNS, folder) as columns:
                profile = _SampledProfile(selection, row, paths, columns)
                profile.add(context.astype(np.uint32), total[row, context])
                file.write("," if row else "")
                profile.write(file, "all trace lines")
        for line in selection.iterate_lines():
            with ExitStack() as stack:
                profiles = [
                    _SampledProfile(selection, row, paths,
                             stack.enter_context(json_columns(_COLUMNS, folder)))
                    for row in range(len(selection.names))
                ]  # fmt: skip
                for block in selection.trace(line.number):
                    for row, profile in enumerate(profiles):
                        profile.add(*_merge_runs(block, row, table))
                for profile in profiles:
                    if profile.columns.count:
                        file.write(",")
                        profile.write(file, line.label)
        file.write("]}\n")


def _merge_runs(block: TraceBlock, row: int, table: ContextTable) -> tuple[U32, F64]:
    """Return the contexts uint32[k] of runs of consecutive records and their costs, float64[k]."""
    cost = block.cost[row]
    kept = cost != 0
    context, cost = table.of_node[block.node[kept]], cost[kept]
    if not len(context):
        return context, cost
    starts = np.flatnonzero(begins_run(context))
    return context[starts], np.add.reduceat(cost, starts)


class _SampledProfile:
    """The samples of the metric in ``row`` of the selection."""

    def __init__(
        self,
        selection: ExportSelection,
        row: int,
        paths: Callable[[int], str],
        columns: JsonColumns,
    ) -> None:
        self.columns = columns
        self._name, self._timed = selection.names[row], selection.units[row] == "s"
        self._paths = paths
        self._total = 0.0

    def add(self, context: U32, cost: F64) -> None:
        # Whole ns; counts have fractions if a window of time cut a wait.
        rounded = np.rint(cost * 1e9) if self._timed else np.round(cost, _PLACES)
        self._total += float(rounded.sum())
        for at in range(0, len(context), _AT_ONCE):
            span = slice(at, at + _AT_ONCE)
            samples = list(map(self._paths, context[span].tolist()))
            weights = numbers(rounded[span], 0 if self._timed else _PLACES)
            self.columns.add(",".join(samples), weights, count=len(samples))

    def write(self, file: TextIO, line: str) -> None:
        """Write the profile; ``line`` is the label of its trace line."""
        about = {"type": "sampled", "name": f"{self._name}: {utf8(line)}",
                 "unit": "nanoseconds" if self._timed else "none",
                 "startValue": 0, "endValue": self._total}  # fmt: skip
        file.write(as_json(about)[:-1])
        self.columns.write(file)
        file.write("}")
