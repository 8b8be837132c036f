"""Recorded calls of input and output as operations on handles of an OTF2 archive.

Descriptors are not recorded, so a handle is a file or connection in one process. From an open to
the last close it is a handle of its own, which these create and destroy. A file that is used
without having been opened is a handle that existed before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import _otf2
import numpy as np

from hpcd.analysis.calls.totals import MOVED, READ, UNKNOWN, WRITTEN
from hpcd.array_types import I64, Mask
from hpcd.interchange.numbering import Numbering
from hpcd.interchange.otf2.otf2_events import UNDEFINED_32, CallEventKind, CallEvents, weave
from hpcd.interchange.output.export_selection import ExportSelection
from hpcd.model.calls import CalledFunction, Group, ValueKind

_OPENS = frozenset(
    {"open", "openat", "openat2", "creat", "accept", "accept4", "connect", "socket",
     "io_uring_setup"}
)  # fmt: skip
_CLOSE = "close"
_FLUSHES = frozenset({"fsync", "fdatasync", "sync_file_range", "syncfs"})
_READ, _WRITE, _FLUSH = (
    int(mode.value)
    for mode in (
        _otf2.IO_OPERATION_MODE_READ, _otf2.IO_OPERATION_MODE_WRITE, _otf2.IO_OPERATION_MODE_FLUSH,
    )
)  # fmt: skip
_READ_WRITE = int(_otf2.IO_ACCESS_MODE_READ_WRITE.value)
_PARADIGM = 0
# Calls of a line taken at once: some 20 MB with all that is made of them.
_CALLS_AT_ONCE = 1 << 16
# Properties of files other than their names, with Score-P's terms.
_PROPERTIES = (("file_system", "File system"), ("mount", "Mount point"))


@dataclass
class _Uses:
    """Times at which an object was open in a process: ``begin[k]`` to ``end[k]``, ``handle[k]``."""

    begin: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    handle: list[int] = field(default_factory=list)


class ArchivedFiles:
    """The files of a selection and the operations of calls on them."""

    def __init__(self, selection: ExportSelection, strings: Numbering[str]) -> None:
        """Find the handles: O(n · log n) in the calls that open and close."""
        self._db = selection.db
        self._selection = selection
        self._strings = strings
        self._functions = self._db.calls.of_group(Group.IO)
        self._names = {function.id: strings[function.name] for function in self._functions}
        self._files: dict[int, tuple[int, int]] = {}
        self._handles: list[tuple[int, int, bool]] = []
        self._lasting: dict[tuple[int, int], int] = {}
        self._uses: dict[tuple[int, int], _Uses] = {}
        self._opened: dict[int, list[CallEvents]] = defaultdict(list)
        if self._functions:
            self._find_uses()

    def of_line(self, line: int, host: int) -> Iterator[CallEvents]:
        """Yield the events of trace line ``line`` in order, some ten thousand at a time.

        ``host`` is the line's system tree node.
        """
        if not self._functions:
            return
        opened = CallEvents.join(self._opened.pop(line, ()))
        for events in weave(self._operations_of(line), opened):
            for handle in np.unique(events.argument[:, 0]).tolist():
                called = self._handles[handle][0]
                if called in self._db.calls.objects:
                    self._files.setdefault(called, (len(self._files), host))
            yield events

    def _operations_of(self, line: int) -> Iterator[CallEvents]:
        """Yield the operations of a line's calls on files, in order."""
        calls, process = self._db.calls, int(self._db.lines.process[line])
        times = calls.time[int(calls.first[line]) : int(calls.first[line + 1])]
        # A piece for each stretch of time, without events that end in a later one.
        bounds = [*np.unique(times[::_CALLS_AT_ONCE]).tolist(), None]
        pending, before = CallEvents.join([]), 0
        for low, high in pairwise(bounds):
            selected = calls.select([line], low, high, self._functions)
            parts = [pending]
            for function in self._functions:
                at = np.flatnonzero(selected["function"] == function.id)
                begin = selected["time"][at]
                end = begin + selected["duration"][at]
                node = selected["node"][at].astype(np.int64)
                kept = self._selection.select_calls(np.full(len(at), line), begin, end, node)
                turn = 4 * (before + at[kept])
                parts += self._operations(function, selected[at[kept]], turn, process)
            before += len(selected)
            events = CallEvents.join(parts)
            over = len(events) if high is None else int(np.searchsorted(events.time, high))
            yield events[:over]
            pending = events[over:]

    def define_strings(self) -> None:
        """Number all strings of the definitions."""
        if not self._handles:
            return
        for text in ("POSIX", "POSIX I/O", UNKNOWN, *(name for _, name in _PROPERTIES)):
            self._strings[text]
        for called in self._files:
            row = self._db.calls.objects[called]
            for text in (row.name, *(getattr(row, name) for name, _ in _PROPERTIES)):
                self._strings[text]

    def write_definitions(self, writer: Any) -> None:
        """Write files and handles; system tree nodes must have been written."""
        if not self._handles:
            return
        strings, objects = self._strings, self._db.calls.objects
        _otf2.GlobalDefWriter_WriteIoParadigm(
            writer, _PARADIGM, strings["POSIX"], strings["POSIX I/O"],
            _otf2.IO_PARADIGM_CLASS_SERIAL, _otf2.IO_PARADIGM_FLAG_OS, (), (), (),
        )  # fmt: skip
        for called, (number, host) in self._files.items():
            row = objects[called]
            write = (
                _otf2.GlobalDefWriter_WriteIoDirectory
                if row.kind == "directory"
                else _otf2.GlobalDefWriter_WriteIoRegularFile
            )
            write(writer, number, strings[row.name], host)
            for name, title in _PROPERTIES:
                if text := getattr(row, name):
                    value = _otf2.AttributeValue()
                    value.stringRef = strings[text]
                    _otf2.GlobalDefWriter_WriteIoFileProperty(
                        writer, number, strings[title], _otf2.TYPE_STRING, value
                    )
        for number, (called, _, before) in enumerate(self._handles):
            name = objects[called].name if called in self._files else UNKNOWN
            file = self._files[called][0] if called in self._files else UNDEFINED_32
            flags = _otf2.IO_HANDLE_FLAG_PRE_CREATED if before else _otf2.IO_HANDLE_FLAG_NONE
            _otf2.GlobalDefWriter_WriteIoHandle(
                writer, number, strings[name], file, _PARADIGM, flags, UNDEFINED_32, UNDEFINED_32
            )
            if before:
                _otf2.GlobalDefWriter_WriteIoPreCreatedHandleState(
                    writer, number, _otf2.IO_ACCESS_MODE_READ_WRITE, _otf2.IO_STATUS_FLAG_NONE
                )

    # --- handles ---

    def _find_uses(self) -> None:
        """Find the times at which objects were open, and the events that open and close them."""
        db = self._db
        opening = [
            function
            for function in self._functions
            if function.name in _OPENS or function.name == _CLOSE
        ]
        calls = db.calls.select(functions=opening)
        closing = np.array([function.name == _CLOSE for function in db.calls.functions], bool)
        closes = closing[calls["function"]]
        called = np.zeros(len(calls), np.int64)
        failed = np.zeros(len(calls), bool)
        for function in opening:
            mine = np.flatnonzero(calls["function"] == function.id)
            called[mine] = _value(function, calls[mine], ValueKind.OBJECT)
            failed[mine] = _value(function, calls[mine], ValueKind.ERROR) > 0
        begin, line = calls["time"], calls["line"].astype(np.int64)
        end = begin + calls["duration"]
        is_selected = self._selection.select_calls(line, begin, end, calls["node"].astype(np.int64))
        when = np.where(closes, begin, end)
        process = db.lines.process[line].astype(np.int64)
        at = np.flatnonzero(~failed & (called > 0))
        at = at[np.lexsort((closes[at], when[at], called[at], process[at]))]
        key, count = (-1, -1), 0
        creates: list[tuple[int, int]] = []
        destroys: list[tuple[int, int]] = []
        columns = (at.tolist(), process[at].tolist(), called[at].tolist(), closes[at].tolist(),
                   when[at].tolist(), is_selected[at].tolist())  # fmt: skip
        for call, owner, opened, is_close, time, selected in zip(*columns, strict=True):
            if (owner, opened) != key:
                key, count = (owner, opened), 0
            uses = self._uses.setdefault(key, _Uses())
            if not is_close:
                count += 1
                if count == 1:
                    uses.begin.append(time)
                    uses.end.append(1 << 62)
                    uses.handle.append(self._new(key, before=not selected))
                    if selected:
                        creates.append((call, uses.handle[-1]))
            elif count:
                count -= 1
                if not count:
                    uses.end[-1] = time
                    if selected:
                        destroys.append((call, uses.handle[-1]))
        self._add_events(calls, CallEventKind.IO_CREATE, creates, (_READ_WRITE, 0, 0))
        self._add_events(calls, CallEventKind.IO_DESTROY, destroys, ())

    def _add_events(
        self, calls: Any, kind: CallEventKind, pairs: list[tuple[int, int]], behind: tuple[int, ...]
    ) -> None:
        """Add events of (call, handle) at the return of each call."""
        if not pairs:
            return
        at, handle = np.array(pairs, np.int64).T
        mine = calls[at]
        name = np.array([self._names[number] for number in mine["function"].tolist()], np.int64)
        events = CallEvents.of_kind(
            kind, mine["line"].astype(np.int64), mine["time"] + mine["duration"],
            # Before other uses at that moment, or behind them.
            np.full(len(at), -1 if kind is CallEventKind.IO_CREATE else 1 << 62),
            mine["node"].astype(np.int64), name, (handle, *behind),
            mine["weight"].astype(np.int64),
        )  # fmt: skip
        for line in np.unique(events.line).tolist():
            self._opened[line].append(events[events.line == line])

    def _new(self, key: tuple[int, int], *, before: bool) -> int:
        self._handles.append((key[1], key[0], before))
        return len(self._handles) - 1

    def _handles_of(self, process: int, called: I64, time: I64) -> I64:
        """Return int64[n]: the handles of objects ``called`` at these times."""
        handles = np.zeros(len(called), np.int64)
        for number in np.unique(called).tolist():
            at = np.flatnonzero(called == number)
            key = process, number
            uses = self._uses.get(key, _Uses())
            place = np.searchsorted(uses.begin, time[at], side="right") - 1
            is_open: Mask = place >= 0
            is_open[is_open] = time[at][is_open] < np.array(uses.end, np.int64)[place[is_open]]
            handles[at[is_open]] = np.array(uses.handle, np.int64)[place[is_open]]
            if not is_open.all():
                if key not in self._lasting:
                    self._lasting[key] = self._new(key, before=True)
                handles[at[~is_open]] = self._lasting[key]
        return handles

    # --- operations ---

    def _operations(
        self, function: CalledFunction, calls: Any, turn: I64, process: int
    ) -> list[CallEvents]:
        """Return beginnings and ends of the operations of ``calls`` of one function."""
        names = {value.name: at for at, value in enumerate(function.values)}
        if not len(calls):
            return []
        if function.name in _FLUSHES:
            none = np.zeros(len(calls), np.int64)
            called = _value(function, calls, ValueKind.OBJECT)
            return self._events_of(function, calls, turn, process, called, _FLUSH, none, none)
        if READ in names:
            mode, moved = _READ, READ
        elif WRITTEN in names or MOVED in names:
            mode, moved = _WRITE, WRITTEN if WRITTEN in names else MOVED
        else:
            return []
        size = calls["value"][:, names[moved]].astype(np.int64)
        requested = size
        if "asked" in names:
            given = calls["value"][:, names["asked"]].astype(np.int64)
            # 0: the call names no number.
            requested = np.where(given > 0, given, size)
        called = _value(function, calls, ValueKind.OBJECT)
        events = self._events_of(function, calls, turn, process, called, mode, size, requested)
        if moved == MOVED:
            source = _value(function, calls, ValueKind.OBJECT, 1)
            events += self._events_of(
                function, calls, turn + 2, process, source, _READ, size, requested
            )
        return events

    def _events_of(
        self, function: CalledFunction, calls: Any, turn: I64, process: int, called: I64,
        mode: int, size: I64, requested: I64,
    ) -> list[CallEvents]:  # fmt: skip
        line, begin = calls["line"].astype(np.int64), calls["time"]
        handle = self._handles_of(process, called, begin)
        name = np.full(len(calls), self._names[function.id])
        weight = calls["weight"].astype(np.int64)
        node = calls["node"].astype(np.int64)
        return [
            CallEvents.of_kind(
                CallEventKind.IO_BEGIN, line, begin, turn, node, name,
                (handle, mode, 0, requested, turn), weight,
            ),
            CallEvents.of_kind(
                CallEventKind.IO_COMPLETE, line, begin + calls["duration"], turn + 1, node, name,
                (handle, size, turn), weight,
            ),
        ]  # fmt: skip


def _value(function: CalledFunction, calls: Any, kind: ValueKind, number: int = 0) -> I64:
    """Return int64[n]: value ``number`` of the values of a kind, 0 if the function has none."""
    places = [at for at, value in enumerate(function.values) if value.kind is kind]
    if len(places) <= number:
        return np.zeros(len(calls), np.int64)
    values: I64 = calls["value"][:, places[number]].astype(np.int64)
    return values
