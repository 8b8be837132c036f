"""Writing a measurement.

Promises: written bytes never change; a chunk is written whole or not at all; rows come before
records that refer to them. So a writer killed at any moment loses only data that it had not
flushed, and a reader may follow along.

No fsync per flush: the promise is against the writer's death, which the page cache survives, and a
disk's latency must not reach the collector. A segment is synced once when it is full or closed.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.array_types import U16, U32, U64
from hpcd.errors import StorageError
from hpcd.measurement import codec
from hpcd.measurement.call_codec import Calls, encode_calls
from hpcd.measurement.chunk import VERSION, ChunkKind
from hpcd.measurement.identity_columns import table_of
from hpcd.measurement.record_columns import (
    Columns,
    first_rows,
    in_order,
    join_columns,
    last_rows,
)
from hpcd.measurement.segment_writer import SegmentWriter
from hpcd.measurement.summary import Summary
from hpcd.model.calls import CalledFunction, CalledObject, object_row
from hpcd.model.identity import Event, Host, Module, Process, Thread

_RECORDS_PER_CHUNK = 1 << 18
_NODES_PER_CHUNK = 1 << 18
_ROWS_PER_CHUNK = 4096
_CALLS_PER_CHUNK = 1 << 18
# Bound on pending records while the disk accepts nothing: 16 M records are 350 MB.
_KEEP_RECORDS = 4 << 20
# 1 M calls are 80 MB.
_KEEP_CALLS = 1 << 20
DEFAULT_SEGMENT_BYTES = 256 << 20


# Chunks of tables of identities, in the order they are written.
_TABLES: dict[ChunkKind, type[Any]] = {
    ChunkKind.EVENT: Event,
    ChunkKind.PROCESS: Process,
    ChunkKind.MODULE: Module,
    ChunkKind.THREAD: Thread,
}


class MeasurementWriter:
    """Writes one measurement directory (mode 0700), created or ``existing`` and empty; its files
    belong to ``owner`` (uid, gid). With ``sync``, segments are on the disk when they are full.

    Raises :class:`StorageError` in one line when the directory exists or cannot be made, and from
    :meth:`flush` and :meth:`close` when the disk is full or fails; flushed data stays sound,
    pending data is kept (up to a bound, then counted in ``dropped_storage``) and the next flush
    tries again.
    """

    def __init__(
        self,
        path: Path,
        host: Host,
        *,
        options: dict[str, object],
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        owner: tuple[int, int] | None = None,
        existing: bool = False,
        sync: bool = True,
    ) -> None:
        self.path = path
        self._segments = SegmentWriter(path, segment_bytes, owner, existing=existing, sync=sync)
        self.dropped_storage = 0
        self.records_written = 0
        self.calls_written = 0
        self.calls_dropped = 0
        self._nodes = 1
        self._rows: dict[ChunkKind, dict[object, Event | Process | Thread | Module]] = {}
        self._lasting: frozenset[int] = frozenset()
        self._symbols: dict[int, list[tuple[int, int, str, int]]] = {}
        self._clock: list[tuple[int, int]] = []
        self._pending_nodes: list[tuple[U32, U64]] = []
        self._pending: list[Columns] = []
        self._pending_count = 0
        self._called: list[CalledFunction] = []
        self._objects: list[CalledObject] = []
        self._pending_calls: list[Calls] = []
        self._pending_calls_count = 0
        self._closed = False
        try:
            meta = {"node": asdict(host), "options": options, "version": VERSION}
            self._segments.append(ChunkKind.META, _json(meta))
        except StorageError:
            self._segments.discard()
            raise

    @property
    def bytes_written(self) -> Counter[str]:
        """Bytes by kind of chunk."""
        return self._segments.bytes_written

    def discard(self) -> None:
        """Remove the measurement."""
        self._segments.discard()

    # --- what to write ---

    def add_event(self, event: Event) -> None:
        """Announce an event; as for all rows, a later row with the same id replaces it."""
        self._rows.setdefault(ChunkKind.EVENT, {})[event.id] = event
        if event.interval and event.unit == "s" and round(event.scale * 1e9) == codec.TIME_UNIT_NS:
            self._lasting |= {event.id}

    def add_process(self, process: Process) -> None:
        """Announce a process."""
        self._rows.setdefault(ChunkKind.PROCESS, {})[process.id] = process

    def add_thread(self, thread: Thread) -> None:
        """Announce a trace line, or its end."""
        self._rows.setdefault(ChunkKind.THREAD, {})[thread.line] = thread

    def add_module(self, module: Module) -> None:
        """Announce a load module."""
        self._rows.setdefault(ChunkKind.MODULE, {})[module.id] = module

    def add_symbols(
        self, module: int, rows: list[tuple[int, int, str]], since_ns: list[int] | None = None
    ) -> None:
        """Symbols of a module that only the recorder can name: (start offset, size, name), and the
        monotonic time from which each is the name of its code; None if that never changes."""
        times = [0] * len(rows) if since_ns is None else since_ns
        timed = [(*row, since) for row, since in zip(rows, times, strict=True)]
        if timed:
            self._symbols.setdefault(module, []).extend(timed)

    def add_clock_pair(self, monotonic_ns: int, realtime_ns: int) -> None:
        """Readings of both clocks at one moment."""
        self._clock.append((monotonic_ns, realtime_ns))

    def add_nodes(self, parent: U32, frame: U64) -> int:
        """Append CCT nodes (``uint32[n]``, ``uint64[n]``); returns the first one's id."""
        first = self._nodes
        if len(parent):
            self._pending_nodes.append((parent.copy(), frame.copy()))
            self._nodes += len(parent)
        return first

    def add_records(
        self,
        line: U32,
        time_ns: U64,
        node: U32,
        event: U16 | int,
        value: U64 | None = None,
    ) -> None:
        """Add records in any order; ``value`` None means 1 each."""
        n = len(line)
        events = np.full(n, event, np.uint16) if isinstance(event, int) else event
        values = np.ones(n, np.uint64) if value is None else value
        self._pending.append((line, time_ns, node, events, values))
        self._pending_count += n
        if self._pending_count > _KEEP_RECORDS:
            self.flush()

    def add_function(self, function: CalledFunction) -> None:
        """Announce a recorded function; a later row with the same id replaces it."""
        self._called.append(function)

    def add_object(self, called: CalledObject) -> None:
        """Announce an object that calls refer to; a later row with the same id replaces it."""
        self._objects.append(called)

    def add_calls(self, calls: Calls) -> None:
        """Add calls in any order. Their functions, objects, nodes and lines are announced by the
        next flush."""
        if len(calls):
            self._pending_calls.append(calls)
            self._pending_calls_count += len(calls)
            if self._pending_calls_count > _KEEP_CALLS:
                self.flush()

    # --- writing ---

    def flush(self, summary: Summary | None = None) -> None:
        """Write everything pending: identities, then CCT, then records, then calls."""
        try:
            self._flush_identities()
            self._flush_nodes()
            self._flush_records()
            self._flush_calls()
            if summary is not None:
                self._segments.append(
                    ChunkKind.SUMMARY, _json(summary._replace(closed=False).to_json())
                )
        except StorageError:
            self._bound_pending()
            raise

    def close(self, summary: Summary | None = None, *, finished: bool = True) -> None:
        """Flush, write the closing summary and the index. Closing again does nothing.

        ``finished`` is False if the recording failed.
        """
        if self._closed:
            return
        try:
            self.flush()
            document = summary.to_json() if summary else {}
            self._segments.append(ChunkKind.SUMMARY, _json({**document, "closed": finished}))
            index = {"records": self.records_written, "nodes": self._nodes}
            if self.calls_written:
                index["calls"] = self.calls_written
            index["chunks"] = self._segments.chunks + 1
            self._segments.append(ChunkKind.INDEX, _json(index))
            self._closed = True
        finally:
            self._segments.close()

    def _flush_identities(self) -> None:
        for kind, of in _TABLES.items():
            rows = self._rows.get(kind, {})
            while rows:
                keys = list(rows)[:_ROWS_PER_CHUNK]
                self._segments.append(kind, _json(table_of(of, [rows[key] for key in keys])))
                for key in keys:
                    del rows[key]
        if self._symbols:
            columns = {}
            for module, timed in self._symbols.items():
                *symbols, since = zip(*timed, strict=True)
                columns[module] = [*symbols, since] if any(since) else symbols
            self._segments.append(ChunkKind.SYMBOLS, _json(columns))
            self._symbols = {}
        if self._clock:
            self._segments.append(ChunkKind.CLOCK, _json(self._clock))
            self._clock = []

    def _flush_nodes(self) -> None:
        if not self._pending_nodes:
            return
        parent = np.concatenate([nodes[0] for nodes in self._pending_nodes])
        frame = np.concatenate([nodes[1] for nodes in self._pending_nodes])
        first = self._nodes - len(parent)
        for at in range(0, len(parent), _NODES_PER_CHUNK):
            part = slice(at, at + _NODES_PER_CHUNK)
            payload = codec.encode_nodes(first + at, parent[part], frame[part])
            self._segments.append(ChunkKind.CCT, payload)
            # Written nodes are no longer pending, even if the next chunk fails.
            rest = slice(at + _NODES_PER_CHUNK, None)
            self._pending_nodes = [(parent[rest], frame[rest])] if len(parent[rest]) else []

    def _flush_records(self) -> None:
        if not self._pending:
            return
        rest = in_order(join_columns(self._pending))
        while len(rest[0]):
            self._pending = [rest]
            few = len(rest[0]) <= _RECORDS_PER_CHUNK
            part = rest if few else first_rows(rest, _RECORDS_PER_CHUNK)
            self._segments.append(ChunkKind.RECORDS, codec.encode_records(part, self._lasting))
            self.records_written += len(part[0])
            self._pending_count -= len(part[0])
            rest = last_rows(rest, len(part[0]))
        self._pending = []

    def _flush_calls(self) -> None:
        for kind, rows in (
            (ChunkKind.CALLED, [asdict(row) for row in self._called]),
            (ChunkKind.OBJECTS, [object_row(row) for row in self._objects]),
        ):
            for at in range(0, len(rows), _ROWS_PER_CHUNK):
                self._segments.append(kind, _json(rows[at : at + _ROWS_PER_CHUNK]))
        self._called, self._objects = [], []
        if not self._pending_calls:
            return
        rest = Calls.joined(self._pending_calls).in_order()
        while len(rest):
            self._pending_calls = [rest]
            part = rest[:_CALLS_PER_CHUNK]
            self._segments.append(ChunkKind.CALLS, encode_calls(part))
            self.calls_written += len(part)
            self._pending_calls_count -= len(part)
            rest = rest[_CALLS_PER_CHUNK:]
        self._pending_calls = []

    def _bound_pending(self) -> None:
        while self._pending_calls_count > _KEEP_CALLS and self._pending_calls:
            lost = len(self._pending_calls.pop(0))
            self._pending_calls_count -= lost
            self.calls_dropped += lost
        while self._pending_count > _KEEP_RECORDS and self._pending:
            lost = len(self._pending.pop(0)[0])
            self._pending_count -= lost
            self.dropped_storage += lost


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=_plain).encode()


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(type(value).__name__)
