"""trace.db: the context of every record, line by line."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from hpcd.array_types import I64
from hpcd.interchange.export_selection import ExportSelection
from hpcd.interchange.hpctoolkit_contexts import LexicalContexts
from hpcd.interchange.hpctoolkit_file import FOOTER, align, header_size, write_header

_ELEMENT = np.dtype([("time", "<u8"), ("context", "<u4")])


def write_trace(selection: ExportSelection, contexts: LexicalContexts, path: Path) -> None:
    """Write trace.db. Times are ns since the epoch; context 0 stands where a thread has ended, or
    where a record does not fit the filter."""
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
        file.write(struct.pack("<QIB3xQQ", at + 32, len(lines), 24, earliest, latest))
        for row in lines:
            file.write(struct.pack("<I4xQQ", *row))
        section = (file.tell() - at, at)
        align(file)
        file.write(FOOTER["trce"])
        write_header(file, "trce", [section])


def _without_repeats(times: I64, ids: I64, last: int) -> tuple[I64, I64]:
    """Context 0 never twice in a row, nor at the beginning."""
    before = np.concatenate(([last], ids[:-1]))
    kept = (ids != 0) | (before != 0)
    return times[kept], ids[kept]


def _elements(times: I64, ids: I64) -> bytes:
    rows = np.zeros(len(times), _ELEMENT)
    rows["time"], rows["context"] = times, ids
    return rows.tobytes()
