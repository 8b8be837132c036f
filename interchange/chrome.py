"""Chrome's trace events as JSON ("Trace Event Format"): nested slices for each thread.

A slice (:mod:`.nested_slices`) is a stretch of time in which a frame is on the call path. ``args``
of a slice has what its frame itself cost; a wait is a slice of its own, of the length it had. So
the ``args`` of all slices add up to each metric's total. Times are whole µs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

import numpy as np

from hpcd.analysis.trace.trace_lines import Line
from hpcd.interchange.chrome_phases import phase_events
from hpcd.interchange.context_table import Contexts, Detail
from hpcd.interchange.export_selection import Selection
from hpcd.interchange.nested_slices import NestedSlices, Slices
from hpcd.interchange.process_ids import ProcessIds
from hpcd.interchange.slice_text import SliceText
from hpcd.interchange.text import as_json, json_names, utf8


def write(selection: Selection, path: Path) -> None:
    """Write ``selection`` to the file ``path``."""
    table = selection.contexts(Detail.PROCEDURE)
    pids = ProcessIds(selection)
    slices = NestedSlices(table, len(selection.metrics), selection.loops)
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
        self._timed = np.array([unit == "s" for unit in selection.units])
        self._frame = table.frame.astype(np.int64)
        # The last names are those of waits: of each metric, and of none of time.
        names = [*json_names(table.frames.name), *json_names(f"[{n}]" for n in selection.names)]
        names.append('"[wait]"')
        self._text = SliceText(names, json_names(selection.names), selection.loops)
        self._first_wait = len(table.frames.name)
        self._first = 1

    def begin(self, line: Line, pid: int, tid: int) -> None:
        """Go on with another line."""
        place = f'"pid":{pid},"tid":{tid}'
        self._text.begin(place)
        process = f"rank {line.rank} " if line.rank is not None else ""
        names = [("process_name", f"{process}{line.process} {line.pid} on {line.host}"),
                 ("thread_name", line.label)]  # fmt: skip
        for kind, name in names:
            told = as_json(utf8(name))
            self.add(f',\n{{"ph":"M","name":"{kind}",{place},"args":{{"name":{told}}}}}')

    def write(self, slices: Slices) -> None:
        """Write ``slices`` of the present line."""
        name = self._frame[slices.context]
        waits = np.flatnonzero(slices.wait)
        timed = (slices.cost[:, waits] != 0) & self._timed[:, None]
        metric = np.where(timed.any(axis=0), timed.argmax(axis=0), len(self._timed))
        name[waits] = self._first_wait + metric
        for text in self._text.of(name, slices):
            self.add(text)

    def add(self, events: str) -> None:
        """Write events, each of which begins with a comma."""
        if events:
            self._file.write(events[self._first :])
            self._first = 0
