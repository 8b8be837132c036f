"""Chrome's trace events as JSON ("Trace Event Format"): nested slices for each thread.

A slice (:mod:`.nested_slices`) is a stretch of time in which a frame is on the call path. ``args``
of a slice has what its frame itself cost; a wait is a slice of its own, of the length it had. So
the ``args`` of all slices add up to each metric's total. Times are whole µs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

import numpy as np

from hpcd.analysis.export.chrome_phases import phase_events
from hpcd.analysis.export.context_table import Contexts, Detail
from hpcd.analysis.export.export_selection import Selection
from hpcd.analysis.export.nested_slices import NestedSlices, Slices
from hpcd.analysis.export.process_ids import ProcessIds
from hpcd.analysis.export.text import as_json, json_names, utf8
from hpcd.analysis.trace.trace_lines import Line
from hpcd.array_types import F64, Mask

# A slice: name, begin, length, and what else there is of it.
_EVENT = ',\n{"ph":"X",PLACE,"name":%s,"ts":%d,"dur":%d%s}'


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
            events.add(phase_events(selection.phases, line.number, *pids(line)))
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
        self._names = np.array([*names, '"[wait]"'], object)
        self._first_wait = len(table.frames.name)
        self._event = ""
        self._first = 1

    def begin(self, line: Line, pid: int, tid: int) -> None:
        """Go on with another line."""
        place = f'"pid":{pid},"tid":{tid}'
        self._event = _EVENT.replace("PLACE", place)
        process = f"rank {line.rank} " if line.rank is not None else ""
        names = [("process_name", f"{process}{line.process} {line.pid} on {line.host}"),
                 ("thread_name", line.label)]  # fmt: skip
        for kind, name in names:
            told = as_json(utf8(name))
            self.add(f',\n{{"ph":"M","name":"{kind}",{place},"args":{{"name":{told}}}}}')

    def write(self, slices: Slices) -> None:
        """Write ``slices`` of the present line."""
        name = self._frame[slices.context]
        timed = (slices.cost != 0) & self._timed[:, None]
        metric = np.where(timed.any(axis=0), timed.argmax(axis=0), len(self._timed))
        name[slices.wait] = self._first_wait + metric[slices.wait]
        # Whole µs, as records have them: sums of fractions would not be where others begin.
        start = slices.begin // 1000
        values = np.empty((len(name), 4), object)
        values[:, 0] = self._names[name]
        values[:, 1] = start
        values[:, 2] = slices.end // 1000 - start
        values[:, 3] = self._arguments(slices.cost, slices.wait)
        # One format for all: twice as fast as one by one.
        self.add(self._event * len(name) % tuple(values.ravel().tolist()))

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

    def add(self, events: str) -> None:
        """Write events, each of which begins with a comma."""
        if events:
            self._file.write(events[self._first :])
            self._first = 0
