"""Measurements whose records go into one part: their trees and events are united.

A batch is a long measurement, or many short ones: fixed work per batch takes longer than
processing a short measurement's records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hpcd.analysis.arrays.bounds import bounds_of
from hpcd.analysis.merge.read.measurement_contents import (
    contents_of,
    events_of,
    with_calls,
)
from hpcd.analysis.merge.read.record_batches import Batch, RecordColumns
from hpcd.analysis.merge.unite.canonical_modules import translate, unite_modules
from hpcd.analysis.merge.unite.part_groups import unite_as_met
from hpcd.analysis.merge.unite.united_events import UNKNOWN_EVENT, event_key
from hpcd.analysis.trace.part_contents import MeasurementContents
from hpcd.array_types import I64, U16, U32
from hpcd.errors import FormatError
from hpcd.measurement.codec import RecordChunk
from hpcd.measurement.reader import Measurement, open_measurement
from hpcd.model import frame
from hpcd.model.cct_union import DEPTH_LIMIT
from hpcd.model.identity import KERNEL_KINDS, Event

_EVENTS = 1 << 16

# Chunks behind the first records that are looked at before nodes are numbered, and the count of
# records after which no more are.
_MORE_CHUNKS = 16
_MORE_RECORDS = 1 << 16
# The same where a measurement is divided.
_SHARED_RECORDS = 1 << 18


@dataclass(slots=True, eq=False)
class BatchMember:
    """A measurement of a batch, opened.

    ``contents`` are without counts and times of lines; ``calls`` payloads of CALLS chunks.
    ``lines`` ``int64[k]`` ascending are its declared lines, ``unknown`` other lines with
    records. In a batch its lines are rows from ``first_row`` on, ``node`` is the
    batch's node of each of its nodes (None where they are equal), ``event`` ``uint16[65536]`` its
    event of each code, which the first ``same_events`` codes are, and ``modules`` ``uint32[m]`` the
    module in the tree's frames of each of its load modules.
    """

    measurement: Measurement
    contents: MeasurementContents
    calls: list[bytes]
    lines: I64
    unknown: set[int] = field(default_factory=set)
    first_row: int = 0
    node: U32 | None = None
    event: U16 = field(default_factory=lambda: np.zeros(0, np.uint16))
    same_events: int = 0
    modules: U32 = field(default_factory=lambda: np.zeros(0, np.uint32))

    @staticmethod
    def open(path: Path, size: int | None, *, calls: bool = True) -> BatchMember:
        """Open a measurement, or as much of it as its first ``size`` bytes; with ``calls`` they
        are read too. Raises :class:`FormatError` or :class:`NotFoundError` if it is not one or has
        impossible values: later stages find values in range, except times of records."""
        measurement = open_measurement(path, size, texts=True)
        try:
            measurement.cct.validate(str(path))
            measurement.divide_by_version()
            tree = measurement.cct
            if len(tree) > DEPTH_LIMIT and int(tree.depth().max()) >= DEPTH_LIMIT:
                raise FormatError(
                    f"{path}: calling context tree is deeper than {DEPTH_LIMIT} frames"
                )
            contents = contents_of(measurement, path, size or measurement.size)
            payloads: list[bytes] = []
            if calls:
                contents, payloads = with_calls(contents, measurement)
            lines = np.array(sorted(measurement.threads), np.int64)
            return BatchMember(measurement, contents, payloads, lines)
        except BaseException:
            measurement.close()
            raise

    @property
    def rows(self) -> slice:
        """The batch's rows of the measurement's lines."""
        return slice(self.first_row, self.first_row + len(self.lines))

    def add_unknown_lines(self) -> None:
        """Take lines that records were met of as lines: their announcement was lost."""
        self.lines = np.union1d(self.lines, np.array(sorted(self.unknown), np.int64))
        self.unknown.clear()

    def rows_of(self, line: U32) -> I64 | None:
        """``int64[k]``: the batch's rows of lines; None, and they are noted, where some are
        unknown."""
        rows = np.searchsorted(self.lines, line)
        announced = self.lines[np.minimum(rows, len(self.lines) - 1)] == line
        if not announced.all():
            self.unknown.update(line[~announced].tolist())
            return None
        return rows + self.first_row

    def translate(self, records: RecordChunk) -> None:
        """Replace nodes and events of ``records`` by the batch's, in place."""
        if self.node is not None:
            records.node[:] = self.node[records.node]
        if int(records.event.max(initial=0)) >= self.same_events:
            records.event[:] = self.event[records.event]


class MeasurementBatch:
    """The measurements ``members``, at least one, whose rows follow one another.

    ``tree`` is the union of their trees; ``events`` are theirs, each once, in the order they are
    met; records of an event whose announcement was lost have the number ``unknown_event``.
    """

    def __init__(self, members: Sequence[BatchMember]) -> None:
        """Raises :class:`FormatError` where there are more load modules or events than can be
        numbered."""
        self.members = members
        self._unite_trees()
        self._unite_events()
        row = 0
        for member in members:
            member.first_row = row
            row += len(member.lines)
        self.rows = row

    def _unite_trees(self) -> None:
        contents = [member.contents for member in self.members]
        united, maps = unite_modules(
            [one.modules for one in contents], [one.host for one in contents],
            [one.id for one in contents],
        )  # fmt: skip
        trees = [
            translate(member.measurement.cct, modules)
            for member, modules in zip(self.members, maps, strict=True)
        ]
        self.tree, node = unite_as_met(trees)
        self._kernel_modules = [one.id for one in united if one.kind in KERNEL_KINDS]
        bounds = bounds_of([len(tree) for tree in trees]).tolist()
        for member, modules, low, high in zip(self.members, maps, bounds, bounds[1:], strict=False):
            member.modules = modules
            own = node[low:high]
            same = np.array_equal(own, np.arange(len(own), dtype=np.uint32))
            member.node = None if same else own

    def _unite_events(self) -> None:
        numbers: dict[tuple[object, ...], int] = {}
        self.events: list[Event] = []
        tables = [events_of(member.measurement) for member in self.members]
        for event in (event for table in tables for event in table.values()):
            number = numbers.setdefault(event_key(event), len(numbers))
            if number == len(self.events):
                self.events.append(replace(event, id=number))
        self.unknown_event = len(self.events)
        if self.unknown_event >= _EVENTS:
            raise FormatError(f"{self.members[0].contents.path}: more than {_EVENTS} events")
        # Most members of a batch have the same table, and share the array.
        known: dict[tuple[tuple[int, int], ...], tuple[U16, int]] = {}
        for member, table in zip(self.members, tables, strict=True):
            key = tuple((code, numbers[event_key(event)]) for code, event in table.items())
            if key not in known:
                known[key] = self._event_codes(dict(key))
            member.event, member.same_events = known[key]

    def _event_codes(self, numbers: Mapping[int, int]) -> tuple[U16, int]:
        """Return ``uint16[65536]``, the batch's event of each code, and how many of the first codes
        are the batch's too."""
        codes = np.full(_EVENTS, self.unknown_event, np.uint16)
        for code, number in numbers.items():
            codes[code] = number
        same = next(
            (code for code in range(self.unknown_event) if codes[code] != code), self.unknown_event
        )
        return codes, same

    def user_nodes(self) -> U32:
        """Return the innermost node of the user's code on the path of each node of the tree,
        ``uint32[n]``; 0 if there is none."""
        is_kernel = np.isin(frame.module_of(self.tree.frame), self._kernel_modules)
        return self.tree.innermost(~is_kernel)

    @property
    def bytes_read(self) -> int:
        """Stored bytes of records handed out so far."""
        return sum(member.measurement.bytes_read for member in self.members)

    def records(self, target: int, first: int = 0, last: int | None = None) -> Iterator[Batch]:
        """Yield records in batches of about ``target``, by row, each to be used up before the next
        is taken; for a single measurement the records of chunks ``first`` to before ``last``.

        Short measurements are not divided. After records of unknown lines there are no more
        batches, and all such lines are noted.
        """
        columns = RecordColumns(target)
        alone = len(self.members) == 1
        known = True
        for member in self.members:
            for chunk in member.measurement.record_chunks(first, columns.room, last):
                if not len(chunk):
                    continue
                rows = member.rows_of(chunk.line)
                known = known and rows is not None
                if rows is None or not known:
                    continue
                member.translate(chunk)
                columns.keep(chunk, rows)
                if alone and len(columns) >= target:
                    yield columns.batch()
                    columns.empty()
            if known and len(columns) >= target:
                yield columns.batch()
                columns.empty()
        if known and len(columns):
            yield columns.batch()

    def node_order(self, first: Batch | None, enough: int = _MORE_RECORDS) -> U32:
        """Return the nodes that a part numbers first, by descending number of records.

        Their numbers then have similar low bytes and high bytes of 0, which saves a tenth of the
        size of a part's blocks, and their sums are stored close together. ``first`` are the first
        records; for a single measurement more chunks are read until they have ``enough`` records.
        """
        counts = np.zeros(len(self.tree), np.int64)
        if first is not None:
            counts += np.bincount(first.node, minlength=len(counts))
        if len(self.members) == 1:
            (member,) = self.members
            looked = 0
            chunks = 0 if first is None else first.chunks
            room = RecordColumns(0).room
            for chunk in member.measurement.some_chunks(chunks, _MORE_CHUNKS, room):
                member.translate(chunk)
                counts += np.bincount(chunk.node, minlength=len(counts))
                looked += len(chunk)
                if looked > enough:
                    break
        seen = np.flatnonzero(counts)
        return seen[np.argsort(-counts[seen], kind="stable")].astype(np.uint32)

    def shared_order(self) -> U32:
        """Return :meth:`node_order` for a share of a measurement: whichever it is, the same chunks
        are looked at."""
        return self.node_order(None, _SHARED_RECORDS)

    def events_with(self, used: Iterable[int]) -> list[Event]:
        """The events, and the unknown one if it is among the numbers ``used``."""
        if self.unknown_event not in used:
            return self.events
        return [*self.events, replace(UNKNOWN_EVENT, id=self.unknown_event)]
