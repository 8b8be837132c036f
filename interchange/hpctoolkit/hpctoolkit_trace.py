"""trace.db: the context of every record, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hpcd.array_types import I64, Array
from hpcd.interchange.hpctoolkit import hpctoolkit_layout as layout
from hpcd.interchange.hpctoolkit.hpctoolkit_contexts import LexicalContexts
from hpcd.interchange.hpctoolkit.hpctoolkit_layout import (
    StructureFile,
    align,
    finish_file,
    header_size,
)
from hpcd.interchange.output.export_selection import ExportSelection

_MAX_TRACES = 1 << 18


def write_trace(selection: ExportSelection, contexts: LexicalContexts, path: Path) -> None:
    """Write trace.db. Times are ns since 1970; context 0 says that a thread has ended, or that a
    record does not match the filter."""
    origin = selection.db.origin_ns
    # Node 0 of the CCT is no context of a record; the others' identifiers are one more.
    id_of_node = contexts.of_context[contexts.table.of_node] + 1
    id_of_node[0] = 0
    lines, earliest, latest = [], 0, 0
    with path.open("wb") as file:
        file.write(bytes(header_size(1)))
        for number, line in enumerate(selection.iterate_lines("trace"), start=1):
            start = align(file)
            last, time = 0, 0
            for block in selection.trace(line.number):
                times, ids = _without_repeats(block.time + origin, id_of_node[block.node], last)
                if not len(ids):
                    continue
                earliest = min(earliest or int(times[0]), int(times[0]))
                last, time = int(ids[-1]), int(times[-1])
                file.write(_elements(times, ids))
            if last:
                time = max(time, min(line.end, selection.span[1]) + origin)
                file.write(_elements(np.array([time]), np.zeros(1, np.int64)))
            latest = max(latest, time)
            lines.append((number, start, file.tell()))
        at = align(file)
        file.write(
            layout.TRACES.pack(
                at + layout.TRACES.size, len(lines), layout.TRACE.size, earliest, latest
            )
        )
        for row in lines:
            file.write(layout.TRACE.pack(*row))
        finish_file(file, "trce", [(file.tell() - at, at)])


def _without_repeats(times: I64, ids: I64, last: int) -> tuple[I64, I64]:
    """Return times and contexts without context 0 twice in a row, or at the beginning."""
    before = np.concatenate(([last], ids[:-1]))
    kept = (ids != 0) | (before != 0)
    return times[kept], ids[kept]


def _elements(times: I64, ids: I64) -> bytes:
    rows = np.zeros(len(times), layout.ELEMENT)
    rows["time"], rows["context"] = times, ids
    return rows.tobytes()


class TraceFile:
    """Reads ``trace.db``: the contexts of threads over time. ``begin_ns`` is since 1970."""

    def __init__(self, folder: Path) -> None:
        self._file = file = StructureFile(folder / "trace.db", b"trce")
        self._header = file.unpack(layout.TRACES, file.section(0))
        self.begin_ns = self._header[3]

    def traces(self) -> Iterator[tuple[int, Array, Array]]:
        """Yield (profile, times in ns since 1970 uint64[n], contexts uint32[n]) of each trace."""
        file = self._file
        place, count, stride = self._header[:3]
        size = 0
        for number in range(min(count, _MAX_TRACES)):
            profile, begin, end = file.unpack(layout.TRACE, place + stride * number)
            size += end - begin
            if end < begin or size > len(file):
                raise file.damaged("traces are longer than fit into it")
            elements = file.array(layout.ELEMENT, begin, (end - begin) // layout.ELEMENT.itemsize)
            yield profile, elements["time"], elements["context"]
