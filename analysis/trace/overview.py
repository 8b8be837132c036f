"""The overview of a trace line: its node and state at evenly spaced moments.

Zoomed out, a pixel covers many records and any moment inside it represents it as well as its middle
does (Tallent et al., ICS 2011, section 5.2: the picture is a sample anyway). So the node and the
state of the thread at every multiple of a *step* are kept, as a *word* (the node times four, plus
the state): about one entry per two records, and coarser levels of every eighth entry. A picture of
any zoom reads one array at computed positions. Finer zooms decode blocks
(:mod:`hpcd.analysis.trace.blocks`).

Moments are multiples of the step in the measurement's clock, so a coarser level's moments are among
finer one's, and entry ``j`` of a level is entry ``8 j`` of the finer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np

from hpcd.analysis.trace.states import borders
from hpcd.array_types import I64, U8, U16, U32, Array
from hpcd.kernels.library import kernels, structure

FACTOR = 8
"""Entries of a level per entry of the next coarser level."""

# Lines with fewer records have no overview: decoding two blocks is as fast.
FEWEST_RECORDS = 2048
# A level this small is walked with any stride from the cache.
_SMALL_LEVEL = 1024
_MAX_LEVELS = 16
# Bytes of entries that are kept in memory: nearly always all of a measurement that is not divided
# into shares. A file's pages take as long to be found and freed as the entries to be written.
_MOST_KEPT = 64 << 20
# One entry per this many records. A picture whose pixels are narrower decodes every record it
# shows. Measured with 2560 x 1600 pixels: at 2 a database has 3.5 bytes a record and the slowest of
# 100 random windows takes 0.13 s; at 4 it has 3.0 bytes and the slowest takes 0.25 s.
_RECORDS_PER_ENTRY = 2


@dataclass(frozen=True, slots=True)
class Levels:
    """The places of the entries of all levels of ``n`` lines.

    ``step``, ``first``, ``count`` ``int64[levels, n]``: ticks between entries, the index (time over
    step) of the first one, how many; ``offset`` ``int64[levels, n]`` where they begin. A line
    without an overview has count 0 everywhere.
    """

    step: I64
    first: I64
    count: I64
    offset: I64

    @staticmethod
    def of(step: I64, first: I64, count: I64) -> Levels:
        """The levels of lines whose finest is given: level by level, line by line."""
        rows = [(step, first, count)]
        last = first + count - 1
        while len(rows) < _MAX_LEVELS and int(rows[-1][2].max(initial=0)) > _SMALL_LEVEL:
            factor = FACTOR ** len(rows)
            begin = -(-first // factor)
            more = np.where(rows[-1][2] > _SMALL_LEVEL, last // factor - begin + 1, 0)
            rows.append((step * factor, begin, np.maximum(more, 0)))
        counts = np.stack([row[2] for row in rows])
        ends = np.cumsum(counts.ravel()).reshape(counts.shape)
        return Levels(
            np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows]), counts,
            ends - counts,
        )  # fmt: skip

    @staticmethod
    def entries(origin: int, entries: Array) -> list[Array]:
        """Return the entries of each level; ``entries`` are the finest level, whose first entry has
        index ``origin``."""
        levels = [entries]
        while len(levels) < _MAX_LEVELS and len(levels[-1]) > _SMALL_LEVEL:
            factor = FACTOR ** len(levels)
            levels.append(entries[-origin % factor :: factor])
        return levels


class OverviewBuilder:
    """Makes the overviews of one measurement's lines while its records stream by.

    How many records a line will have is not known before the end: entries are made closer together
    than needed, doubling the step where they would become too many, kept in memory while they are
    few and else in ``spool`` (an open temporary file), and thinned at the end. Steps are powers of
    two until then: a shift costs a sixth of a division.
    """

    def __init__(self, lines: int, spool: IO[bytes] | None, nodes: int = 1 << 32) -> None:
        """For nodes below ``nodes``. Without a ``spool`` all is kept in memory."""
        self._kind = np.dtype(np.uint16 if nodes <= 1 << 14 else np.uint32)
        self._spool = spool
        self._written = 0
        # Entries that are not in the spool, and their bytes.
        self._kept: list[U16 | U32] = []
        self._kept_bytes = 0
        self._shift = np.full(lines, -1, np.int64)
        self._seen = np.zeros(lines, np.int64)
        self._made = np.zeros(lines, np.int64)
        # The next entry to make, in units of the line's step; the first record, and the last one,
        # whose end is not known yet.
        self._next = np.zeros(lines, np.int64)
        self._first = _Ends.of(lines)
        self._last = _Ends.of(lines)
        # Per piece: line, shift, first index, entries, where in the spool (in entries).
        self._pieces: list[I64] = []

    def forget(self, line: int) -> None:
        """Begin ``line`` anew: its records come again, in another order."""
        self._shift[line] = -1
        self._seen[line] = self._made[line] = 0
        self._pieces = [piece[piece[:, 0] != line] for piece in self._pieces]

    def add(self, line: I64, start: I64, time: I64, node: U32, state: U8 | None = None) -> None:
        """Add the records ``start[i]:start[i + 1]`` of ``line[i]`` (no line twice), times in ticks;
        without a ``state`` all are samples."""
        if not len(line):
            return
        known = structure(
            "overviews", shift=self._shift, seen=self._seen, entries=self._made,
            following=self._next, first_time=self._first.time, last_time=self._last.time,
            first_word=self._first.word, last_word=self._last.word,
        )  # fmt: skip
        pieces = np.empty((len(line), 4), np.int64)
        total = kernels.overview_pieces(line, len(line), start, time, node, state, known, pieces)
        values = np.empty(total + 2, np.uint32)
        kernels.overview_entries(len(line), start, time, node, state, known, pieces, values)
        self._write(pieces, values[:total])

    def _write(self, pieces: I64, values: U32) -> None:
        """Keep entries: ``pieces`` are lines, shifts, first indices, numbers of entries."""
        count = pieces[:, 3]
        at = self._written + np.cumsum(count) - count
        self._pieces.append(np.column_stack((pieces, at))[count > 0])
        values = values.astype(self._kind, copy=False)
        self._kept.append(values)
        self._kept_bytes += values.nbytes
        self._written += len(values)
        if self._kept_bytes > _MOST_KEPT and self._spool is not None:
            self.spill()

    def spill(self) -> None:
        """Put all entries so far into the spool."""
        assert self._spool is not None
        for values in self._kept:
            self._spool.write(values.data)
        self._spool.flush()
        self._kept.clear()
        self._kept_bytes = 0

    def finish(self) -> OverviewEntries:
        """Return the entries of all lines, once no more is added."""
        pieces = np.concatenate(self._pieces) if self._pieces else np.zeros((0, 5), np.int64)
        order = np.argsort(pieces[:, 0], kind="stable")
        entries: U16 | U32 = np.concatenate([*self._kept, np.zeros(0, self._kind)])
        if self._spool is not None and len(entries) < self._written:
            self.spill()
            # As an array like others: slices of a mapped one take ten times as long to make.
            entries = np.asarray(np.memmap(self._spool, self._kind, "r", shape=(self._written,)))
        return OverviewEntries(
            pieces[order], entries, self._seen, self._first.time, self._first.word,
            self._last.time, self._last.word,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class OverviewEntries:
    """The entries that :class:`OverviewBuilder` made of ``n`` lines, of all their records or of a
    stretch.

    ``pieces`` ``int64[k, 5]``, by line: line, shift of its step, index of the first entry, how many
    there are, and where they begin in ``entries`` (``uint16`` or ``uint32``, words). ``seen``
    ``int64[n]`` how many records; ``first_time``, ``last_time`` ``int64[n]`` in ticks and
    ``first_word``, ``last_word`` ``uint32[n]``: the first and the last of them.
    """

    pieces: I64
    entries: U16 | U32
    seen: I64
    first_time: I64
    first_word: U32
    last_time: I64
    last_word: U32

    def of_rows(self, rows: I64, lines: int) -> OverviewEntries:
        """Return these entries with line ``i`` as row ``rows[i]`` (ascending) of ``lines``."""
        pieces = self.pieces.copy()
        pieces[:, 0] = rows[pieces[:, 0]]
        columns = []
        for column in (self.seen, self.first_time, self.first_word, self.last_time, self.last_word):
            moved = np.zeros(lines, column.dtype)
            moved[rows] = column
            columns.append(moved)
        return OverviewEntries(pieces, self.entries, *columns)

    def without(self, rows: list[int]) -> OverviewEntries:
        """Return these entries without the lines ``rows``."""
        seen = self.seen.copy()
        seen[rows] = 0
        pieces = self.pieces[~np.isin(self.pieces[:, 0], rows)]
        return OverviewEntries(pieces, self.entries, seen, self.first_time, self.first_word,
                               self.last_time, self.last_word)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Ends:
    """The first or the last record of each line: ``time`` ``int64[n]``, ``word`` ``uint32[n]``."""

    time: I64
    word: U32

    @staticmethod
    def of(lines: int) -> _Ends:
        return _Ends(np.zeros(lines, np.int64), np.zeros(lines, np.uint32))


class OverviewSource:
    """The entries of a measurement's lines, thinned as they are needed."""

    def __init__(self, stretches: Sequence[OverviewEntries]) -> None:
        """Take entries of the same lines, one stretch after another in time."""
        self._stretches = stretches
        self._seen = np.sum([stretch.seen for stretch in stretches], axis=0)
        self._kind = np.result_type(*(stretch.entries for stretch in stretches))
        rows = np.arange(len(self._seen) + 1)
        self._bounds = [np.searchsorted(stretch.pieces[:, 0], rows) for stretch in stretches]

    def long_lines(self) -> list[int]:
        """The lines that have an overview."""
        entries = np.sum([np.diff(bounds) for bounds in self._bounds], axis=0)
        lines: list[int] = np.flatnonzero((self._seen >= FEWEST_RECORDS) & (entries > 0)).tolist()
        return lines

    def line(self, line: int) -> tuple[int, int, U16 | U32]:
        """(step, index of the first entry, words) of one line's finest level.

        From before its first record to after its last; no entries for a line with few records.
        """
        seen = int(self._seen[line])
        parts = [
            (stretch, stretch.pieces[bounds[line] : bounds[line + 1]])
            for stretch, bounds in zip(self._stretches, self._bounds, strict=True)
            if stretch.seen[line]
        ]
        if seen < FEWEST_RECORDS or not any(len(pieces) for _, pieces in parts):
            return 0, 0, np.zeros(0, self._kind)
        widest = int(max(pieces[-1, 1] for _, pieces in parts if len(pieces)))
        from_time, to_time = int(parts[0][0].first_time[line]), int(parts[-1][0].last_time[line])
        ticks = to_time - from_time
        step = max(round((ticks >> widest) * _RECORDS_PER_ENTRY / seen), 1) << widest
        begin, end = from_time // step, -(-to_time // step)
        words = np.empty(end - begin + 1, self._kind)
        thin = kernels.thin_entries16 if self._kind.itemsize == 2 else kernels.thin_entries32
        low = 0
        before: tuple[int, int] | None = None
        for stretch, pieces in parts:
            first = int(stretch.first_time[line]), int(stretch.first_word[line])
            if before is not None:
                # The record before owns the moments up to its border with the next.
                low = _border(before, first) // step + 1 - begin
            before = int(stretch.last_time[line]), int(stretch.last_word[line])
            # The first record's and the last one's moments are outside of the pieces.
            thinned = structure(
                "thinned", step=step, begin=begin, low=low, first_word=first[1],
                last_word=before[1], n=len(words),
            )  # fmt: skip
            entries = stretch.entries.astype(self._kind, copy=False)
            if not thin(pieces, len(pieces), entries, len(entries), thinned, words):
                raise IndexError("pieces of an overview that do not exist")
        return step, begin, words


def _border(before: tuple[int, int], after: tuple[int, int]) -> int:
    """Return when a record ends and the next one begins; both are a time and a word."""
    time, word = np.array([before, after], np.int64).T
    return int(borders(time, (word & 3).astype(np.uint8))[0])
