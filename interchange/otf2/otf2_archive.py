"""An OTF2 archive: call paths as calling-context samples (https://score-p.org/, "OTF2 API").

Written by the library's own bindings, location by location. A location is a trace line, a location
group a process, an interrupt generator an event. Each record is a CallingContextSample with its
weight in an attribute named as its metric; times are in ns, so waits carry their duration. The
number of records is the metric ``records``. Between the samples are recorded calls: messages and
collective operations of MPI, operations on files. Phases are markers, each with a location, its
begin and its duration.
"""

from __future__ import annotations

import errno
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import _otf2
import numpy as np

from hpcd.analysis.database.metrics import RECORDS
from hpcd.analysis.trace.trace_lines import Line
from hpcd.array_types import F64, I64
from hpcd.interchange.fitted_names import utf8
from hpcd.interchange.numbering import Numbering
from hpcd.interchange.otf2.otf2_events import CALL_ATTRIBUTES, CallEvents, CallStream, weave
from hpcd.interchange.otf2.otf2_events import UNDEFINED_32 as _UNDEFINED
from hpcd.interchange.otf2.otf2_files import ArchivedFiles
from hpcd.interchange.otf2.otf2_library import (
    CallEventWriter,
    LibraryErrors,
    LibraryMemory,
    SampleWriter,
)
from hpcd.interchange.otf2.otf2_messages import ArchivedMessages
from hpcd.interchange.output.context_table import ContextTable, Detail
from hpcd.interchange.output.export_selection import ExportedPhases, ExportSelection, whole_numbers
from hpcd.interchange.output.trace_blocks import TraceBlock

_ARCHIVE = "traces"
_EVENT_CHUNK, _DEFINITION_CHUNK = 1 << 20, 4 << 20
_RESOLUTION = 10**9


def write(selection: ExportSelection, path: Path) -> None:
    """Write ``selection`` to the folder ``path``: ``traces.otf2``, ``traces.def``, ``traces/``.

    Raises OSError when the library cannot write it.
    """
    with LibraryErrors() as errors:
        try:
            _write(selection, path, errors)
        except _otf2.ErrorCodes.Error as error:
            raise OSError(errno.EIO, errors.first or str(error)) from None
        errors.check()


def _write(selection: ExportSelection, path: Path, errors: LibraryErrors) -> None:
    archive = _otf2.Archive_Open(
        str(path), _ARCHIVE, _otf2.FILEMODE_WRITE, _EVENT_CHUNK, _DEFINITION_CHUNK,
        _otf2.SUBSTRATE_POSIX, _otf2.COMPRESSION_NONE,
    )  # fmt: skip
    # The library keeps no reference to these.
    callbacks = _otf2.FlushCallbacks(pre_flush=_flush, post_flush=None)
    _otf2.Archive_SetFlushCallbacks(archive, callbacks, None)
    memory = LibraryMemory()
    memory.attach(archive)
    _otf2.Archive_SetSerialCollectiveCallbacks(archive)
    _otf2.Archive_SetCreator(archive, "hpcd")
    table = selection.contexts(Detail.PLACE)
    _otf2.Archive_OpenDefFiles(archive)
    _otf2.Archive_OpenEvtFiles(archive)
    strings = Numbering([""])
    messages, files = ArchivedMessages(selection, strings), ArchivedFiles(selection, strings)
    selection.notes += messages.notes
    events = _EventWriter(archive, selection, table)
    definitions = _Definitions(selection, table, events, strings)
    for line in selection.iterate_lines():
        of_files = files.of_line(line.number, definitions.host(line))
        calls = CallStream(weave(of_files, messages.of_line(line.number)))
        definitions.add_location(line, events.write(line.number, calls))
        errors.check()
    # Communicators have members on ranks whose threads are not selected, too.
    idle = np.setdiff1d(messages.locations, selection.lines)
    for line in selection.db.lines.rows(idle.tolist()):
        definitions.add_location(line, events.write_nothing(line.number))
    _otf2.Archive_CloseEvtFiles(archive)
    _otf2.Archive_CloseDefFiles(archive)
    writer = _otf2.Archive_GetGlobalDefWriter(archive)
    definitions.write(writer, messages, files)
    _otf2.Archive_CloseGlobalDefWriter(archive, writer)
    _write_phases(archive, selection.phases, selection.lines)
    _otf2.Archive_Close(archive)


def _write_phases(archive: Any, phases: ExportedPhases, lines: I64) -> None:
    """Write the phases of ``lines`` as markers; definitions must have been written."""
    if not phases:
        return
    writer = _otf2.Archive_GetMarkerWriter(archive)
    names = [_c_text(name) for name in phases.names]
    for group, name in enumerate(names):
        if group:
            _otf2.MarkerWriter_WriteDefMarker(writer, group, "phase", name, _otf2.SEVERITY_NONE)
    for line in lines.tolist():
        for begin, end, group in phases.of_line(line):
            _otf2.MarkerWriter_WriteMarker(
                writer, begin, end - begin, group, _otf2.MARKER_SCOPE_LOCATION, line, names[group]
            )
    _otf2.Archive_CloseMarkerWriter(archive, writer)


def _c_text(text: str) -> str:
    """Return ``text`` as the library can write it: its strings end with a NUL."""
    return utf8(text).replace("\0", "\\x00")


def _flush(*_: object) -> Any:
    return _otf2.FLUSH


class _EventWriter:
    """Writes the records of locations in sequence.

    ``rows`` are the places among the selection's metrics of the records' attributes.
    """

    def __init__(self, archive: Any, selection: ExportSelection, table: ContextTable) -> None:
        self._archive = archive
        self._selection = selection
        self._table = table
        named = [row for row, name in enumerate(selection.names) if name != RECORDS]
        self.rows = named or [0]
        self._scale = np.array([1e9 if selection.units[row] == "s" else 1.0 for row in self.rows])
        self._attributes = _otf2.AttributeList_New()
        self._calls = CallEventWriter(self._attributes, len(self.rows))
        self._samples = SampleWriter(self._attributes)

    def write(self, line: int, calls: CallStream) -> int:
        """Write the records of trace line ``line`` and its calls; returns the number of events."""
        writer = self._open(line)
        count = 0
        for block in self._selection.trace(line):
            count += self._write_block(writer, block, calls)
        for events in calls.until(None):
            count += self._write_calls(writer, events)
        _otf2.Archive_CloseEvtWriter(self._archive, writer)
        return count

    def write_nothing(self, line: int) -> int:
        """Write a location without records; returns 0."""
        _otf2.Archive_CloseEvtWriter(self._archive, self._open(line))
        return 0

    def _open(self, line: int) -> Any:
        # Without local definitions readers take a location's file for missing.
        _otf2.Archive_CloseDefWriter(self._archive, _otf2.Archive_GetDefWriter(self._archive, line))
        return _otf2.Archive_GetEvtWriter(self._archive, line)

    def _write_block(self, writer: Any, block: TraceBlock, calls: CallStream) -> int:
        """Write ``block`` and between its records ``calls``; returns the number of events."""
        kept = np.flatnonzero(block.recorded)
        if not len(kept):
            return 0
        cost: F64 = block.cost[self.rows][:, kept] * self._scale[:, None]
        which: I64 = cost.argmax(axis=0)
        weight = whole_numbers(cost.sum(axis=0))
        time = block.time[kept]
        samples = np.stack(
            (time, self._table.of_node[block.node[kept]], block.event[kept], which, weight), axis=1
        ).astype(np.int64, copy=False)
        count = written = 0
        for events in calls.until(int(time[-1])):
            # The number of samples before each event.
            place = np.searchsorted(time, events.time, "right")
            starts = [*np.flatnonzero(np.diff(place, prepend=-1)).tolist(), len(events)]
            for start, end in pairwise(starts):
                upto = int(place[start])
                self._samples.write(writer, samples[written:upto])
                count += self._write_calls(writer, events[start:end])
                written = upto
        self._samples.write(writer, samples[written:])
        return count + len(kept)

    def _write_calls(self, writer: Any, calls: CallEvents) -> int:
        self._calls.write(writer, calls, self._table.of_node[calls.node].astype(np.int64))
        return len(calls)


class _Group(NamedTuple):
    """A process: its rank and job, the string of its name, the system tree node of its host."""

    rank: int | None
    job: str
    name: int
    host: int


class _Definitions:
    """The global definitions, written when the number of events of every location is known."""

    def __init__(
        self,
        selection: ExportSelection,
        table: ContextTable,
        events: _EventWriter,
        strings: Numbering[str],
    ) -> None:
        self._selection = selection
        self._table = table
        self._rows = events.rows
        self._string = strings
        self._hosts: Numbering[str] = Numbering(first=1)
        self._groups: dict[int, _Group] = {}
        self._locations: list[tuple[int, int, int, int]] = []

    def host(self, line: Line) -> int:
        return self._hosts[line.host]

    def add_location(self, line: Line, events: int) -> None:
        """Add a trace line with ``events`` records."""
        process = int(self._selection.db.lines.process[line.number])
        if process not in self._groups:
            rank = f"rank {line.rank} " if line.rank is not None else ""
            name = self._string[f"{rank}{line.process} {line.pid}"]
            self._groups[process] = _Group(line.rank, line.job, name, self.host(line))
        self._locations.append((line.number, self._string[line.label], events, process))

    def write(self, writer: Any, messages: ArchivedMessages, files: ArchivedFiles) -> None:
        """Write all definitions; a definition comes before others that refer to it."""
        selection = self._selection
        begin, end = selection.span
        _otf2.GlobalDefWriter_WriteClockProperties(
            writer, _RESOLUTION, begin, end - begin, selection.db.origin_ns + begin
        )
        code = self._code()
        machine, node = self._string["machine"], self._string["node"]
        hosts = [(self._string[host], number) for host, number in self._hosts.items()]
        attributes = self._attributes()
        generators = self._generators()
        messages.define_strings()
        files.define_strings()
        for text, number in self._string.items():
            _otf2.GlobalDefWriter_WriteString(writer, number, _c_text(text))
        for number, attribute in enumerate(attributes):
            _otf2.GlobalDefWriter_WriteAttribute(writer, number, *attribute)
        _otf2.GlobalDefWriter_WriteSystemTreeNode(writer, 0, machine, machine, _UNDEFINED)
        for name, number in hosts:
            _otf2.GlobalDefWriter_WriteSystemTreeNode(writer, number, name, node, 0)
        numbers = self._group_numbers(messages.locations)
        for process, number in numbers.items():
            group = self._groups[process]
            _otf2.GlobalDefWriter_WriteLocationGroup(
                writer, number, group.name, _otf2.LOCATION_GROUP_TYPE_PROCESS, group.host,
                _UNDEFINED,
            )  # fmt: skip
        for line, name, events, process in self._locations:
            _otf2.GlobalDefWriter_WriteLocation(
                writer, line, name, _otf2.LOCATION_TYPE_CPU_THREAD, events, numbers[process]
            )
        for number, (name, mode, exponent, period) in enumerate(generators):
            _otf2.GlobalDefWriter_WriteInterruptGenerator(
                writer, number, name, mode, _otf2.BASE_DECIMAL, exponent, period
            )
        self._write_code(writer, *code)
        messages.write_definitions(writer)
        files.write_definitions(writer)

    def _group_numbers(self, locations: list[int]) -> dict[int, int]:
        """Return the location group of each process, ranks first: some readers take these numbers
        for ranks. ``locations`` are the locations of ranks that sent messages."""
        ranks, unranked = [], []
        for process, group in self._groups.items():
            if group.rank is None:
                unranked.append(process)
            else:
                ranks.append((group.job, group.rank, process))
        of_messages = self._selection.db.lines.process[locations].tolist()
        order = [*of_messages, *(process for _, _, process in sorted(ranks)), *unranked]
        return {process: number for number, process in enumerate(dict.fromkeys(order))}

    def _attributes(self) -> list[tuple[int, int, Any]]:
        """Return name, description and type of the attributes of samples and of calls."""
        names, units, strings = self._selection.names, self._selection.units, self._string
        metrics = [
            (strings[names[row]], strings["ns" if units[row] == "s" else units[row]],
             _otf2.TYPE_UINT64)
            for row in self._rows
        ]  # fmt: skip
        if not len(self._selection.db.calls):
            return metrics
        return metrics + [
            (strings[name], strings[description], kind)
            for name, description, kind in CALL_ATTRIBUTES
        ]

    def _generators(self) -> list[tuple[int, Any, int, int]]:
        """Return name, mode, exponent and period of each event."""
        events, units = self._selection.events, self._selection.db.metrics.units
        generators = []
        columns = zip(events.name, events.metric.tolist(), events.weight.tolist(),
                      events.interval.tolist(), strict=True)  # fmt: skip
        for name, metric, weight, interval in columns:
            timed = metric >= 0 and units[metric] == "s"
            mode = _otf2.INTERRUPT_GENERATOR_MODE_TIME
            period = 1 if interval else max(round(weight * 1e9), 1)
            if not timed:
                mode = _otf2.INTERRUPT_GENERATOR_MODE_COUNT
                period = max(round(weight), 1)
            generators.append((self._string[name], mode, -9 if timed else 0, period))
        return generators

    def _code(self) -> tuple[list[tuple[int, int, int]], dict[tuple[int, int], int], list[int]]:
        """Return regions (name, file, line), source code locations, and each frame's region."""
        frames, procedures = self._table.frames, self._selection.db.procedures
        regions: Numbering[tuple[int, int, int]] = Numbering()
        places: Numbering[tuple[int, int]] = Numbering()
        region_of = []
        columns = zip(frames.name, frames.procedure.tolist(), frames.inlined.tolist(),
                      frames.file, frames.line.tolist(), strict=True)  # fmt: skip
        for name, procedure, inlined, file, line in columns:
            source, begin = (
                ("", 0)
                if inlined
                else (procedures.file[procedure], int(procedures.line[procedure]))
            )
            key = (self._string[name], self._string[source], begin)
            region_of.append(regions[key])
            if file:
                places[self._string[file], line]
        return list(regions), places, region_of

    def _write_code(
        self,
        writer: Any,
        regions: list[tuple[int, int, int]],
        places: dict[tuple[int, int], int],
        region_of: list[int],
    ) -> None:
        for number, (name, file, line) in enumerate(regions):
            _otf2.GlobalDefWriter_WriteRegion(
                writer, number, name, name, 0, _otf2.REGION_ROLE_FUNCTION, _otf2.PARADIGM_SAMPLING,
                _otf2.REGION_FLAG_NONE, file, line, 0,
            )  # fmt: skip
        for (file, line), number in places.items():
            _otf2.GlobalDefWriter_WriteSourceCodeLocation(writer, number, file, line)
        frames = self._table.frames
        place_of = [
            places[self._string[file], line] if file else _UNDEFINED
            for file, line in zip(frames.file, frames.line.tolist(), strict=True)
        ]
        columns = zip(self._table.parent.tolist(), self._table.frame.tolist(), strict=True)
        for context, (parent, frame) in enumerate(columns):
            _otf2.GlobalDefWriter_WriteCallingContext(
                writer, context, region_of[frame], place_of[frame], parent or _UNDEFINED
            )
