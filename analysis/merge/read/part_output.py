"""The output of records: blocks, overviews and sums of a part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hpcd.analysis.arrays.sparse_sums import CellSum
from hpcd.analysis.merge.read.record_batches import Batch, slices
from hpcd.analysis.merge.read.record_layout import RecordLayout
from hpcd.analysis.merge.read.resumed_paths import ResumedPaths, joined
from hpcd.analysis.trace import blocks
from hpcd.analysis.trace.intervals import Intervals
from hpcd.analysis.trace.overview import OverviewBuilder
from hpcd.analysis.trace.part_writer import PartWriter
from hpcd.analysis.trace.short_waits import ShortWaits
from hpcd.array_types import I64, U8, U16, U32, U64
from hpcd.measurement.codec import RecordChunk


class PartOutput:
    """A part under way: its blocks, overviews and sums, and how far each line is written."""

    def __init__(
        self, rows: int, user: U32, first: U32, part: PartWriter, overview: OverviewBuilder,
        intervals: Intervals,
    ) -> None:  # fmt: skip
        """``rows`` is a count; ``user`` are the user's nodes of the tree's nodes (see
        :meth:`hpcd.model.cct.CCT.innermost`), ``first`` the nodes to number first."""
        nodes = len(user)
        self._intervals = intervals
        others = np.ones(nodes, bool)
        others[first] = False
        self.order: U32 = np.concatenate((first, np.flatnonzero(others).astype(np.uint32)))
        """The node of each number of the part."""
        self.number = np.empty(nodes, np.uint32)
        """The part's number of each node."""
        self.number[self.order] = np.arange(nodes, dtype=np.uint32)
        self._part = part
        self.overview = overview
        self.counts = np.zeros(rows, np.int64)
        self.first = np.zeros(rows, np.int64)
        self.last = np.zeros(rows, np.int64)
        self.unsorted: set[int] = set()
        """Rows whose records did not come in time order."""
        self._layout = RecordLayout(self.number, intervals)
        self._resumed = ResumedPaths(user, intervals)
        self.sums = CellSum(rows, nodes)
        self.short_waits: list[ShortWaits] = []
        """Waits without records of their own, by row of the part."""

    def put(self, batch: Batch) -> None:
        """Write records, of each row in the order they came."""
        resumed, short = self._resumed.find(batch)
        if short is not None:
            word = self.number[short.word >> 2] << np.uint32(2) | short.word & 3
            self.short_waits.append(short._replace(word=word))
        for low, high in slices(batch.start):
            rows = batch.row[low:high]
            if not self._lay_out(rows, batch, low, high, resumed):
                nodes = joined(resumed, self.number, batch, low, high)
                self._put(rows, batch.joined(low, high), nodes)

    def go_on(self, rows: I64, counts: I64, first: I64, last: I64) -> None:
        """Take entries of ``rows`` as written: how many, ticks of their first and last ones."""
        some = counts > 0
        rows, counts, first, last = rows[some], counts[some], first[some], last[some]
        fresh = self.counts[rows] == 0
        self.unsorted.update(rows[~fresh & (first < self.last[rows])].tolist())
        self.first[rows] = np.where(fresh, first, np.minimum(self.first[rows], first))
        self.last[rows] = np.where(fresh, last, np.maximum(self.last[rows], last))
        self.counts[rows] += counts

    def _lay_out(self, rows: I64, batch: Batch, low: int, high: int, resumed: U32 | None) -> bool:
        """Write lines ``low`` to ``high`` in one pass, unless they are out of order or have too
        many nodes or events; return whether it was done."""
        if self.unsorted.intersection(rows.tolist()):
            return False
        laid = self._layout.lay_out(
            rows, batch, low, high, resumed, (self.counts, self.first, self.last)
        )
        if laid is None:
            return False
        self.sums.add_sums(laid.sums)
        self._write_blocks(
            rows, laid.start, laid.cuts, laid.time, laid.node, laid.state, laid.event, laid.value
        )
        self.overview.add(rows, laid.start, laid.time, laid.node, laid.state)
        return True

    def _write_blocks(
        self, rows: I64, start: I64, cuts: I64, time: I64, node: U32, state: U8 | None,
        event: U16 | None, value: U64 | None,
    ) -> None:  # fmt: skip
        frames = blocks.encode(cuts, time, node, state, event, value)
        first = cuts[:-1]
        line = rows[np.searchsorted(start, first, side="right") - 1]
        word = node[first] << np.uint32(2)
        if state is not None:
            word |= state[first]
        self._part.add(line, time[first], word, np.diff(cuts), frames)

    def _put(self, rows: I64, part: RecordChunk, resumed: U32 | None) -> None:
        part = replace(part, node=self.number[part.node])
        self.sums.add(rows.astype(np.uint32), part.start, part.node, part.event, part.value)
        self._write(rows, *self._intervals.expand(part, resumed))

    def sort_unsorted(self) -> None:
        """Lines whose records did not come in time order are written again."""
        rows = sorted(self.unsorted)
        self.unsorted.clear()
        for row in rows:
            time, node, state, event, value = self._part.take_back(row)
            self.overview.forget(row)
            self.counts[row] = 0
            order = np.argsort(time, kind="stable")
            self._write(np.array([row]), np.array([0, len(time)]), time[order], node[order],
                        state[order] if bool(state.any()) else None,
                        None if event is None else event[order],
                        None if value is None else value[order])  # fmt: skip

    def _write(
        self, rows: I64, start: I64, time: I64, node: U32, state: U8 | None, event: U16 | None,
        value: U64 | None,
    ) -> None:  # fmt: skip
        begin, end = start[:-1], start[1:] - 1
        back = np.flatnonzero(time[1:] < time[:-1]) + 1
        inside = back[~np.isin(back, begin)]
        unsorted = rows[np.searchsorted(start, inside, side="right") - 1].tolist()
        fresh = self.counts[rows] == 0
        unsorted += rows[~fresh & (time[begin] < self.last[rows])].tolist()
        self.unsorted.update(unsorted)
        self.first[rows] = np.where(fresh, time[begin], np.minimum(self.first[rows], time[begin]))
        self.last[rows] = np.where(fresh, time[end], np.maximum(self.last[rows], time[end]))
        self.counts[rows] += np.diff(start)
        self._write_blocks(rows, start, blocks.cut(start, time), time, node, state, event, value)
        if inside.size or self.unsorted.intersection(rows.tolist()):
            # Their overviews are made when they are in order.
            keep = [k for k, row in enumerate(rows.tolist()) if row not in self.unsorted]
            for k in keep:
                span = slice(int(start[k]), int(start[k + 1]))
                self.overview.add(rows[k : k + 1], np.array([0, span.stop - span.start]),
                                  time[span], node[span],
                                  None if state is None else state[span])  # fmt: skip
        else:
            self.overview.add(rows, start, time, node, state)
