"""Graphs of waits that are made up."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from hpcd.analysis.waits.wait_chains import Cause, Pieces, wait_graph
from hpcd.kernels.library import CStructure
from hpcd.model.waits import Waker

Wait = tuple[int, int, int, int, int]
"""line, begin, end, waker (-1: none), kind"""
Piece = tuple[int, int, int, int, int]
"""line, begin, end, node, kind"""


def graph_of(lines: int, waits: list[Wait], pieces: list[Piece]) -> CStructure:
    """Return a graph of waits, each at a node that is its line plus 100."""
    wait = np.array(sorted(waits), np.int64).reshape(-1, 5).T
    piece = np.array(sorted(pieces), np.int64).reshape(-1, 5).T
    bounds = np.arange(lines + 1)
    return wait_graph(
        np.searchsorted(wait[0], bounds).astype(np.int64), wait[1], wait[2], wait[3],
        (wait[0] + 100).astype(np.uint32), wait[4].astype(np.uint8),
        Pieces(
            np.searchsorted(piece[0], bounds).astype(np.int64),
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
