"""Firefox Profiler's processed profile, version 70
(https://github.com/firefox-devtools/profiler, ``src/types/profile.ts``).

A thread for each trace line, a sample for each record, weighted by its ms. Waits have a frame of
their own below the waiting frame, such as ``[blocked_time]``, so that metrics are distinguished.
Those recorded one by one are markers too, with who ended them, and the stack of the waker. If a
count is exported, weights are that count. CPU time is also each sample's ``threadCPUDelta``, from
which the profiler draws activity.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import TextIOWrapper
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, BinaryIO, TextIO

import numpy as np

from hpcd.analysis.trace.trace_lines import Line
from hpcd.array_types import I64
from hpcd.interchange.fitted_names import utf8
from hpcd.interchange.numbering import Numbering
from hpcd.interchange.output.context_table import ContextTable, Detail
from hpcd.interchange.output.decimal_text import decimals, numbers
from hpcd.interchange.output.export_selection import ExportSelection, ProcessIds, ProcessNames
from hpcd.interchange.output.exported_waits import ExportedWaits
from hpcd.interchange.output.json_text import as_json, json_columns
from hpcd.interchange.output.trace_blocks import TraceBlock
from hpcd.model.identity import ModuleKind

_VERSION = 70
_GECKO_VERSION = 36
_LIBRARY = 1
# Times are ms with the places of ns.
_NS_OF_MS = 6
_OTHER, _USER, _KERNEL, _WAITING = range(4)
_CATEGORIES = [("Other", "grey"), ("User", "yellow"), ("Kernel", "orange"), ("Waiting", "blue")]
# Markers with a begin and an end.
_INTERVAL = 1
_MARKER_COLUMNS = ["data", "name", "startTime", "endTime", "phase", "category"]
_Marker = tuple[dict[str, Any] | None, int, float, float, int, int]
_MARKERS_AT_ONCE = 10_000
_WAIT_TYPE = "Wait"
_WAIT_SCHEMA = {
    "name": _WAIT_TYPE,
    "tooltipLabel": "wait, ended by {marker.data.waker}",
    "tableLabel": "ended by {marker.data.waker}",
    "chartLabel": "{marker.data.waker}",
    "display": ["marker-chart", "marker-table"],
    "fields": [{"key": "waker", "label": "Ended by", "format": "string"}],
}


def write(selection: ExportSelection, raw: BinaryIO, folder: Path) -> None:
    """Write ``selection`` to the file ``raw``; columns are kept in ``folder`` first."""
    table = selection.contexts(Detail.PLACE)
    stacks = _StackTable(selection, table)
    with TextIOWrapper(raw, "ascii", newline="\n") as file:
        file.write('{"meta":' + as_json(_meta(selection)))
        file.write(',"libs":' + as_json(_libraries(selection)) + ',"shared":{')
        waits = ExportedWaits(selection)
        phase_names, wait_name = _write_shared(file, selection, table, stacks)
        file.write('},"threads":[')
        ids, names = ProcessIds(selection), ProcessNames(selection)
        for number, line in enumerate(selection.iterate_lines()):
            file.write("," if number else "")
            markers = _markers(selection, waits, table, line.number, phase_names, wait_name)
            _write_thread(file, folder, selection, stacks, line, *ids(line), names(line), markers)
        file.write("]}\n")


class _StackTable:
    """The stack of each context, and of each wait in a context; stacks of waits are numbered from
    ``len(table)`` on."""

    def __init__(self, selection: ExportSelection, table: ContextTable) -> None:
        self.table = table
        self._rows = selection.time_rows
        self.timed = selection.units[self._rows[0]] == "s"
        names = [selection.names[row] for row in self._rows]
        self._cpu_place = names.index("cpu_time") if "cpu_time" in names else None
        self._scale = 1e3 if self.timed else 1.0
        self.waits: list[tuple[str, I64]] = []
        self._number: dict[int, I64] = {}
        at = len(table)
        for row in self._rows:
            name = selection.names[row]
            if not self.timed or name == "cpu_time":
                continue
            exclusive = selection.db.metrics.exclusive(selection.metrics[row])
            context = np.unique(table.of_node[np.flatnonzero(exclusive)])
            number = np.zeros(len(table), np.int64)
            number[context] = at + np.arange(len(context))
            at += len(context)
            self._number[row] = number
            self.waits.append((f"[{name}]", context.astype(np.int64)))

    @property
    def columns(self) -> list[str]:
        cpu = [] if self._cpu_place is None else ["threadCPUDelta"]
        return ["stack", "time", "weight", *cpu]

    def encode_samples(self, block: TraceBlock) -> tuple[int, list[str]]:
        """Return the number of records of a block that have a weight, and their columns."""
        cost = block.cost[self._rows]
        weight = cost.sum(axis=0)
        kept = np.flatnonzero(weight)
        row_of = cost[:, kept].argmax(axis=0)
        context = self.table.of_node[block.node[kept]].astype(np.int64)
        stack = context.copy()
        for place, row in enumerate(self._rows):
            if row in self._number:
                mine = row_of == place
                stack[mine] = self._number[row][context[mine]]
        columns = [
            decimals(stack), decimals(block.time[kept], _NS_OF_MS),
            numbers(weight[kept] * self._scale, _NS_OF_MS),
        ]  # fmt: skip
        if self._cpu_place is not None:
            columns.append(numbers(cost[self._cpu_place, kept] * 1e9, 0))
        return len(kept), columns


def _meta(selection: ExportSelection) -> dict[str, object]:
    origin = selection.db.origin_ns / 1e6
    begin, end = selection.span
    return {
        "importedFrom": "hpcd",
        "interval": 1,
        "startTime": origin,
        "profilingStartTime": begin / 1e6,
        # The reader leaves out samples at the end itself, where sums of short waits are.
        "profilingEndTime": (end + 1) / 1e6,
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
        "processType": 0,
        "categories": [
            {"name": name, "color": color, "subcategories": ["Other"]}
            for name, color in _CATEGORIES
        ],
        "product": utf8(selection.db.path.name),
        "stackwalk": 1,
        "version": _GECKO_VERSION,
        "preprocessedProfileVersion": _VERSION,
        "symbolicated": True,
        "symbolicationNotSupported": True,
        "markerSchema": [_WAIT_SCHEMA],
        "usesOnlyOneStackType": True,
        "sourceCodeIsNotOnSearchfox": True,
    }


def _libraries(selection: ExportSelection) -> list[dict[str, Any]]:
    libraries = []
    for module in selection.db.modules:
        name, path = utf8(PurePath(module.path).name or module.path), utf8(module.path)
        known = module.kind == ModuleKind.ELF and module.build_id
        libraries.append(
            {"arch": "", "name": name, "path": path, "debugName": name, "debugPath": path,
             "breakpadId": "", "codeId": module.build_id if known else None}
        )  # fmt: skip
    return libraries


def _markers(
    selection: ExportSelection, waits: ExportedWaits, table: ContextTable, line: int,
    phase_names: list[int], wait_name: int,
) -> Iterator[_Marker]:  # fmt: skip
    """Yield the phases and waits of trace line ``line``; the names are strings, those of phases by
    group."""
    for begin, end, group in selection.phases.of_line(line):
        yield None, phase_names[group], begin / 1e6, end / 1e6, _INTERVAL, _USER
    for wait in waits.of_line(line):
        data: dict[str, Any] = {"type": _WAIT_TYPE, "waker": utf8(wait.text)}
        if wait.path:
            data["cause"] = {"time": wait.end / 1e6, "stack": int(table.of_node[wait.path])}
        yield data, wait_name, wait.begin / 1e6, wait.end / 1e6, _INTERVAL, _WAITING


def _write_markers(file: TextIO, folder: Path, markers: Iterator[_Marker]) -> None:
    """Write the table of a thread's markers; columns are kept in ``folder`` first."""
    with json_columns(_MARKER_COLUMNS, folder) as columns:
        while rows := list(islice(markers, _MARKERS_AT_ONCE)):
            texts = [as_json(column)[1:-1] for column in zip(*rows, strict=True)]
            columns.add(*texts, count=len(rows))
        file.write(f',"markers":{{"length":{columns.count}')
        columns.write(file)
        file.write("}")


def _write_shared(
    file: TextIO, selection: ExportSelection, table: ContextTable, stacks: _StackTable
) -> tuple[list[int], int]:
    """Write the tables that threads share; returns the strings of phases, by group, and that of
    waits."""
    strings: Numbering[str] = Numbering()
    frames, waits = table.frames, [name for name, _ in stacks.waits]
    sources: Numbering[str] = Numbering()
    modules = selection.db.modules
    resources = [strings[utf8(PurePath(module.path).name or module.path)] for module in modules]
    functions: Numbering[tuple[Any, ...]] = Numbering()
    procedures = selection.db.procedures
    columns = zip(frames.name, frames.module.tolist(), frames.file, frames.procedure.tolist(),
                  frames.inlined.tolist(), strict=True)  # fmt: skip
    function_of = []
    for name, module, source, procedure, inlined in columns:
        source = source if inlined else procedures.file[procedure]
        begin = None if inlined else int(procedures.line[procedure]) or None
        place = sources[source] if source else None
        function_of.append(functions[strings[utf8(name)], module - 1, place, begin])
    function_of += [functions[strings[utf8(name)], -1, None, None] for name in waits]
    _write_tables(file, {
        "stackTable": _stack_table(table, stacks),
        "frameTable": _frame_table(table, function_of, procedures.kernel.tolist(), len(waits)),
        "funcTable": _function_table(list(functions)),
        "resourceTable": {
            "name": resources, "host": [None] * len(modules), "type": [_LIBRARY] * len(modules)
        },
        "nativeSymbols": {"libIndex": [], "address": [], "name": [], "functionSize": []},
        "sources": {
            "id": [None] * len(sources),
            "filename": [strings[utf8(source)] for source in sources],
            "startLine": [1] * len(sources),
            "startColumn": [1] * len(sources),
            "sourceMapURL": [None] * len(sources),
            "content": [None] * len(sources),
        },
        "sourceLocationTable": {"source": [], "line": [], "column": []},
    })  # fmt: skip
    phase_names = [strings[utf8(name)] for name in selection.phases.names]
    wait_name = strings["wait"]
    file.write(',"stringArray":' + as_json(list(strings)))
    return phase_names, wait_name


def _write_tables(file: TextIO, tables: dict[str, dict[str, list[Any]]]) -> None:
    for number, (name, columns) in enumerate(tables.items()):
        file.write(("," if number else "") + as_json(name) + ":{")
        for column, values in columns.items():
            file.write(as_json(column) + ":" + as_json(values) + ",")
        file.write(f'"length":{len(next(iter(columns.values())))}}}')


def _stack_table(table: ContextTable, stacks: _StackTable) -> dict[str, list[Any]]:
    parent = table.parent.astype(np.int64)
    offset = np.where(parent > 0, np.arange(len(table)) - parent, 0)
    frame = table.frame.astype(np.int64)
    for number, (_, context) in enumerate(stacks.waits):
        at = len(offset) + np.arange(len(context))
        offset = np.append(offset, at - context)
        frame = np.append(frame, np.full(len(context), len(table.frames) + number))
    return {"frame": frame.tolist(), "prefixOffset": offset.tolist()}


def _frame_table(
    table: ContextTable, function_of: list[int], kernel: list[bool], waits: int
) -> dict[str, list[Any]]:
    frames = table.frames
    nested = [0] * len(frames)
    inlined = frames.inlined.tolist()
    columns = zip(table.parent.tolist(), table.frame.tolist(), strict=True)
    frame_of = table.frame.tolist()
    for parent, frame in columns:
        if inlined[frame]:
            nested[frame] = min(nested[frame_of[parent]] + 1, 255)
    category = [_KERNEL if kernel[procedure] else _USER for procedure in frames.procedure.tolist()]
    count = len(frames) + waits
    return {
        "address": [*_addresses(table), *[-1] * waits],
        "lib": [*(frames.module.astype(np.int64) - 1).tolist(), *[-1] * waits],
        "inlineDepth": [*nested, *[0] * waits],
        "category": [*category, *[_WAITING] * waits],
        "subcategory": [0] * count,
        "func": function_of,
        "nativeSymbol": [None] * count,
        "innerWindowID": [0] * count,
        "line": [*(line or None for line in frames.line.tolist()), *[None] * waits],
        "column": [None] * count,
        "originalLocation": [None] * count,
    }


def _addresses(table: ContextTable) -> list[int]:
    """Return addresses in load modules; -1 if unknown, or beyond the reader's 32 bits."""
    frames = table.frames
    held = (frames.module > 0) & (frames.address < 1 << 31)
    addresses: list[int] = np.where(held, frames.address.astype(np.int64), -1).tolist()
    return addresses


def _function_table(functions: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    names, modules, sources, lines = map(list, zip(*functions, strict=True))
    count = len(functions)
    return {
        "name": names,
        "isJS": [False] * count,
        "relevantForJS": [False] * count,
        "resource": modules,
        "source": sources,
        "lineNumber": lines,
        "columnNumber": [None] * count,
        "originalLocation": [None] * count,
    }


def _write_thread(
    file: TextIO, folder: Path, selection: ExportSelection, stacks: _StackTable, line: Line,
    pid: int, tid: int, process: str, markers: Iterator[_Marker],
) -> None:  # fmt: skip
    thread = {
        "processType": "default",
        "processStartupTime": line.start / 1e6,
        "processShutdownTime": line.end / 1e6,
        "registerTime": line.start / 1e6,
        "unregisterTime": line.end / 1e6,
        "pausedRanges": [],
        "name": utf8(line.label),
        "isMainThread": line.pid == line.tid,
        "processName": utf8(process),
        "pid": str(pid),
        "tid": tid,
    }
    kind = "tracing-ms" if stacks.timed else "samples"
    file.write(as_json(thread)[:-1])
    _write_markers(file, folder, markers)
    file.write(f',"samples":{{"weightType":"{kind}"')
    with json_columns(stacks.columns, folder) as columns:
        for block in selection.trace(line.number):
            count, texts = stacks.encode_samples(block)
            columns.add(*texts, count=count)
        columns.write(file)
        file.write(f',"length":{columns.count}}}}}')
