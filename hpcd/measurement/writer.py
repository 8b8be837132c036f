"""Writing a measurement.

Promises: nothing written is changed; a chunk is written whole or not at all; what a record refers
to is written before it. So a writer killed at any moment loses what it had not flushed and nothing
else, and a reader may follow along.

No fsync per flush: the promise is against the writer's death, which the page cache survives, and a
disk's latency must not reach the collector. A segment is synced once when it is full or closed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.array_types import U16, U32, U64
from hpcd.errors import StorageError
from hpcd.measurement import codec
from hpcd.measurement.call_codec import Calls, encode_calls
from hpcd.measurement.chunk import (
    SEGMENT_HEADER_BYTES,
    VERSION,
    Kind,
    encode_chunk,
    segment_header,
)
from hpcd.measurement.identity_columns import table_of
from hpcd.measurement.record_columns import (
    Columns,
    first_rows,
    in_order,
    join_columns,
    last_rows,
)
from hpcd.measurement.summary import Summary
from hpcd.model.calls import CalledFunction, CalledObject, function_row, object_row
from hpcd.model.identity import Event, Host, Module, Process, Thread

_RECORDS_PER_CHUNK = 1 << 18
_NODES_PER_CHUNK = 1 << 18
_ROWS_PER_CHUNK = 4096
_CALLS_PER_CHUNK = 1 << 18
# What is kept in memory while the disk takes nothing: 16 M records are 350 MB.
_KEEP_RECORDS = 4 << 20
# 1 M calls are 80 MB.
_KEEP_CALLS = 1 << 20
DEFAULT_SEGMENT_BYTES = 256 << 20


# Chunks of tables of identities, in the order they are written.
_TABLES: dict[Kind, type[Any]] = {
    Kind.EVENT: Event, Kind.PROCESS: Process, Kind.MODULE: Module, Kind.THREAD: Thread,
}  # fmt: skip


class MeasurementWriter:
    """Writes one measurement directory (mode 0700), made here or ``existing`` and empty; what is in
    it belongs to ``owner`` (uid, gid). With ``sync``, segments are on the disk when they are full.

    Raises :class:`StorageError` in one line when the directory exists or cannot be made, and from
    :meth:`flush` and :meth:`close` when the disk is full or fails; what was flushed before stays
    sound, what was not is kept (up to a bound, then counted in ``dropped_storage``) and the next
    flush tries again.
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
        self._sync = sync
        self.bytes_written: Counter[str] = Counter()
        self.dropped_storage = 0
        self.records_written = 0
        self.calls_written = 0
        self.calls_dropped = 0
        self._segment_bytes = segment_bytes
        self._owner = owner
        self._id = int.from_bytes(os.urandom(8), "little")
        self._sequence = 0
        self._segments = 0
        self._fd = -1
        self._size = 0
        self._nodes = 1
        self._rows: dict[Kind, dict[object, Event | Process | Thread | Module]] = {}
        self._lasting: frozenset[int] = frozenset()
        self._symbols: dict[int, list[tuple[int, int, str]]] = {}
        self._clock: list[tuple[int, int]] = []
        self._pending_nodes: list[tuple[U32, U64]] = []
        self._pending: list[Columns] = []
        self._pending_count = 0
        self._called: list[CalledFunction] = []
        self._objects: list[CalledObject] = []
        self._pending_calls: list[Calls] = []
        self._pending_calls_count = 0
        self._closed = False
        self._made = not existing
        if not existing:
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                raise StorageError(f"{path} exists already; choose another with -o") from None
            except OSError as error:
                raise StorageError(f"cannot make {path}: {error.strerror}") from None
            self._own(path)
        try:
            self._next_segment()
            meta = {"node": asdict(host), "options": options, "version": VERSION}
            self._append(Kind.META, _json(meta))
        except StorageError:
            self.discard()
            raise

    # --- what to write ---

    def add_event(self, event: Event) -> None:
        """Announce an event; like all rows, a later one with the same id replaces it."""
        self._rows.setdefault(Kind.EVENT, {})[event.id] = event
        if event.interval and event.unit == "s" and round(event.scale * 1e9) == codec.TIME_UNIT_NS:
            self._lasting |= {event.id}

    def add_process(self, process: Process) -> None:
        """Announce a process."""
        self._rows.setdefault(Kind.PROCESS, {})[process.id] = process

    def add_thread(self, thread: Thread) -> None:
        """Announce a trace line, or its end."""
        self._rows.setdefault(Kind.THREAD, {})[thread.line] = thread

    def add_module(self, module: Module) -> None:
        """Announce a load module."""
        self._rows.setdefault(Kind.MODULE, {})[module.id] = module

    def add_symbols(self, module: int, rows: list[tuple[int, int, str]]) -> None:
        """Symbols of a module that only the recorder can name: (start offset, size, name)."""
        self._symbols.setdefault(module, []).extend(rows)

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
        """Announce a recorded function; a later one with the same id replaces it."""
        self._called.append(function)

    def add_object(self, called: CalledObject) -> None:
        """Announce what values of calls refer to; a later one with the same id replaces it."""
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
        """Write everything pending: who, then CCT, then records, then calls."""
        try:
            self._flush_identities()
            self._flush_nodes()
            self._flush_records()
            self._flush_calls()
            if summary is not None:
                self._append(Kind.SUMMARY, _json(summary._replace(closed=False).to_json()))
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
            self._append(Kind.SUMMARY, _json({**document, "closed": finished}))
            index = {"records": self.records_written, "nodes": self._nodes}
            if self.calls_written:
                index["calls"] = self.calls_written
            self._append(Kind.INDEX, _json({**index, "chunks": self._sequence + 1}))
            self._closed = True
        finally:
            self._close_segment()

    def _flush_identities(self) -> None:
        for kind, of in _TABLES.items():
            rows = self._rows.get(kind, {})
            while rows:
                keys = list(rows)[:_ROWS_PER_CHUNK]
                self._append(kind, _json(table_of(of, [rows[key] for key in keys])))
                for key in keys:
                    del rows[key]
        if self._symbols:
            columns = {k: tuple(zip(*v, strict=True)) for k, v in self._symbols.items() if v}
            self._append(Kind.SYMBOLS, _json(columns))
            self._symbols = {}
        if self._clock:
            self._append(Kind.CLOCK, _json(self._clock))
            self._clock = []

    def _flush_nodes(self) -> None:
        if not self._pending_nodes:
            return
        parent = np.concatenate([nodes[0] for nodes in self._pending_nodes])
        frame = np.concatenate([nodes[1] for nodes in self._pending_nodes])
        first = self._nodes - len(parent)
        for at in range(0, len(parent), _NODES_PER_CHUNK):
            part = slice(at, at + _NODES_PER_CHUNK)
            # What is written is no longer pending, should the next part fail.
            self._append(Kind.CCT, codec.encode_nodes(first + at, parent[part], frame[part]))
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
            self._append(Kind.RECORDS, codec.encode_records(part, self._lasting))
            self.records_written += len(part[0])
            self._pending_count -= len(part[0])
            rest = last_rows(rest, len(part[0]))
        self._pending = []

    def _flush_calls(self) -> None:
        for kind, rows in (
            (Kind.CALLED, [function_row(row) for row in self._called]),
            (Kind.OBJECTS, [object_row(row) for row in self._objects]),
        ):
            for at in range(0, len(rows), _ROWS_PER_CHUNK):
                self._append(kind, _json(rows[at : at + _ROWS_PER_CHUNK]))
        self._called, self._objects = [], []
        if not self._pending_calls:
            return
        rest = Calls.joined(self._pending_calls).in_order()
        while len(rest):
            self._pending_calls = [rest]
            part = rest[:_CALLS_PER_CHUNK]
            self._append(Kind.CALLS, encode_calls(part))
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

    # --- segments ---

    def _append(self, kind: Kind, payload: bytes) -> None:
        data = encode_chunk(kind, payload, self._sequence)
        full = self._size + len(data) > self._segment_bytes and self._size > SEGMENT_HEADER_BYTES
        if full or self._fd < 0:  # without one, the last attempt to begin a segment failed
            self._next_segment()
        self._write(data)
        self._sequence += 1
        self.bytes_written[kind.name.lower()] += len(data)

    def _write(self, data: bytes) -> None:
        """All of ``data`` or nothing: a part that got through is cut off again."""
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, memoryview(data)[done:])
        except OSError as error:
            self._cut_back()
            raise self._failure(error) from None
        self._size += len(data)

    def _cut_back(self) -> None:
        # Should this fail too: a torn chunk at the end is skipped by every reader.
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self._size)

    def _failure(self, error: OSError) -> StorageError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "no space left" if full else error.strerror
        return StorageError(
            f"writing {self.path} failed: {reason}; what was recorded before is safe"
        )

    def _next_segment(self) -> None:
        self._close_segment()
        path = self.path / f"segment-{self._segments:06d}.hpcd"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._fd = os.open(path, flags, 0o600)
            # Readers tell a living writer from a dead one by this lock.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise self._failure(error) from None
        if self._owner:
            os.fchown(self._fd, *self._owner)
        self._size = 0
        try:
            self._write(segment_header(self._segments, self._id))
        except StorageError:
            # A segment without a header would make what follows unreadable.
            os.close(self._fd)
            self._fd = -1
            path.unlink(missing_ok=True)
            raise
        self._segments += 1

    def _close_segment(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                if self._sync:
                    os.fdatasync(fd)
            except OSError as error:
                raise self._failure(error) from None
            finally:
                os.close(fd)

    def discard(self) -> None:
        """Remove the measurement: nothing came of it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        for segment in self.path.glob("segment-*.hpcd"):
            segment.unlink()
        if self._made:
            self.path.rmdir()

    def _own(self, path: Path) -> None:
        if self._owner:
            os.chown(path, *self._owner, follow_symlinks=False)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=_plain).encode()


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(type(value).__name__)
