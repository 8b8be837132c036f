"""Chrome's trace events as JSON ("Trace Event Format"): nested slices for each thread.

A slice (:mod:`.nested_slices`) is a stretch of time in which a frame is on the call path. ``args``
of a slice has what its frame itself cost; a wait is a slice of its own, of the length it had. So
the ``args`` of all slices add up to each metric's total. Times are whole µs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

import numpy as np

from hpcd.analysis.export.context_table import Contexts, Detail
from hpcd.analysis.export.export_selection import Selection
from hpcd.analysis.export.nested_slices import NestedSlices, Slices
from hpcd.analysis.export.process_ids import ProcessIds
from hpcd.analysis.export.text import as_json, json_names, utf8
from hpcd.analysis.trace.trace_lines import Line
from hpcd.array_types import F64, Mask


def write(selection: Selection, path: Path) -> None:
    """Write ``selection`` to the file ``path``."""
    table = selection.contexts(Detail.PROCEDURE)
    pids = ProcessIds(selection)
    slices = NestedSlices(table, len(selection.metrics))
    with path.open("w", encoding="ascii", newline="\n") as file:
        units = dict(zip(selection.names, selection.units, strict=True))
        about = {"exporter": "hpcd", "units": units, "origin_ns": selection.db.origin_ns}
        file.write('{"displayTimeUnit":"ns","otherData":' + as_json(about) + ',"traceEvents":[')
        events = _Events(file, selection, table)
        for line in selection.each_line():
            events.begin(line, *pids(line))
            slices.begin(line.start)
            for block in selection.trace(line.number):
                for ended in slices.add(block):
                    events.write(ended)
            events.write(slices.finish(min(line.end, selection.span[1])))
        file.write("\n]}\n")


class _Events:
    """Writes slices of one line after another as events."""

    def __init__(self, file: TextIO, selection: Selection, table: Contexts) -> None:
        self._file = file
        self._keys = json_names(selection.names)
        self._timed = np.array([unit == "s" for unit in selection.units])
        self._frame = table.frame.astype(np.int64)
        # The last names are those of waits: of each metric, and of none of time.
        names = [*json_names(table.frames.name), *json_names(f"[{n}]" for n in selection.names)]
        self._names = [*names, '"[wait]"']
        self._first_wait = len(table.frames.name)
        self._place = ""
        self._separator = "\n"

    def begin(self, line: Line, pid: int, tid: int) -> None:
        """Go on with another line."""
        self._place = f'"pid":{pid},"tid":{tid}'
        process = f"rank {line.rank} " if line.rank is not None else ""
        names = [("process_name", f"{process}{line.process} {line.pid} on {line.host}"),
                 ("thread_name", line.label)]  # fmt: skip
        self._put(
            f'{{"ph":"M","name":"{kind}",{self._place},"args":{{"name":{as_json(utf8(name))}}}}}'
            for kind, name in names
        )

    def write(self, slices: Slices) -> None:
        """Write ``slices`` of the present line."""
        name = self._frame[slices.context]
        timed = (slices.cost != 0) & self._timed[:, None]
        metric = np.where(timed.any(axis=0), timed.argmax(axis=0), len(self._timed))
        name[slices.wait] = self._first_wait + metric[slices.wait]
        # Whole µs, as records have them: sums of fractions would not be where others begin.
        start = slices.begin // 1000
        names, place = self._names, self._place
        self._put(
            f'{{"ph":"X","name":{names[name]},{place},"ts":{start},"dur":{length}{more}}}'
            for name, start, length, more in zip(
                name.tolist(), start.tolist(), (slices.end // 1000 - start).tolist(),
                self._arguments(slices.cost, slices.wait), strict=True,
            )
        )  # fmt: skip

    def _arguments(self, cost: F64, wait: Mask) -> list[str]:
        """What follows the length of each event: its category and costs."""
        texts = [""] * cost.shape[1]
        for key, row in zip(self._keys, cost, strict=True):
            used = np.flatnonzero(row)
            for place, value in zip(used.tolist(), row[used].tolist(), strict=True):
                texts[place] += f",{key}:{value:.15g}"
        for place in np.flatnonzero(cost.any(axis=0)).tolist():
            texts[place] = f',"args":{{{texts[place][1:]}}}'
        for place in np.flatnonzero(wait).tolist():
            texts[place] = ',"cat":"wait"' + texts[place]
        return texts

    def _put(self, events: Iterable[str]) -> None:
        text = ",\n".join(events)
        if text:
            self._file.write(self._separator + text)
            self._separator = ",\n"
