"""Drawing trace lines: which call path each pixel shows.

Zoomed out, from the lines' overviews, at computed places; zoomed in, from their records, decoded
for all lines together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.read_ahead import read_ahead
from hpcd.analysis.trace.blocks import BLOCK_RECORDS, unpacked
from hpcd.analysis.trace.decoded_blocks import DecodedBlocks
from hpcd.analysis.trace.part import ENTRIES, OverviewStretch, Part
from hpcd.array_types import I64, U32, Array
from hpcd.errors import FormatError
from hpcd.measurement.codec import TIME_UNIT_NS
from hpcd.model.cct import NO_NODE

Unsigned = npt.NDArray[np.unsignedinteger]

# Blocks decoded together: enough to share among threads, their arrays still in the cache.
_GROUP_BLOCKS = 256
# Rows whose overviews are decompressed together, 64 KiB each at most.
_GROUP_ROWS = 128
# Pixels narrower than this are found by search: their times, whole nanoseconds, are too unevenly
# spaced to be computed.
_EVEN_NS = 10_000.0
# A time after all others, in ns; the sum of two fits 64 bits.
_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class PartRows:
    """Rows of a picture that are lines of one ``part``; all arrays ``int64[n]``.

    ``place`` the row in the picture, ``local`` the line in the part, drawn from column ``begin`` to
    before ``end``. ``table`` turns the part's nodes into the database's, ``shift`` its times into
    database times.
    """

    part: Part
    table: U32
    shift: int
    place: I64
    local: I64
    begin: I64
    end: I64


class _Row(NamedTuple):
    """One of them: ``blocks`` of its records are shown, from block ``first`` on."""

    rows: PartRows
    place: int
    local: int
    begin: int
    end: int
    first: int
    blocks: int

    def canonical(self, nodes: Unsigned) -> U32:
        """The database's ids of ``nodes``. Raises :class:`FormatError`."""
        try:
            return self.rows.table.take(nodes)
        except IndexError:
            path = self.rows.part.path
            raise FormatError(f"{path}: records of nodes that do not exist") from None


class _Place(NamedTuple):
    """What a row shows of its overview: entries ``at[begin:end]``, counted from ``first`` on."""

    rows: PartRows
    place: int
    local: int
    begin: int
    end: int
    stretch: OverviewStretch
    at: I64


class Sampler:
    """A picture of ``rows`` rows, one pixel wide at each of ``times`` (ns, ``spacing`` apart).

    ``nodes`` ``uint32[rows, len(times)]`` is what has been drawn, NO_NODE elsewhere. ``decoded``
    keeps blocks for pictures to come.
    """

    def __init__(self, times: I64, spacing: float, rows: int, decoded: DecodedBlocks) -> None:
        self.times = times
        self.spacing = spacing
        self._decoded = decoded
        self.nodes: U32 = np.full((rows, len(times)), NO_NODE, np.uint32)
        self._search = spacing < _EVEN_NS
        self._buffer = np.empty(len(times), np.int64)
        # One more, after every time there can be: what lies behind the last pixel.
        self._ahead = np.append(times, np.iinfo(np.int64).max)

    def draw(self, groups: Sequence[PartRows]) -> None:
        """Draw the rows of ``groups``, each of another part."""
        places: list[_Place] = []
        exact: list[PartRows] = []
        index: dict[tuple[int, int], I64] = {}
        for rows in groups:
            rows.part.read_here_and_there()
            columns = (rows.place, rows.local, rows.begin, rows.end)
            stretches = rows.part.stretches(rows.local, self.spacing / TIME_UNIT_NS)
            decode = []
            for number, (stretch, place, local, begin, end) in enumerate(
                zip(stretches, *(column.tolist() for column in columns), strict=True)
            ):
                if stretch is None:
                    decode.append(number)
                    continue
                step = stretch.step * TIME_UNIT_NS
                at = index.get((rows.shift, step))
                if at is None:
                    at = (2 * (self.times - rows.shift) + step) // (2 * step)
                    index[rows.shift, step] = at
                places.append(_Place(rows, place, local, begin, end, stretch, at))
            if decode:
                chosen = [column[decode] for column in columns]
                exact.append(PartRows(rows.part, rows.table, rows.shift, *chosen))
        self._overviews(places)
        self._exact(exact)

    def _overviews(self, places: Sequence[_Place]) -> None:
        read_ahead(places, lambda place: place.rows.part.overview_spans(
            place.local, place.stretch,
            int(place.at[place.begin]), int(place.at[place.end - 1])))  # fmt: skip
        framed = [place for place in places if place.stretch.framed]
        for place in places:
            if not place.stretch.framed:
                entries = place.rows.part.entries(place.stretch)
                self._show(place, entries, place.stretch.first)
        for begin in range(0, len(framed), _GROUP_ROWS):
            self._framed(framed[begin : begin + _GROUP_ROWS])

    def _framed(self, places: Sequence[_Place]) -> None:
        """Draw rows from levels of overviews that are compressed."""
        frames: list[memoryview] = []
        sizes: list[int] = []
        found = []
        for place in places:
            rows, stretch, at = place.rows, place.stretch, place.at
            first, mine, content = rows.part.level_frames(
                place.local, stretch, int(at[place.begin]), int(at[place.end - 1])
            )
            found.append((first, len(frames), len(frames) + len(mine)))
            frames += mine
            sizes += content
        contents = unpacked(frames, np.array(sizes, np.int64))
        for place, (first, a, b) in zip(places, found, strict=True):
            data = contents[a] if b - a == 1 else b"".join(contents[a:b])
            entries = np.frombuffer(data, ENTRIES[place.stretch.width])
            self._show(place, entries, place.stretch.first + first)

    def _show(self, place: _Place, entries: Array, first: int) -> None:
        """Draw a row from ``entries``, of the moments from ``first`` on."""
        rows, begin, end = place.rows, place.begin, place.end
        within = np.subtract(place.at[begin:end], first, out=self._buffer[: end - begin])
        words = rows.part.words(place.local)
        try:
            shown = entries.take(within, mode="clip")
            table = rows.table.take(words) if len(words) else rows.table
            table.take(shown, out=self.nodes[place.place, begin:end])
        except IndexError:
            raise FormatError(
                f"{rows.part.path}: damaged (overview of line {place.local})"
            ) from None

    # --- record by record ---

    def _exact(self, groups: Sequence[PartRows]) -> None:
        """Rows whose records are decoded, those with as many blocks together."""
        read_ahead([rows.part for rows in groups], Part.table_spans)
        every = [row for rows in groups for row in self._with_blocks(rows)]
        read_ahead(
            every, lambda row: row.rows.part.block_spans(slice(row.first, row.first + row.blocks))
        )
        by_count: dict[int, list[_Row]] = {}
        for row in every:
            by_count.setdefault(row.blocks, []).append(row)
        for count, group in by_count.items():
            step = max(_GROUP_BLOCKS // count, 1)
            for at in range(0, len(group), step):
                self._decode(group[at : at + step], count)

    def _with_blocks(self, rows: PartRows) -> Iterator[_Row]:
        """The rows, with the first block with records between their pixels, and how many."""
        bounds, base = rows.part.lines.block, rows.part.blocks.base
        low, high = bounds[rows.local].tolist(), bounds[rows.local + 1].tolist()
        spans = np.stack((self.times[rows.begin], self.times[rows.end - 1]), axis=1)
        spans = (spans - rows.shift) // TIME_UNIT_NS
        columns = (rows.place, rows.local, rows.begin, rows.end)
        for a, z, span, place, local, start, stop in zip(
            low, high, spans, *(column.tolist() for column in columns), strict=True
        ):
            first, last = base[a:z].searchsorted(span, side="right").tolist()
            begin = max(first - 1, 0)
            yield _Row(rows, place, local, start, stop, a + begin, max(last, begin + 1) - begin)

    def _decode(self, group: Sequence[_Row], count: int) -> None:
        """Draw rows from ``count`` blocks each."""
        since, node, base = self._decoded.blocks(
            [(row.rows.part, row.first) for row in group], count
        )
        base = base * TIME_UNIT_NS
        base += np.repeat([row.rows.shift for row in group], count)
        begin = np.array([row.begin for row in group])
        end = np.array([row.end for row in group])
        followers = [self._follower(row) for row in group]
        after = np.array([time for time, _ in followers])
        if (count - 1) * BLOCK_RECORDS > len(self.times):
            upto = self._many(since, base, after).ravel().astype(np.int64)
            node, size = node.ravel(), np.full(len(group), count * BLOCK_RECORDS)
        else:
            upto, node, size = self._few(since, node, base, after, begin, end)
        # Where a row's records end, and the columns they own: from its begin on.
        stop = np.cumsum(size)
        bounds = np.clip(upto, np.repeat(begin, size), np.repeat(end, size))
        owned = np.diff(bounds, prepend=0)
        start = stop - size
        owned[start] = bounds[start] - begin
        reached = bounds[stop - 1]
        last = [len(behind) > 0 for _, behind in followers] | (reached == end)
        if int(owned.min(initial=0)) < 0 or not last.all():
            # Times that step back, or none that count at all.
            raise FormatError(f"{group[0].rows.part.path}: records are not in time order")
        # Fewer of the two are looked up.
        first = len(node) <= int(owned.sum())
        if first:
            node = np.concatenate([
                row.canonical(node[a:z])
                for row, a, z in zip(group, start.tolist(), stop.tolist(), strict=True)
            ])  # fmt: skip
        values = node.repeat(owned)
        at = 0
        for row, column, (_, behind) in zip(group, reached.tolist(), followers, strict=True):
            shown = values[at : at + column - row.begin]
            self.nodes[row.place, row.begin : column] = shown if first else row.canonical(shown)
            if column < row.end:
                self.nodes[row.place, column : row.end] = row.canonical(behind)
            at += column - row.begin

    def _follower(self, row: _Row) -> tuple[int, U32]:
        """Time (ns) and node of the first record behind the blocks of a row.

        A time after all others where there is none.
        """
        part, high = row.rows.part, row.first + row.blocks
        if high >= int(part.lines.block[row.local + 1]):
            return _NEVER, part.blocks.node[:0]
        time = int(part.blocks.base[high]) * TIME_UNIT_NS + row.rows.shift
        return time, part.blocks.node[high : high + 1]

    def _many(self, since: Unsigned, base: I64, after: I64) -> npt.NDArray[np.int32]:
        """How many pixels each record and those before it own, where pixels have many records.

        ``int32[rows, records]``, within a thousandth of a pixel: single precision.
        """
        start = int(self.times[0])
        offset = (base - start) / self.spacing
        place = since.astype(np.float32)
        place *= np.float32(TIME_UNIT_NS / self.spacing)
        place += offset.astype(np.float32)[:, None]
        place = place.reshape(len(after), -1)
        # A record owns the pixels up to the middle between it and the next.
        middle = np.empty_like(place)
        np.add(place[:, :-1], place[:, 1:], out=middle[:, :-1])
        middle[:, -1] = place[:, -1] + (after - start) / self.spacing
        middle *= np.float32(0.5)
        middle += np.float32(1.0)
        np.clip(middle, 0, len(self.times), out=middle)
        return middle.astype(np.int32)

    def _few(
        self, since: Unsigned, node: U32, base: I64, after: I64, begin: I64, end: I64
    ) -> tuple[I64, U32, I64]:
        """The same, exactly, of the few records around the pixels: row after row, their nodes, and
        how many each row has."""
        rows = len(after)
        low = np.maximum(self._not_after(since, base, self.times[begin], rows) - 1, 0)
        high = self._not_after(since, base, self.times[end - 1], rows)
        many = since.size // rows
        # With the first record after the last pixel, where there is one.
        upto = np.maximum(np.minimum(high, many - 1), low)
        size = upto - low + 1
        stop = np.cumsum(size)
        at = np.arange(int(stop[-1])) + np.repeat(
            np.arange(rows) * many + low - (stop - size), size
        )
        time = since.ravel()[at].astype(np.int64)
        time *= TIME_UNIT_NS
        time += base[at // BLOCK_RECORDS]
        middle = np.empty_like(time)
        np.add(time[:-1], time[1:], out=middle[:-1])
        # The last record's own where none of its row follows it; one that lies behind all pixels
        # has all that are left.
        middle[stop - 1] = time[stop - 1] + np.where(high < many, _NEVER, after)
        middle >>= 1
        return self._columns(middle), node.ravel()[at], size

    @staticmethod
    def _not_after(since: Unsigned, base: I64, time: I64, rows: int) -> I64:
        """How many records of each of ``rows`` are not later than its ``time`` (ns)."""
        ticks = (np.repeat(time, len(base) // rows) - base) // TIME_UNIT_NS
        most = np.clip(ticks, 0, np.iinfo(since.dtype).max).astype(since.dtype)
        count = np.count_nonzero(since <= most[:, None], axis=1)
        count[ticks < 0] = 0
        whole: I64 = count.reshape(rows, -1).sum(axis=1)
        return whole

    def _columns(self, middle: I64) -> I64:
        """How many pixels are not later than each of ``middle`` (ns)."""
        if self._search:
            return np.searchsorted(self.times, middle, side="right")
        # Computed a thousandth of a pixel too low, then put right by looking.
        place = (middle - int(self.times[0])) * (1.0 / self.spacing)
        place += 0.999
        np.clip(place, 0, len(self.times), out=place)
        index = place.astype(np.int64)
        index += self._ahead[index] <= middle
        return index
