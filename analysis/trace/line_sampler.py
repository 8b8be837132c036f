"""Drawing trace lines: which call path each pixel shows.

Zoomed out, from the lines' overviews, at computed places; zoomed in, from their records, decoded
for all lines together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.read_ahead import read_ahead
from hpcd.analysis.trace.blocks import BLOCK_RECORDS, Stored, decode_places, unpack
from hpcd.analysis.trace.part import FRAME_ENTRIES, Part
from hpcd.array_types import I64, U32
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
class Row:
    """A row of a picture: ``local`` the line in ``part``, drawn from column ``begin`` to ``end``.

    ``table`` turns the part's nodes into the database's, ``shift`` its times into database times.
    """

    place: int
    part: Part
    table: U32
    shift: int
    local: int
    begin: int
    end: int

    def canonical(self, nodes: Unsigned) -> U32:
        """The database's ids of ``nodes``. Raises :class:`FormatError`."""
        try:
            values: U32 = self.table[nodes]
        except IndexError:
            raise FormatError(f"{self.part.path}: records of nodes that do not exist") from None
        return values


class Sampler:
    """A picture of ``rows`` rows, one pixel wide at each of ``times`` (ns, evenly spaced).

    ``nodes`` ``uint32[rows, len(times)]`` is what has been drawn, NO_NODE elsewhere.
    """

    def __init__(self, times: I64, spacing: float, rows: int) -> None:
        self._times = times
        self._spacing = spacing
        self.nodes: U32 = np.full((rows, len(times)), NO_NODE, np.uint32)
        self._search = spacing < _EVEN_NS
        # One more, after every time there can be: what lies behind the last pixel.
        self._ahead = np.append(times, np.iinfo(np.int64).max)

    def draw(self, rows: Sequence[Row]) -> None:
        """Draw ``rows``; those of one part should follow one another."""
        exact = []
        places: list[tuple[Row, int, I64]] = []
        index: dict[tuple[int, int], I64] = {}
        for row in rows:
            level = self._level(row)
            if level < 0:
                exact.append(row)
                continue
            levels, _ = row.part.levels(row.local)
            step = int(levels.step[level, row.local]) * TIME_UNIT_NS
            key = (row.shift, step)
            if key not in index:
                index[key] = (2 * (self._times - row.shift) + step) // (2 * step)
            at = index[key][row.begin : row.end] - int(levels.first[level, row.local])
            count = int(levels.count[level, row.local])
            if at[0] < 0 or at[-1] >= count:
                at = np.clip(at, 0, count - 1)
            places.append((row, level, at))
        read_ahead(places, lambda place: place[0].part.overview_spans(
            place[0].local, place[1], int(place[2][0]), int(place[2][-1])))  # fmt: skip
        finest = []
        for row, level, at in places:
            if level == 0 and row.part.compressed:
                finest.append((row, at))
                continue
            self._show(row, row.part.level_entries(row.local, level), at)
        for begin in range(0, len(finest), _GROUP_ROWS):
            self._finest(finest[begin : begin + _GROUP_ROWS])
        self._exact(exact)

    def _show(self, row: Row, entries: Unsigned, at: I64) -> None:
        """Draw a row of the entries ``at`` these places."""
        try:
            shown = entries[at]
            words = row.part.words(row.local)
            if len(words):
                shown = words[shown]
        except IndexError:
            raise FormatError(f"{row.part.path}: damaged (overview of line {row.local})") from None
        self.nodes[row.place, row.begin : row.end] = row.canonical(shown)

    def _finest(self, group: Sequence[tuple[Row, I64]]) -> None:
        """Draw rows from the finest levels of their overviews, which are compressed."""
        frames: list[memoryview] = []
        sizes: list[int] = []
        bounds = [0]
        for row, at in group:
            mine, content = row.part.finest_frames(row.local, int(at[0]), int(at[-1]))
            frames += mine
            sizes += content
            bounds.append(len(frames))
        contents, _ = unpack(frames, sizes)
        for (row, at), a, b in zip(group, bounds, bounds[1:], strict=False):
            kind = row.part.levels(row.local)[1].dtype
            data = contents[a] if b - a == 1 else b"".join(contents[a:b])
            entries: Unsigned = np.frombuffer(data, kind)
            self._show(row, entries, at - int(at[0]) // FRAME_ENTRIES * FRAME_ENTRIES)

    def _level(self, row: Row) -> int:
        """The coarsest level of a row's overview that is fine enough; -1 if none is."""
        levels, _ = row.part.levels(row.local)
        fits = levels.step[:, row.local] * TIME_UNIT_NS <= self._spacing
        return int((fits & (levels.count[:, row.local] > 0)).sum()) - 1

    # --- record by record ---

    def _exact(self, rows: Sequence[Row]) -> None:
        """Rows whose records are decoded, those with as many blocks together."""
        read_ahead(list({row.part for row in rows}), Part.table_spans)
        spans = [(row, *self._blocks(row)) for row in rows]
        read_ahead(spans, lambda span: span[0].part.block_spans(slice(span[1], span[1] + span[2])))
        by_count: dict[int, list[tuple[Row, int]]] = {}
        for row, first, count in spans:
            by_count.setdefault(count, []).append((row, first))
        for count, group in by_count.items():
            step = max(_GROUP_BLOCKS // count, 1)
            for at in range(0, len(group), step):
                self._decode(group[at : at + step], count)

    def _blocks(self, row: Row) -> tuple[int, int]:
        """The first block with records between a row's pixels, and how many there are."""
        low, high = row.part.lines.block[row.local : row.local + 2].tolist()
        base = row.part.blocks.base[low:high]
        span = self._times[[row.begin, row.end - 1]] - row.shift
        a, z = base.searchsorted(span // TIME_UNIT_NS, side="right").tolist()
        begin = max(a - 1, 0)
        return low + begin, max(z, begin + 1) - begin

    def _decode(self, group: Sequence[tuple[Row, int]], count: int) -> None:
        """Draw rows from ``count`` blocks each."""
        stored = Stored()
        columns: dict[str, list[npt.NDArray[np.integer]]] = {}
        for row, first in group:
            blocks = row.part.blocks
            span = slice(first, first + count)
            row.part.add_places(stored, span)
            for name in ("width", "least", "records"):
                columns.setdefault(name, []).append(getattr(blocks, name)[span])
            base = blocks.base[span] * TIME_UNIT_NS + row.shift
            columns.setdefault("base", []).append(base)
        joined = {name: np.concatenate(values) for name, values in columns.items()}
        since, node = decode_places(
            stored, joined["width"], joined["least"], joined["records"].astype(np.int64)
        )
        node = node.reshape(len(group), -1)
        begin = np.array([[row.begin] for row, _ in group])
        end = np.array([[row.end] for row, _ in group])
        followers = [self._follower(row, first + count) for row, first in group]
        after = np.array([time for time, _ in followers])
        if (count - 1) * BLOCK_RECORDS > len(self._times):
            upto = self._many(since, joined["base"], after).astype(np.int64)
        else:
            time = since.astype(np.int64) * TIME_UNIT_NS + joined["base"][:, None]
            upto, node = self._few(time.reshape(len(group), -1), node, after, begin, end)
        bounds = np.empty((len(group), upto.shape[1] + 1), np.int64)
        bounds[:, :1] = begin
        np.clip(upto, begin, end, out=bounds[:, 1:])
        owned = np.diff(bounds)
        last = [len(behind) > 0 for _, behind in followers] | (bounds[:, -1:] == end).ravel()
        if int(owned.min(initial=0)) < 0 or not last.all():
            # Times that step back, or none that count at all.
            raise FormatError(f"{group[0][0].part.path}: records are not in time order")
        values = np.repeat(node.ravel(), owned.ravel())
        at = 0
        for (row, _), reached, (_, behind) in zip(
            group, bounds[:, -1].tolist(), followers, strict=True
        ):
            shown = values[at : at + reached - row.begin]
            self.nodes[row.place, row.begin : reached] = row.canonical(shown)
            if reached < row.end:
                self.nodes[row.place, reached : row.end] = row.canonical(behind)
            at += reached - row.begin

    def _follower(self, row: Row, high: int) -> tuple[int, U32]:
        """Time (ns) and node of the first record behind the blocks of a row.

        A time after all others where there is none.
        """
        blocks = row.part.blocks
        if high >= int(row.part.lines.block[row.local + 1]):
            return _NEVER, blocks.node[:0]
        return int(blocks.base[high]) * TIME_UNIT_NS + row.shift, blocks.node[high : high + 1]

    def _many(self, since: Unsigned, base: I64, after: I64) -> npt.NDArray[np.int32]:
        """How many pixels each record and those before it own, where pixels have many records.

        ``int32[rows, records]``, within a thousandth of a pixel: single precision.
        """
        start = int(self._times[0])
        offset = (base - start) / self._spacing
        place = since.astype(np.float32)
        place *= np.float32(TIME_UNIT_NS / self._spacing)
        place += offset.astype(np.float32)[:, None]
        place = place.reshape(len(after), -1)
        # A record owns the pixels up to the middle between it and the next.
        middle = np.empty_like(place)
        np.add(place[:, :-1], place[:, 1:], out=middle[:, :-1])
        middle[:, -1] = place[:, -1] + (after - start) / self._spacing
        middle *= np.float32(0.5)
        middle += np.float32(1.0)
        np.clip(middle, 0, len(self._times), out=middle)
        return middle.astype(np.int32)

    def _few(self, time: I64, node: U32, after: I64, begin: I64, end: I64) -> tuple[I64, U32]:
        """The same, exactly, and the nodes of the few records around the pixels."""
        low = np.maximum((time <= self._times[begin]).sum(axis=1) - 1, 0)
        high = (time <= self._times[end - 1]).sum(axis=1)
        shown = int((high - low).max()) + 1
        if 2 * shown < time.shape[1]:
            columns = low[:, None] + np.arange(shown)
            np.minimum(columns, time.shape[1] - 1, out=columns)
            time = np.take_along_axis(time, columns, axis=1)
            node = np.take_along_axis(node, columns, axis=1)
        middle = np.empty_like(time)
        np.add(time[:, :-1], time[:, 1:], out=middle[:, :-1])
        middle[:, -1] = time[:, -1] + after
        middle >>= 1
        return self._columns(middle), node

    def _columns(self, middle: I64) -> I64:
        """How many pixels are not later than each of ``middle`` (ns)."""
        if self._search:
            return np.searchsorted(self._times, middle, side="right")
        # Computed a thousandth of a pixel too low, then put right by looking.
        place = (middle - int(self._times[0])) * (1.0 / self._spacing)
        place += 0.999
        np.clip(place, 0, len(self._times), out=place)
        index = place.astype(np.int64)
        index += self._ahead[index] <= middle
        return index
