"""The description in a measurement: everything but its records and calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from hpcd.array_types import I64, U32, U64
from hpcd.errors import FormatError
from hpcd.measurement import chunk, codec
from hpcd.measurement.chunk import ChunkKind
from hpcd.measurement.code_versions import CodeVersions
from hpcd.measurement.identity_columns import IdentityColumns, read_host, read_table
from hpcd.measurement.recorded_symbols import RecordedSymbols
from hpcd.measurement.summary import Summary
from hpcd.model.calls import CalledFunction, CalledObject, read_function, read_object
from hpcd.model.cct import CCT
from hpcd.model.identity import LEAST_SCALE, MOST_SCALE, Event, Host, Module, Process, Thread

_MAX_DAMAGE_LINES = 100
# Bound on intervals with dropped samples; beyond it neighbours are joined in pairs.
_MAX_LOSSES = 1000
# Chunks with tables of identities: the attribute of ``Description`` and the type of their rows.
_TABLES: dict[int, tuple[str, type[Any]]] = {
    ChunkKind.EVENT: ("events", Event),
    ChunkKind.PROCESS: ("processes", Process),
    ChunkKind.THREAD: ("threads", Thread),
    ChunkKind.MODULE: ("modules", Module),
}
# Tables that may stay columns.
_COLUMNS = frozenset((ChunkKind.PROCESS, ChunkKind.THREAD))
# Kinds of chunks whose text is kept where that is requested, and up to how many bytes.
_TEXTS = frozenset(
    (ChunkKind.EVENT, ChunkKind.PROCESS, ChunkKind.THREAD, ChunkKind.MODULE, ChunkKind.SYMBOLS)
)
_MOST_TEXT = 1 << 20


def _read_table(kind: int, payload: bytes) -> IdentityColumns[Any]:
    return read_table(_TABLES[kind][1], json.loads(payload))


def _read_rows(kind: int, payload: bytes) -> dict[int, Any]:
    return dict(_read_table(kind, payload).items())


# Payloads up to this size are kept with their decoded content: many short measurements of a host
# or job say the same of much.
_SHORT = 1 << 14
_known_table = lru_cache(maxsize=64)(_read_table)
_known_rows = lru_cache(maxsize=256)(_read_rows)


class Losses:
    """``intervals`` between two summaries in which samples were dropped: (from, to, how many), in
    monotonic ns."""

    def __init__(self) -> None:
        self.intervals: list[tuple[int, int, int]] = []
        # From the previous summary: its time, the recording's duration, the number of drops.
        self._before = (0, 0.0, 0)

    def take(self, summary: Summary, first_ns: int, last_ns: int) -> None:
        """Take the next summary; the clock was read first at ``first_ns`` and last at ``last_ns``,
        just before the summary unless it is the recording's last."""
        dropped, lasted = sum(summary.samples.dropped.values()), summary.duration_s
        before, had_lasted, dropped_before = self._before
        now = max(last_ns, before + int((lasted - had_lasted) * 1e9) if before else 0)
        if dropped > dropped_before:
            self.intervals.append((before or first_ns, now, dropped - dropped_before))
        if len(self.intervals) > _MAX_LOSSES:
            pairs = zip(self.intervals[::2], self.intervals[1::2], strict=False)
            self.intervals = [(one[0], two[1], one[2] + two[2]) for one, two in pairs] + (
                self.intervals[-1:] if len(self.intervals) % 2 else []
            )
        self._before = (now, lasted, dropped)


class Description:
    """The description of a measurement, as read so far.

    ``events``, ``processes``, ``threads`` (by line), ``modules`` map ids to the rows of
    :mod:`hpcd.model.identity`, ``functions`` and ``objects`` to the functions called and the
    objects they refer to (:mod:`hpcd.model.calls`); ``damage`` describes skipped parts. ``texts``
    are the JSON texts of identities and symbols by kind of chunk; None if they were not requested,
    are long, or are partly damaged.
    """

    def __init__(self, *, texts: bool) -> None:
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
        self.index: dict[str, object] | None = None
        self.damage: list[str] = []
        self._losses = Losses()
        self.texts: dict[int, list[bytes]] | None = {} if texts else None
        self._texts_size = 0
        self._clock: list[tuple[int, int]] = []
        self._parent: list[U32] = [np.zeros(1, np.uint32)]
        self._frame: list[U64] = [np.zeros(1, np.uint64)]
        self.nodes = 1
        """Nodes of the calling context trees so far, the root among them."""
        self._cct: CCT | None = None
        self._versions: CodeVersions | None = None

    @property
    def clock_pairs(self) -> I64:
        """``int64[n, 2]``: (monotonic ns, realtime ns), in order of time."""
        return np.array(sorted(self._clock), dtype=np.int64).reshape(-1, 2)

    @property
    def cct(self) -> CCT:
        """The node table of all threads' calling context trees."""
        if self._cct is None or len(self._cct) != self.nodes:
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

    def divide_by_version(self) -> None:
        """Give paths through replaced code a node for each of its versions. Call it when all is
        read: records read later have these nodes. The text of symbols with times is not kept."""
        if not self._symbols.timed:
            return
        versions = CodeVersions(self.cct, self.modules, self._symbols.timed)
        self._cct, self.modules, self.nodes = versions.cct, versions.modules, len(versions.cct)
        self._symbols.replace_timed(versions.symbols)
        self.texts, self._versions = None, versions
        if not versions.complete:
            self.add_damage(["code was replaced too often: some of it has the names it had first"])

    @property
    def losses(self) -> list[tuple[int, int, int]]:
        """The intervals between two summaries in which samples were dropped."""
        return self._losses.intervals

    def add_damage(self, lines: Iterable[str]) -> None:
        """Add damage that was met, also by others that read this measurement."""
        for line in lines:
            if line not in self.damage and len(self.damage) < _MAX_DAMAGE_LINES:
                self.damage.append(line)

    def take(self, kind: int, read_payload: Callable[[], bytes]) -> None:
        """Take in a chunk if it belongs to the description. Raises :class:`FormatError`."""
        if kind == ChunkKind.CCT:
            self._take_nodes(read_payload())
        elif kind in self._TAKERS or kind in _TABLES or kind == ChunkKind.SYMBOLS:
            kept, self.texts = self.texts, None
            try:
                payload = read_payload()
                if kind in _TABLES:
                    self._take_table(kind, payload, by_column=kept is not None)
                elif kind == ChunkKind.SYMBOLS:
                    self._symbols.take(payload, as_text=kept is not None)
                else:
                    self._TAKERS[kind](self, json.loads(payload))
                self.texts = self._with_text(kept, kind, payload)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                name = chunk.kind_name(kind)
                why = f"{type(error).__name__}: {error}"
                raise FormatError(f"{name} chunk has unexpected contents: {why}") from None
            except RecursionError:
                raise FormatError(f"{chunk.kind_name(kind)} chunk is nested too deeply") from None

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
        if first != self.nodes:
            raise FormatError(f"calling context tree continues at node {first}, not {self.nodes}")
        self._parent.append(parent)
        self._frame.append(frame)
        self.nodes += len(parent)

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
        if kind == ChunkKind.EVENT:
            self._drop_odd_events()

    def _drop_odd_events(self) -> None:
        for number, event in self.events.items():
            if event.scale != 0 and not LEAST_SCALE <= event.scale < MOST_SCALE:
                self.events[number] = replace(event, scale=0.0)
                what = f"event {event.name!r} has the scale {event.scale!r}, which counts as 0"
                self.add_damage([what])
            if event.interval and not self.events[number].length_ns:
                self.events[number] = replace(self.events[number], interval=False)
                self.add_damage([f"event {event.name!r} lasts no time: it counts as no interval"])

    def _take_functions(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            function = read_function(row)
            if not 0 <= function.id < 1 << 16:
                raise FormatError(f"function {function.id} is out of range")
            self.functions[function.id] = function

    def _take_objects(self, rows: list[dict[str, object]]) -> None:
        for row in rows:
            called = read_object(row)
            if not 0 < called.id < 1 << 32:
                raise FormatError(f"object {called.id} is out of range")
            self.objects[called.id] = called

    def _take_summary(self, value: object) -> None:
        self.summary = Summary.from_json(value)
        if self._clock:
            self._losses.take(self.summary, self._clock[0][0], self._clock[-1][0])

    def _take_index(self, value: dict[str, object]) -> None:
        self.index = dict(value)

    def _take_clock(self, rows: list[Any]) -> None:
        pairs = [(int(a), int(b)) for a, b in rows]
        if not all(
            0 <= a < codec.MONOTONIC_LIMIT and 0 <= b < codec.REALTIME_LIMIT for a, b in pairs
        ):
            raise FormatError("clock readings are out of range")
        self._clock.extend(pairs)

    # The handler of each kind of JSON chunk.
    _TAKERS: ClassVar[dict[int, Callable[[Description, Any], None]]] = {
        ChunkKind.META: _meta,
        ChunkKind.CLOCK: _take_clock,
        ChunkKind.SUMMARY: _take_summary,
        ChunkKind.INDEX: _take_index,
        ChunkKind.CALLED: _take_functions,
        ChunkKind.OBJECTS: _take_objects,
    }
