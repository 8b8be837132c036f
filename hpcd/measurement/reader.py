"""Reading a measurement, finished or not, trusting none of it."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from hpcd.array_types import I64
from hpcd.errors import FormatError, NotFoundError
from hpcd.measurement import codec
from hpcd.measurement.call_codec import Calls, decode_calls
from hpcd.measurement.chunk import ChunkHeader, ChunkKind
from hpcd.measurement.codec import RecordChunk
from hpcd.measurement.description import Description
from hpcd.measurement.segments import Segments
from hpcd.model.calls import ValueKind


def open_measurement(
    path: Path | str, size: int | None = None, *, texts: bool = False
) -> Measurement:
    """Open a measurement directory, or as much of it as its segments' first ``size`` bytes.

    With ``texts`` the stored text of identities is kept, too, if it is short.

    Raises :class:`NotFoundError` if it does not exist, :class:`FormatError` if it is something
    else or entirely unreadable.
    """
    return Measurement(Path(path), size, texts=texts)


class Measurement(Description):
    """A measurement directory: its description, and its chunks of records and calls."""

    def __init__(self, path: Path, size: int | None, *, texts: bool) -> None:
        if not path.is_dir():
            if not path.exists():
                raise NotFoundError(f"{path}: no such measurement")
            raise FormatError(f"{path}: not a measurement directory")
        super().__init__(texts=texts)
        self.path = path
        self.id: int | None = None
        self.bytes_read = 0
        """Stored bytes of records handed out so far."""
        self._segments = Segments(path, size, lambda line: self.add_damage([line]))
        # Each records chunk with the nodes known when it was written: it may refer to no others.
        self._records: list[tuple[int, ChunkHeader, int]] = []
        self._calls: list[tuple[int, ChunkHeader, int]] = []
        try:
            self.refresh()
            if not len(self._segments):
                if path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
                    raise NotFoundError(f"{path}: permission denied")
                if any(path.glob("*/segment-*.hpcd")):
                    raise FormatError(f"{path}: a directory of measurements; give {path}/*")
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
    def ended(self) -> bool:
        """Whether nothing more will come: the writer finished, or is gone."""
        return self.closed or not self.being_written

    @property
    def size(self) -> int:
        """Bytes of the segments, as many as the last one has now."""
        return self._segments.size

    @property
    def chunks(self) -> int:
        """Chunks of records so far."""
        return len(self._records)

    def chunks_between(self, begin: int, end: int) -> tuple[int, int]:
        """Return the first chunk of records that begins between two places in the segments, counted
        over all of them, and the first chunk after them."""
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
                self._segments.report_damage(number, header.offset, str(error))
                continue
            yield records

    def some_chunks(self, first: int, count: int, room: codec.Room | None) -> Iterator[RecordChunk]:
        """Yield up to ``count`` of the chunks from ``first`` on, evenly spread, as a sample of the
        rest. Damaged ones are left out. ``room`` is as for :meth:`record_chunks`."""
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
        if self._versions:
            records.node[:] = self._versions.nodes(records.node, records.time_ns)
        return records

    @property
    def has_calls(self) -> bool:
        """Whether calls of functions were recorded, if only there had been any."""
        return any(function.is_called for function in self.functions.values())

    @property
    def number_of_call_chunks(self) -> int:
        """Chunks of calls so far."""
        return len(self._calls)

    def call_chunks(self, first: int = 0, *, waits: bool = False) -> Iterator[Calls]:
        """All recorded calls from chunk ``first`` on, a chunk at a time, sorted by line and time
        within it; with ``waits`` the waits, which are stored as calls, too.

        Damaged chunks are left out and named in ``damage``.
        """
        uncalled = [id for id, function in self.functions.items() if not function.is_called]
        for number, header, nodes in self._calls[first:]:
            self.bytes_read += header.stored
            try:
                calls = decode_calls(self._segments.payload(number, header))
                for what, column, known in (
                    ("node", calls.node, range(nodes)),
                    ("line", calls.line, self.threads),
                    ("function", calls.function, self.functions),
                    *(
                        ("node", calls.value[at, place], range(nodes))
                        for at, place in self._node_values(calls)
                    ),
                ):
                    strange = [id for id in np.unique(column).tolist() if id not in known]
                    if strange:
                        raise FormatError(f"CALLS chunk refers to unknown {what} {strange[0]}")
            except FormatError as error:
                self._segments.report_damage(number, header.offset, str(error))
                continue
            if self._versions:
                calls = calls.with_nodes(self._versions.nodes(calls.node, calls.time))
                for at, place in self._node_values(calls):
                    node = calls.value[at, place].astype(np.uint32)
                    calls.value[at, place] = self._versions.nodes(node, calls.time[at])
            if not waits:
                calls = calls[~np.isin(calls.function, uncalled)]
            if len(calls):
                yield calls

    def _node_values(self, calls: Calls) -> Iterator[tuple[I64, int]]:
        """The values of ``calls`` that are nodes: positions of calls, and the value's number."""
        for function in self.functions.values():
            for place, value in enumerate(function.values):
                if value.kind is ValueKind.NODE:
                    yield np.flatnonzero(calls.function == function.id), place

    # --- scanning ---

    def refresh(self) -> bool:
        """Take in data appended since the last call; return whether there was any."""
        before = self._segments.sequence
        for number, header in self._segments.scan():
            if header.kind == ChunkKind.RECORDS:
                self._records.append((number, header, self.nodes))
            elif header.kind == ChunkKind.CALLS:
                self._calls.append((number, header, self.nodes))
            else:
                try:
                    self.take(header.kind, partial(self._segments.payload, number, header))
                except FormatError as error:
                    self._segments.report_damage(number, header.offset, str(error))
        self.id = self._segments.id
        return self._segments.sequence > before
