"""Writing records and calls in order of time, once their call paths are finished."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpcd.array_types import U32, U64
from hpcd.daemon.capture.paths.cct_builder import CCTBuilder
from hpcd.daemon.capture.paths.stand_ins import StandIns
from hpcd.daemon.capture.records.record_batch import RecordBatch, joined
from hpcd.daemon.capture.records.recorder_kernels import note_newest
from hpcd.distinct import are_among, distinct
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.writer import MeasurementWriter


class RecordWriter:
    """Writes the nodes of ``cct``, and records and calls of them.

    A record with one of the ``stand_ins`` is held until its path is finished, and so are all later
    ones of its line: the records of a line are written in order of time.
    """

    def __init__(self, writer: MeasurementWriter, cct: CCTBuilder, stand_ins: StandIns) -> None:
        self._writer = writer
        self._cct = cct
        self._stand_ins = stand_ins
        self._written_nodes = 1
        self._held: list[RecordBatch] = []
        self._held_lines: U32 = np.zeros(0, np.uint32)
        self._late_sums: list[RecordBatch] = []
        self._newest: U64 = np.zeros(64, np.uint64)  # time of the last written record, by line

    def write(self, records: RecordBatch) -> None:
        """Write records, each line's in order of time, or hold them."""
        node, unfinished = self._stand_ins.translate(records.node)
        if len(self._held_lines) or unfinished.any():
            lines = distinct(np.append(self._held_lines, records.line[unfinished]))
            held = are_among(records.line, lines)
            records = replace(records, node=node)
            self._held.append(records.select(held))
            self._held_lines = lines
            records = records.select(~held)
        elif node is not records.node:
            records = replace(records, node=node)
        self._write_finished(records)

    def write_held(self) -> None:
        """Write the held records of each line up to the first path that is still not finished."""
        if not self._held:
            return
        records = joined(self._held).in_order()
        node, unfinished = self._stand_ins.translate(records.node)
        records = replace(records, node=node)
        place = np.arange(len(node))
        first = np.append(True, records.line[1:] != records.line[:-1])[: len(node)]
        begin = np.maximum.accumulate(np.where(first, place, 0))
        held = np.maximum.accumulate(np.where(unfinished, place, -1)) >= begin
        self._held = [records.select(held)] if held.any() else []
        self._held_lines = distinct(records.line[held])
        self._write_finished(records.select(~held))

    def write_short_waits(self, sums: RecordBatch) -> None:
        """Write sums of short waits, or hold those of paths that are not finished.

        A sum has the time of one of its waits: not before the last record written of its line, nor
        after those that are held of it.
        """
        sums = joined([sums, *self._late_sums])
        if not len(sums):
            return
        node, late = self._stand_ins.translate(sums.node)
        self._make_room(sums.line)
        newest = self._newest[sums.line]
        held = are_among(sums.line, self._held_lines)
        late |= held & (newest == 0)
        time = np.where(held, newest, np.maximum(sums.time, newest))
        sums = replace(sums, node=node, time=time)
        self._late_sums = [sums.select(late)] if late.any() else []
        self._write_finished(sums.select(~late).in_order())

    def translate_late_sums(self) -> None:
        """Replace the paths of held sums that are finished; they are forgotten after this."""
        self._late_sums = [
            replace(part, node=self._stand_ins.translate(part.node)[0]) for part in self._late_sums
        ]

    def write_calls(self, parts: list[Calls]) -> None:
        """Write calls whose paths are finished."""
        if parts:
            self._write_nodes()
        for calls in parts:
            self._writer.add_calls(calls)

    def _write_nodes(self) -> None:
        """Write the nodes that are new: the records that follow refer to them."""
        count = self._cct.count
        if count > self._written_nodes:
            fresh = slice(self._written_nodes, count)
            self._writer.add_nodes(self._cct.parent[fresh], self._cct.frame[fresh])
            self._written_nodes = count

    def _write_finished(self, records: RecordBatch) -> None:
        self._write_nodes()
        if len(records):
            self._writer.add_records(*records.columns())
            self._make_room(records.line)
            note_newest(records.line, records.time, self._newest)

    def _make_room(self, line: U32) -> None:
        size = int(line.max(initial=0)) + 1
        if size > len(self._newest):
            grown = np.zeros(2 * size, np.uint64)
            grown[: len(self._newest)] = self._newest
            self._newest = grown
