"""The files of many short parts, whose tables a compiled loop packs in one go."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from hpcd.analysis.arrays.archive import pack_archive
from hpcd.analysis.arrays.bounds import bounds_of
from hpcd.analysis.trace.blocks import Encoded
from hpcd.analysis.trace.part import PACKED_TABLES
from hpcd.analysis.trace.part_writer import TABLES_LEVEL, part_header
from hpcd.array_types import I64, Array
from hpcd.measurement.zstd_contexts import compressor

# Of the table of lines, columns that are all 0 where no line has an overview; "word" has one more.
_ZEROS = 6
# Bytes of a number of each column: of lines source, records, first, last, block and the zeros; of
# blocks base, node, frame, at, code_frame, code_at, least, width, records; of frames offset, size,
# content.
_WIDTH = np.array([8] * 6 + [8, 4, 4, 4, 4, 4, 4, 2, 2] + [8, 4, 4], np.int64)
_LINES, _BLOCK, _NONE, _BLOCKS, _FRAMES = slice(4), 4, 5, slice(6, 15), slice(15, 18)
_FRAME, _CODE_FRAME, _OFFSET = 8, 10, 15


class PartBatch:
    """Parts that lie one after the other in columns of lines and of blocks, and that are the same
    to the byte as :class:`PartWriter` writes them; none of their lines has an overview."""

    def __init__(
        self, lines: tuple[I64, I64, I64, I64], rows: I64,
        blocks: tuple[Array, Array, Array, Array], places: I64, encoded: Encoded, loops: Any,
    ) -> None:  # fmt: skip
        """``lines`` are the source, records, first and last tick of each, part ``i`` has those from
        ``rows[i]`` to ``rows[i + 1]``; ``blocks`` the line, first time and node, and the number of
        records of each, part ``i`` has those from ``places[i]`` to ``places[i + 1]``, of which
        there are some. ``loops`` are :class:`MergeLoops`."""
        owner, base, node, records = blocks
        first, last = places[:-1], places[1:] - 1
        frame, code = encoded.frame, encoded.code_frame
        pieces = [(frame[first].tolist(), (frame[last] + 1).tolist())]
        coded = int(code[0]) >= 0
        if coded:
            pieces.append((code[first].tolist(), (code[last] + 1).tolist()))
        order = [
            list(chain.from_iterable(range(*each) for each in part))
            for part in zip(*(zip(*piece, strict=True) for piece in pieces), strict=True)
        ]
        self._data = encoded.data
        self._order = order
        number = np.array(list(chain.from_iterable(order)), np.int64)
        size = np.array([len(encoded.data[at]) for at in number.tolist()], np.int64)
        offset = np.cumsum(size) - size
        frames = bounds_of(list(map(len, order)))
        block = np.searchsorted(owner, np.arange(int(rows[-1]) + 1))
        self._lines, self._blocks = np.diff(rows), np.diff(places)
        zeros = np.zeros(_ZEROS * int(self._lines.max()) + 1, np.int64)
        begin, count, less = (np.zeros((len(first), len(_WIDTH)), np.int64) for _ in range(3))
        for chosen, bounds in ((_LINES, rows), (_BLOCKS, places), (_FRAMES, frames)):
            begin[:, chosen], count[:, chosen] = bounds[:-1, None], np.diff(bounds)[:, None]
        begin[:, _BLOCK], count[:, _BLOCK] = rows[:-1], self._lines + 1
        count[:, _NONE] = _ZEROS * self._lines + 1
        less[:, _BLOCK], less[:, _FRAME] = places[:-1], frame[first]
        if coded:
            less[:, _CODE_FRAME] = code[first] - (frame[last] + 1 - frame[first])
        less[:, _OFFSET] = offset[frames[:-1]]
        columns = [
            *lines, block, zeros, base, node, frame, encoded.at, code, encoded.code_at,
            encoded.least, encoded.width, records, offset, size, encoded.content[number],
        ]  # fmt: skip
        self._tables = loops.part_tables(
            [np.ascontiguousarray(column, np.int64) for column in columns], _WIDTH, begin, count,
            less,
        )  # fmt: skip

    def content(self, part: int, archive: Mapping[str, Array | bytes]) -> bytes | None:
        """The file of a part; None where its tables are not packed, being too large."""
        tables = self._tables[part]
        if len(tables) > PACKED_TABLES:
            return None
        order = self._order[part]
        body = b"".join([self._data[at] for at in order])
        packed = compressor(TABLES_LEVEL).compress(tables)
        archived = pack_archive(archive)
        head = part_header(
            int(self._lines[part]), int(self._blocks[part]), len(order), len(body), (0, 0, 0), 0,
            len(archived), len(packed),
        )  # fmt: skip
        padding = [bytes(-len(data) % 8) for data in (body, packed)]
        return b"".join([head, body, padding[0], packed, padding[1], archived])
