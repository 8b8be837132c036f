"""Reading a measurement, finished or not, trusting none of it."""

from __future__ import annotations

import contextlib
import json
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hpcd.array_types import U32, U64
from hpcd.errors import FormatError, NotFoundError
from hpcd.measurement import chunk, codec
from hpcd.measurement.call_codec import Calls, decode_calls
from hpcd.measurement.chunk import ChunkHeader, Kind
from hpcd.measurement.codec import RecordChunk
from hpcd.measurement.identity_columns import IdentityColumns, read_host, read_table
from hpcd.measurement.losses import Losses
from hpcd.measurement.recorded_symbols import RecordedSymbols
from hpcd.measurement.segments import Segments
from hpcd.measurement.summary import Summary
from hpcd.model.calls import CalledFunction, CalledObject, read_function, read_object
from hpcd.model.cct import CCT
from hpcd.model.identity import Event, Host, Module, Process, Thread

_MAX_DAMAGE_LINES = 100
# Chunks of tables of identities: the attribute they are in, and what they are of.
_TABLES: dict[int, tuple[str, type[Any]]] = {
    Kind.EVENT: ("events", Event),
    Kind.PROCESS: ("processes", Process),
    Kind.THREAD: ("threads", Thread),
    Kind.MODULE: ("modules", Module),
}
# Those that may stay columns.
_COLUMNS = frozenset((Kind.PROCESS, Kind.THREAD))
# Kinds of chunks whose text is kept where that is requested, and up to how many bytes.
_TEXTS = frozenset((Kind.EVENT, Kind.PROCESS, Kind.THREAD, Kind.MODULE, Kind.SYMBOLS))
_MOST_TEXT = 1 << 20


def open_measurement(
    path: Path | str, size: int | None = None, *, texts: bool = False
) -> Measurement:
    """Open a measurement directory, or as much of it as its segments' first ``size`` bytes are.

    With ``texts`` what says who was measured is kept as it was written, too, if it is short.

    Raises :class:`NotFoundError` when there is none, :class:`FormatError` when it is something
    else or nothing of it can be read.
    """
    return Measurement(Path(path), size, texts=texts)


def _read_table(kind: int, payload: bytes) -> IdentityColumns[Any]:
    """The table of a chunk."""
    return read_table(_TABLES[kind][1], json.loads(payload))


def _read_rows(kind: int, payload: bytes) -> dict[int, Any]:
    """The rows of a chunk by number."""
    return dict(_read_table(kind, payload).items())


# Payloads up to this size are kept with their decoded content: many short measurements of a host
# or job say the same of much.
_SHORT = 1 << 14
_known_table = lru_cache(maxsize=64)(_read_table)
_known_rows = lru_cache(maxsize=256)(_read_rows)


class Measurement:
    """A measurement directory.

    ``events``, ``processes``, ``threads`` (by line), ``modules`` map ids to the rows of
    :mod:`hpcd.model.identity`, ``functions`` and ``objects`` to what calls were of
    (:mod:`hpcd.model.calls`); ``symbols`` maps module ids to (start, size, name) rows;
    ``clock_pairs`` is ``int64[n, 2]`` (monotonic ns, realtime ns); ``damage`` says in words what
    had to be skipped. ``closed`` is False when its writer died or still writes. ``losses`` are the
    stretches between two summaries in which samples were dropped: (from, to, how many), in
    monotonic ns. ``texts`` are the JSON arrays and objects that identities and symbols were read
    from, by kind of chunk; None where they were not requested, are long, or not all were sound.
    """

    def __init__(self, path: Path, size: int | None = None, *, texts: bool = False) -> None:
        if not path.is_dir():
            if not path.exists():
                raise NotFoundError(f"{path}: no such measurement")
            raise FormatError(f"{path}: not a measurement directory")
        self.path = path
        self.host = Host("", "", "", "", 0)
        self.options: dict[str, object] = {}
        self.events: dict[int, Event] = {}
        self.processes: Mapping[int, Process] = {}
        self.threads: Mapping[int, Thread] = {}
        self.modules: dict[int, Module] = {}
        self.functions: dict[int, CalledFunction] = {}
        self.objects: dict[int, CalledObject] = {}
        self._symbols = RecordedSymbols()
        self.summary: Summary | None = None
        self.index: dict[str, Any] | None = None
        self.damage: list[str] = []
        self._losses = Losses()
        self.id: int | None = None
        self.texts: dict[int, list[bytes]] | None = {} if texts else None
        self._texts_size = 0
        self.bytes_read = 0
        """Stored bytes of records handed out so far."""
        self._clock: list[tuple[int, int]] = []
        self._parent: list[U32] = [np.zeros(1, np.uint32)]
        self._frame: list[U64] = [np.zeros(1, np.uint64)]
        self._nodes = 1
        self._cct: CCT | None = None
        self._segments = Segments(path, size, self._say)
        # Each records chunk with the nodes known when it was written: it may refer to no others.
        self._records: list[tuple[int, ChunkHeader, int]] = []
        self._calls: list[tuple[int, ChunkHeader, int]] = []
        try:
            self.refresh()
            if not len(self._segments):
                if path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
                    raise NotFoundError(f"{path}: permission denied")
                raise FormatError(f"{path}: not a measurement directory (it has no segments)")
            if self.id is None:
                raise FormatError(self.damage[0] if self.damage else f"{path}: nothing readable")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Measurement:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the segment files."""
        self._segments.close()

    # --- contents ---

    @property
    def closed(self) -> bool:
        """Whether the writer finished properly."""
        return self.index is not None

    @property
    def being_written(self) -> bool:
        """Whether a living writer holds the last segment."""
        return self._segments.being_written

    @property
    def size(self) -> int:
        """Bytes of the segments, as many as the last one has now."""
        return self._segments.size

    @property
    def clock_pairs(self) -> npt.NDArray[np.int64]:
        """``int64[n, 2]``: (monotonic ns, realtime ns), in order of time."""
        return np.array(sorted(self._clock), dtype=np.int64).reshape(-1, 2)

    @property
    def cct(self) -> CCT:
        """The node table of all threads' calling context trees."""
        if self._cct is None or len(self._cct) != self._nodes:
            self._cct = CCT(np.concatenate(self._parent), np.concatenate(self._frame))
            self._parent, self._frame = [self._cct.parent], [self._cct.frame]
        return self._cct

    @property
    def symbols(self) -> dict[int, list[tuple[int, int, str]]]:
        """(start, size, name) rows by module."""
        return self._symbols.rows()

    @property
    def named_modules(self) -> set[int]:
        """The modules that there are symbols of."""
        return self._symbols.modules()

    @property
    def losses(self) -> list[tuple[int, int, int]]:
        """The intervals between two summaries in which samples were dropped."""
        return self._losses.intervals

    @property
    def chunks(self) -> int:
        """Chunks of records so far."""
        return len(self._records)

    def chunks_between(self, begin: int, end: int) -> tuple[int, int]:
        """The first chunk of records that begins between two places in the segments, counted over
        all of them, and the one behind the last."""
        places = [self._segments.place(number, header) for number, header, _ in self._records]
        return bisect_left(places, begin), bisect_left(places, end)

    def record_chunks(
        self, first: int = 0, room: codec.Room | None = None, last: int | None = None
    ) -> Iterator[RecordChunk]:
        """All records from chunk ``first`` to before ``last`` (None: all there are), a chunk at a
        time, each decoded when requested.

        Damaged chunks are left out and named in ``damage``. With ``room``
        (:func:`hpcd.measurement.codec.decode_records`) into columns of the caller's.
        """
        for number, header, nodes in self._records[first:last]:
            self.bytes_read += header.stored
            try:
                records = self._decode(number, header, nodes, room)
            except FormatError as error:
                self._damaged(number, header.offset, str(error))
                continue
            yield records

    def some_chunks(
        self, first: int, count: int, room: codec.Room | None = None
    ) -> Iterator[RecordChunk]:
        """Up to ``count`` of the chunks from ``first`` on, evenly spread, to see what the rest is
        like. Damaged ones are left out. ``room`` is that of :meth:`record_chunks`."""
        rest = len(self._records) - first
        for place in sorted({first + rest * number // count for number in range(count)}):
            if place < len(self._records):
                with contextlib.suppress(FormatError):
                    yield self._decode(*self._records[place], room)

    def _decode(
        self, number: int, header: ChunkHeader, nodes: int, room: codec.Room | None = None
    ) -> RecordChunk:
        payload = self._segments.payload(number, header)
        records = codec.decode_records(payload, room)
        if len(records) and int(records.node.max()) >= nodes:
            raise FormatError(f"RECORDS chunk refers to node {int(records.node.max())} of {nodes}")
        if len(records) and int(records.line.max()) not in self.threads:
            line = int(records.line.max())
            raise FormatError(f"RECORDS chunk refers to line {line}, which has no thread")
        return records

    @property
    def has_calls(self) -> bool:
        """Whether calls of functions were recorded, if only there had been any."""
        return bool(self.functions or self._calls)

    @property
    def number_of_call_chunks(self) -> int:
        """Chunks of calls so far."""
        return len(self._calls)

    def call_chunks(self, first: int = 0) -> Iterator[Calls]:
        """All recorded calls from chunk ``first`` on, a chunk at a time, sorted by line and time
        within it.

        Damaged chunks are left out and named in ``damage``.
        """
        for number, header, nodes in self._calls[first:]:
            self.bytes_read += header.stored
            try:
                calls = decode_calls(self._segments.payload(number, header))
                for what, column, known in (
                    ("node", calls.node, range(nodes)),
                    ("line", calls.line, self.threads),
                    ("function", calls.function, self.functions),
                ):
                    strange = [id for id in np.unique(column).tolist() if id not in known]
                    if strange:
                        raise FormatError(
                            f"CALLS chunk refers to {what} {strange[0]}, which there is not"
                        )
            except FormatError as error:
                self._damaged(number, header.offset, str(error))
                continue
            yield calls

    def thread_nodes(self, line: int) -> U32:
        """The calling context tree of one thread: the nodes its records reach, in order."""
        used = np.zeros(self._nodes, dtype=bool)
        for records in self.record_chunks():
            at = np.flatnonzero(records.line == line)
            for place in at.tolist():
                used[records.node[records.start[place] : records.start[place + 1]]] = True
        parent = self.cct.parent
        reached = np.flatnonzero(used).astype(np.uint32)
        while len(reached):
            used[reached] = True
            above = np.unique(parent[reached])
            reached = above[~used[above]]
        return np.flatnonzero(used).astype(np.uint32)

    # --- scanning ---

    def refresh(self) -> bool:
        """Take in what was appended since; True when there was anything."""
        before = self._segments.sequence
        for number, header in self._segments.scan():
            if header.kind == Kind.RECORDS:
                self._records.append((number, header, self._nodes))
            elif header.kind == Kind.CALLS:
                self._calls.append((number, header, self._nodes))
            else:
                try:
                    self._take(number, header)
                except FormatError as error:
                    self._damaged(number, header.offset, str(error))
        self.id = self._segments.id
        return self._segments.sequence > before

    def _take(self, number: int, header: ChunkHeader) -> None:
        if header.kind == Kind.CCT:
            self._take_nodes(self._segments.payload(number, header))
        elif header.kind in self._TAKERS or header.kind in _TABLES or header.kind == Kind.SYMBOLS:
            kept, self.texts = self.texts, None
            try:
                payload = self._segments.payload(number, header)
                if header.kind in _TABLES:
                    self._take_table(header.kind, payload, by_column=kept is not None)
                elif header.kind == Kind.SYMBOLS:
                    self._symbols.take(payload, as_text=kept is not None)
                else:
                    self._TAKERS[header.kind](self, json.loads(payload))
                self.texts = self._with_text(kept, header.kind, payload)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                name = chunk.kind_name(header.kind)
                why = f"{type(error).__name__}: {error}"
                raise FormatError(f"{name} chunk has unexpected contents: {why}") from None
            except RecursionError:
                name = chunk.kind_name(header.kind)
                raise FormatError(f"{name} chunk is nested too deeply") from None

    def _with_text(
        self, texts: dict[int, list[bytes]] | None, kind: int, payload: bytes
    ) -> dict[int, list[bytes]] | None:
        if texts is not None and kind in _TEXTS:
            self._texts_size += len(payload)
            if self._texts_size > _MOST_TEXT:
                return None
            texts.setdefault(kind, []).append(payload)
        return texts

    def _take_nodes(self, data: bytes) -> None:
        first, parent, frame = codec.decode_nodes(data)
        if first != self._nodes:
            raise FormatError(f"calling context tree goes on at node {first}, not {self._nodes}")
        self._parent.append(parent)
        self._frame.append(frame)
        self._nodes += len(parent)

    def _meta(self, value: dict[str, Any]) -> None:
        self.host = read_host(value["node"])
        self.options = dict(value["options"])

    def _take_table(self, kind: int, payload: bytes, *, by_column: bool) -> None:
        name, short = _TABLES[kind][0], len(payload) < _SHORT
        rows: Mapping[int, Any] = getattr(self, name)
        if by_column and not rows and kind in _COLUMNS:
            table = (_known_table if short else _read_table)(kind, payload)
            if table.ascends():
                setattr(self, name, table)
                return
        known = (_known_rows if short else _read_rows)(kind, payload)
        if not isinstance(rows, dict):
            setattr(self, name, dict(rows.items()) | known)
        else:
            rows.update(known)

    def _take_functions(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            function = read_function(row)
            if not 0 <= function.id < 1 << 16:
                raise FormatError(f"function {function.id} is out of range")
            self.functions[function.id] = function

    def _take_objects(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            called = read_object(row)
            if not 0 < called.id < 1 << 32:
                raise FormatError(f"object {called.id} is out of range")
            self.objects[called.id] = called

    def _take_summary(self, value: object) -> None:
        self.summary = Summary.from_json(value)
        if self._clock:
            self._losses.take(self.summary, self._clock[0][0], self._clock[-1][0])

    def _take_index(self, value: dict[str, Any]) -> None:
        self.index = dict(value)

    def _take_clock(self, rows: list[Any]) -> None:
        self._clock.extend((int(a), int(b)) for a, b in rows)

    # What is done with JSON of each kind of chunk.
    _TAKERS: ClassVar[dict[int, Callable[[Measurement, Any], None]]] = {
        Kind.META: _meta,
        Kind.CLOCK: _take_clock,
        Kind.SUMMARY: _take_summary,
        Kind.INDEX: _take_index,
        Kind.CALLED: _take_functions,
        Kind.OBJECTS: _take_objects,
    }

    def _damaged(self, number: int, offset: int, what: str) -> None:
        self._segments.report_damage(number, offset, what)

    def add_damage(self, lines: Iterable[str]) -> None:
        """Add damage that others found that read this measurement too."""
        for line in lines:
            self._say(line)

    def _say(self, line: str) -> None:
        if line not in self.damage and len(self.damage) < _MAX_DAMAGE_LINES:
            self.damage.append(line)
