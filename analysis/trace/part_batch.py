"""The files of many short parts, whose tables are packed in one go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise

import numpy as np

from hpcd.analysis.arrays.archive import pack_archive
from hpcd.analysis.arrays.bounds import bounds_of
from hpcd.analysis.trace.blocks import Encoded
from hpcd.analysis.trace.part import PACKED_TABLES
from hpcd.analysis.trace.part_writer import TABLES_LEVEL, part_header
from hpcd.array_types import I64, Array
from hpcd.kernels.library import address_of, kernels
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
        blocks: tuple[Array, Array, Array, Array], places: I64, encoded: Encoded,
    ) -> None:  # fmt: skip
        """``lines`` are the source, records, first and last tick of each, part ``i`` has those from
        ``rows[i]`` to ``rows[i + 1]``; ``blocks`` the line, first time and node, and the number of
        records of each, part ``i`` has those from ``places[i]`` to ``places[i + 1]``, of which
        there are some."""
        owner, base, node, records = blocks
        first, last = places[:-1], places[1:] - 1
        frame, code = encoded.frame, encoded.code_frame
        pieces = [(frame[first].tolist(), (frame[last] + 1).tolist())]
        coded = int(code[0]) >= 0
        if coded:
            pieces.append((code[first].tolist(), (code[last] + 1).tolist()))
        order = [
            list(chain.from_iterable(range(*span) for span in part))
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
        self._tables = _pack_tables(
            [np.ascontiguousarray(column, np.int64) for column in columns], begin, count, less
        )

    def content(self, part: int, archive: Mapping[str, bytes]) -> bytes | None:
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


def _pack_tables(columns: Sequence[I64], begin: I64, count: I64, less: I64) -> list[bytes]:
    """The byte planes of each part's ``columns``: ``count`` numbers of each column from ``begin``
    on, less ``less`` (all ``int64[parts, columns]``), in :data:`_WIDTH` bytes."""
    room = int((count * _WIDTH).sum())
    planes, end = np.empty(room, np.uint8), np.empty(len(begin), np.int64)
    length = np.array([len(column) for column in columns], np.int64)
    addresses = np.array([address_of(column, np.int64) for column in columns], np.int64)
    if not kernels.pack_tables(
        addresses, length, _WIDTH, len(columns), begin, count, less, len(begin), planes, room, end
    ):
        raise IndexError("tables of parts that do not exist")
    whole, bounds = planes.tobytes(), [0, *end.tolist()]
    return [whole[a:b] for a, b in pairwise(bounds)]
