"""pprof's profile.proto (https://github.com/google/pprof/blob/main/proto/profile.proto), gzipped.

A sample for each calling context on each trace line, with a value for each metric (times in ns),
and the thread as labels. An inlined call is a location of its own, without an address.
"""

from __future__ import annotations

import gzip
from functools import lru_cache
from pathlib import Path

import numpy as np

from hpcd.analysis.trace.trace_lines import Line
from hpcd.interchange.context_table import Contexts, Detail
from hpcd.interchange.export_selection import Selection
from hpcd.interchange.protobuf import integer, message, packed, text

# Fields of Profile.
_SAMPLE_TYPE, _SAMPLE, _MAPPING, _LOCATION, _FUNCTION, _STRINGS = 1, 2, 3, 4, 5, 6
_TIME_NANOS, _DURATION_NANOS, _DEFAULT_TYPE = 9, 10, 14
# The sizes of code ranges of load modules: addresses are those within a module.
_LIMIT = 1 << 40


class _Strings:
    """The table of strings: a number for each; 0 is the empty one."""

    def __init__(self) -> None:
        self.table = {"": 0}

    def __call__(self, value: str) -> int:
        return self.table.setdefault(value, len(self.table))


def write(selection: Selection, path: Path) -> None:
    """Write ``selection`` to the file ``path``."""
    table = selection.contexts(Detail.PLACE)
    strings = _Strings()
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, 0) as file:
        for name, unit in zip(selection.names, selection.units, strict=True):
            unit = "nanoseconds" if unit == "s" else unit or "count"
            file.write(message(_SAMPLE_TYPE, integer(1, strings(name)), integer(2, strings(unit))))
        begin, end = selection.span
        file.write(integer(_TIME_NANOS, selection.db.origin_ns + begin))
        file.write(integer(_DURATION_NANOS, end - begin))
        file.write(integer(_DEFAULT_TYPE, strings(selection.names[selection.main])))
        _write_code(selection, table, strings, file)
        scale = np.array([1e9 if unit == "s" else 1.0 for unit in selection.units])[:, None]
        stacks = _Stacks(table)
        for line in selection.each_line():
            costs = selection.line_costs(line.number, table)
            values = np.rint(costs.cost * scale).astype(np.int64).T.tolist()
            labels = _labels(line, strings)
            for context, value in zip(costs.context.tolist(), values, strict=True):
                if any(value):
                    file.write(message(_SAMPLE, stacks.packed(context), packed(2, value), labels))
        for value in strings.table:
            file.write(text(_STRINGS, value))


# Call paths kept as bytes: those of many threads are the same. Some MB.
_STACKS_KEPT = 10_000


class _Stacks:
    """Call paths as the locations of a sample, innermost first."""

    def __init__(self, table: Contexts) -> None:
        self._parent, self._frame = table.parent.tolist(), table.frame.tolist()
        self.packed = lru_cache(_STACKS_KEPT)(self._packed)

    def _packed(self, context: int) -> bytes:
        locations = []
        while context:
            locations.append(self._frame[context] + 1)
            context = self._parent[context]
        return packed(1, locations or [1])


def _labels(line: Line, strings: _Strings) -> bytes:
    labels = [
        message(3, integer(1, strings(key)), integer(2, strings(value)))
        for key, value in (
            ("thread", line.label),
            ("comm", line.process),
            ("host", line.host),
            ("rank", "" if line.rank is None else str(line.rank)),
        )
        if value
    ]
    numbers = {"pid": line.pid, "tid": line.tid}
    labels += [
        message(3, integer(1, strings(key)), integer(3, number)) for key, number in numbers.items()
    ]
    return b"".join(labels)


def _write_code(
    selection: Selection, table: Contexts, strings: _Strings, file: gzip.GzipFile
) -> None:
    """Load modules, and a location and a function for each frame."""
    for module in selection.db.modules:
        file.write(
            message(
                _MAPPING,
                integer(1, module.id),
                integer(3, _LIMIT),
                integer(5, strings(module.path)),
                integer(6, strings(module.build_id)),
                integer(7, 1),
                integer(8, 1),
                integer(9, 1),
                integer(10, 1),
            )
        )
    frames = table.frames
    functions: dict[tuple[str, int, bool], int] = {}
    procedures = selection.db.procedures
    columns = zip(
        frames.name,
        frames.module.tolist(),
        frames.address.tolist(),
        frames.file,
        frames.line.tolist(),
        frames.procedure.tolist(),
        frames.inlined.tolist(),
        strict=True,
    )
    for number, (name, module, address, source, line, procedure, inlined) in enumerate(columns):
        key = (name if inlined else "", procedure if not inlined else module, inlined)
        if key not in functions:
            functions[key] = len(functions) + 1
            begin = 0 if inlined else int(procedures.line[procedure])
            file.write(
                message(
                    _FUNCTION,
                    integer(1, functions[key]),
                    integer(2, strings(name)),
                    integer(3, strings(name)),
                    integer(4, strings(source if inlined else procedures.file[procedure])),
                    integer(5, begin),
                )
            )
        entry = message(4, integer(1, functions[key]), integer(2, line))
        place = b"" if inlined else integer(2, module) + integer(3, address)
        file.write(message(_LOCATION, integer(1, number + 1), place, entry))
