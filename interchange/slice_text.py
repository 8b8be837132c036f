"""Slices as text of Chrome's events, many at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.array_types import F64, I64
from hpcd.interchange.decimal_text import rows_of_numbers
from hpcd.interchange.nested_slices import Slices

# Around what slices differ in; the metrics' keys follow.
_HEAD = ',\n{"ph":"X",%s,"name":'
_AFTER_NAME = ',"ts":'
_PHRASES = (',"dur":', ',"cat":"wait"', ',"args":{', "}", "}")
# Seconds are whole ns.
_PLACES = 9
# Decimals of a 64-bit number, and its sign.
_LONGEST_NUMBER = 20
# Text made at once; names may be of any length.
_AT_ONCE = 4 << 20

_Texts = tuple[npt.NDArray[np.uint8], I64]


class SliceText:
    """Makes the text of events of one line after another.

    ``names`` and ``keys``, those of metrics, are JSON strings; ``loops`` is
    :class:`ExportLoops` or None.
    """

    def __init__(self, names: Sequence[str], keys: Sequence[str], loops: Any) -> None:
        self._keys = [f"{key}:" for key in keys]
        names = [name + _AFTER_NAME for name in names]
        self._names = np.array(names, object)
        self._lengths = np.array([len(name) for name in names], np.int64)
        self._letters = _letters(names) if loops is not None else None
        self._loops = loops
        self._head = ""

    def begin(self, place: str) -> None:
        """Go on with another line; ``place`` is what events say of process and thread."""
        self._head = _HEAD % place

    def of(self, name: I64, slices: Slices) -> Iterator[str]:
        """The text of ``slices``, each called name ``name[n]``, some MB at a time."""
        # Whole µs, as records have them: sums of fractions would not be where others begin.
        begin = slices.begin // 1000
        length = slices.end // 1000 - begin
        phrases = [self._head, *_PHRASES, *self._keys]
        costs, pieces = self._costs(slices.cost)
        fixed = sum(map(len, phrases)) + 2 * _LONGEST_NUMBER
        size = fixed + self._lengths[name] + np.diff(costs[1])[pieces].sum(axis=0)
        before = np.concatenate(([0], np.cumsum(size)))
        cuts = np.searchsorted(before, np.arange(_AT_ONCE, int(before[-1]), _AT_ONCE))
        cuts = np.unique(np.concatenate(([0], cuts, [len(name)])))
        if self._loops is not None:
            text = np.empty(int(np.diff(before[cuts]).max(initial=0)), np.uint8)
            known = _letters(phrases)
            for first, stop in pairwise(cuts.tolist()):
                written = self._loops.slice_events(
                    text, first, stop, self._letters, known, costs, name, begin, length,
                    slices.wait, pieces,
                )  # fmt: skip
                yield str(text[:written].data, "ascii")
            return
        told = costs[0].tobytes().decode("ascii").split(",")
        for first, stop in pairwise(cuts.tolist()):
            some = slice(first, stop)
            values = np.empty((stop - first, 4), object)
            values[:, 0] = self._names[name[some]]
            values[:, 1] = begin[some]
            values[:, 2] = length[some]
            values[:, 3] = _arguments(phrases, told, pieces[:, some], slices.wait[some])
            # One format for all: twice as fast as one by one.
            event = "".join((self._head, "%s%d", phrases[1], "%d%s", phrases[5]))
            yield event * (stop - first) % tuple(values.ravel().tolist())

    def _costs(self, cost: F64) -> tuple[_Texts, I64]:
        """Texts of all costs that there are, each with a comma behind it, and of each metric and
        slice the number of its text, counted from 1; 0 for none."""
        pieces = np.zeros(cost.shape, np.int64)
        rows, count = [], 1
        for row, piece in zip(cost, pieces, strict=True):
            used = np.flatnonzero(row)
            piece[used] = np.arange(count, count + len(used))
            count += len(used)
            rows.append(rows_of_numbers([row[used]], _PLACES, b",", self._loops))
        letters = np.frombuffer(b"".join(rows), np.uint8)
        ends = np.flatnonzero(letters == ord(",")) + 1
        return (letters, np.concatenate(([0, 0], ends))), pieces


def _arguments(
    phrases: list[str], told: list[str], pieces: I64, wait: npt.NDArray[np.bool_]
) -> list[str]:
    """What follows the length of each event: its category and costs."""
    texts = [""] * len(wait)
    for key, row in zip(phrases[1 + len(_PHRASES) :], pieces, strict=True):
        used = np.flatnonzero(row)
        for place, piece in zip(used.tolist(), row[used].tolist(), strict=True):
            texts[place] += f",{key}{told[piece - 1]}"
    for place in np.flatnonzero(pieces.any(axis=0)).tolist():
        texts[place] = phrases[3] + texts[place][1:] + phrases[4]
    for place in np.flatnonzero(wait).tolist():
        texts[place] = phrases[2] + texts[place]
    return texts


def _letters(texts: Sequence[str]) -> _Texts:
    """All letters of ``texts``, which are ASCII, and where each begins and the last ends."""
    lengths = np.array([0, *(len(text) for text in texts)], np.int64)
    letters = np.frombuffer("".join(texts).encode("ascii"), np.uint8)
    return letters, np.cumsum(lengths)
