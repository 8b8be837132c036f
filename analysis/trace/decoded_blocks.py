"""Blocks that pictures were drawn from, kept for those to come.

Who looks closely moves a little at a time: most blocks of a picture are those of the one before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.analysis.trace.blocks import Stored, decode_places
from hpcd.analysis.trace.part import Part
from hpcd.array_types import I64, U32

Unsigned = npt.NDArray[np.unsignedinteger]

# What is kept: twice the blocks of a picture of 1,600 rows, two of each.
_MOST_BYTES = 48 << 20


class _Kept(NamedTuple):
    """Of ``n`` blocks of a row ticks since their first record and nodes, both ``[n, 1024]``."""

    since: Unsigned
    node: U32


# A part, the first block, and how many.
_Key = tuple[Part, int, int]


class DecodedBlocks:
    """Times and nodes of blocks, of at most so many bytes: those used last."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most = most_bytes
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def clear(self) -> None:
        """Keep none any more, nor their parts."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def blocks(self, rows: Sequence[tuple[Part, int]], count: int) -> tuple[Unsigned, U32, I64]:
        """``count`` blocks of each of ``rows`` (a part and the first block): ticks since their
        first records and nodes, as :func:`decode_places` gives them, and the ticks of these,
        ``int64[n]``. Raises :class:`FormatError`."""
        base = np.concatenate([part.blocks.base[a : a + count] for part, a in rows])
        keys = [(part, first, count) for part, first in rows]
        with self._lock:
            found = [self._kept.get(key) for key in keys]
            for key, kept in zip(keys, found, strict=True):
                if kept is not None:
                    self._kept.move_to_end(key)
        missing = [number for number, kept in enumerate(found) if kept is None]
        if not missing:
            return *_joined([kept for kept in found if kept is not None]), base
        since, node = _decoded([rows[number] for number in missing], count)
        fresh = [
            # Copies: a view would keep all that was decoded with it.
            _Kept(since[at : at + count].copy(), node[at : at + count].copy())
            for at in range(0, len(since), count)
        ]
        self._keep([keys[number] for number in missing], fresh)
        if len(missing) == len(rows):
            return since, node, base
        new = iter(fresh)
        return *_joined([next(new) if kept is None else kept for kept in found]), base

    def _keep(self, keys: Sequence[_Key], fresh: Sequence[_Kept]) -> None:
        with self._lock:
            for key, kept in zip(keys, fresh, strict=True):
                if key not in self._kept:
                    self._kept[key] = kept
                    self._bytes += kept.since.nbytes + kept.node.nbytes
            while self._bytes > self._most:
                _, kept = self._kept.popitem(last=False)
                self._bytes -= kept.since.nbytes + kept.node.nbytes


def _joined(kept: Sequence[_Kept]) -> tuple[Unsigned, U32]:
    return np.concatenate([one.since for one in kept]), np.concatenate([one.node for one in kept])


def _decoded(rows: Sequence[tuple[Part, int]], count: int) -> tuple[Unsigned, U32]:
    stored = Stored()
    columns: dict[str, list[npt.NDArray[np.integer]]] = {}
    for part, first in rows:
        span = slice(first, first + count)
        part.add_places(stored, span)
        for name in ("width", "least", "records"):
            columns.setdefault(name, []).append(getattr(part.blocks, name)[span])
    joined = {name: np.concatenate(values) for name, values in columns.items()}
    return decode_places(
        stored, joined["width"], joined["least"], joined["records"].astype(np.int64)
    )
