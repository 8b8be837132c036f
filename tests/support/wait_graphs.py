"""Graphs of waits that are made up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import strategies as st

from hpcd.analysis.waits.false_wakeups import enders
from hpcd.analysis.waits.locks import locks_of
from hpcd.analysis.waits.wait_chains import Cause, Pieces, Waits, wait_graph
from hpcd.analysis.waits.wait_edges import WaitEdges
from hpcd.kernels.library import CStructure
from hpcd.model.codes import Waker

Wait = tuple[int, int, int, int, int]
"""line, begin, end, waker (-1: none), kind"""
Piece = tuple[int, int, int, int, int]
"""line, begin, end, node, kind"""


def edges_of(
    waits: list[Wait],
    futex: Callable[[Wait], int] = lambda wait: 0,
    path: Callable[[Wait], int] = lambda wait: 0,
) -> WaitEdges:
    """Return waits, each at a node that is its line plus 100."""
    waits = sorted(waits)
    wait = np.array(waits, np.int64).reshape(-1, 5).T.copy()
    return WaitEdges(
        *wait[:3], (wait[0] + 100).astype(np.uint32), wait[4].astype(np.uint8), wait[3],
        np.array([path(one) for one in waits], np.uint32),
        np.array([futex(one) for one in waits], np.uint64), np.zeros(len(waits), np.uint32),
        np.zeros(len(waits), bool),
    )  # fmt: skip


def waits_of(
    lines: int,
    waits: list[Wait],
    futex: Callable[[Wait], int] = lambda wait: 0,
    path: Callable[[Wait], int] = lambda wait: 0,
    goes_on: Sequence[Wait] = (),
) -> Waits:
    """Return :func:`edges_of` by line; those in ``goes_on`` were ended in vain."""
    edges = edges_of(waits, futex, path)
    return Waits(
        edges.first(lines), edges.begin, edges.end, edges.waker, edges.node, edges.kind, edges.path,
        edges.other, enders(np.array([one in goes_on for one in sorted(waits)], bool)),
        locks_of(np.zeros(len(edges), np.uint32), edges.futex, edges.end, edges.kind),
    )  # fmt: skip


def graph_of(
    lines: int,
    waits: list[Wait],
    pieces: list[Piece],
    futex: Callable[[Wait], int] = lambda wait: 0,
    path: Callable[[Wait], int] = lambda wait: 0,
    goes_on: Sequence[Wait] = (),
) -> CStructure:
    """Return the graph of :func:`waits_of` and of what lines did between them."""
    piece = np.array(sorted(pieces), np.int64).reshape(-1, 5).T
    return wait_graph(
        waits_of(lines, waits, futex, path, goes_on),
        Pieces(
            np.searchsorted(piece[0], np.arange(lines + 1)).astype(np.int64),
            np.ascontiguousarray(piece[1]), np.ascontiguousarray(piece[2]),
            piece[3].astype(np.uint32), piece[4].astype(np.uint8),
        ),
    )  # fmt: skip


@st.composite
def random_waits(draw: st.DrawFn) -> tuple[int, list[Wait], list[Piece]]:
    """A number of lines, their waits and what they did between them."""
    lines = draw(st.integers(1, 4))
    waits: list[Wait] = []
    pieces: list[Piece] = []
    for line in range(lines):
        for target in (waits, pieces):
            cuts = sorted(draw(st.sets(st.integers(0, 60), max_size=12)))
            for begin, end in zip(cuts[::2], cuts[1::2], strict=False):
                if target is waits:
                    waker = draw(st.integers(-1, lines - 1))
                    kind = Waker.THREAD if waker >= 0 else draw(st.sampled_from(Waker))
                    waits.append((line, begin, end, waker, int(kind)))
                else:
                    did = draw(st.sampled_from((Cause.THREAD, Cause.RUNNABLE, Cause.NOT_SEEN)))
                    pieces.append((line, begin, end, draw(st.integers(0, 3)), int(did)))
    return lines, waits, pieces
