"""Tests waits that take the place of others of their line."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from hpcd.analysis.waits.wait_edges import MESSAGE, WaitEdges
from hpcd.model.codes import Waker
from tests.support.wait_graphs import Piece, Wait, edges_of, random_waits

A, B, C = range(3)
BLOCKED = int(Waker.THREAD)


def spans(edges: WaitEdges) -> list[tuple[int, int, int]]:
    return list(zip(edges.line.tolist(), edges.begin.tolist(), edges.end.tolist(), strict=True))


def test_what_is_recorded_while_a_rank_waits_for_a_message_is_left_out() -> None:
    """A sleeps now and then while it waits for C from 10 to 30; B waits for no message."""
    waits = [(A, 5, 8), (A, 12, 14), (A, 20, 25), (A, 29, 40), (B, 12, 14)]
    recorded = edges_of([(*wait, C, BLOCKED) for wait in waits])
    kept = recorded.outside(edges_of([(A, 10, 30, C, MESSAGE)]))
    assert spans(kept) == [(A, 5, 8), (A, 30, 40), (B, 12, 14)]
    assert spans(recorded.outside(edges_of([]))) == sorted(waits)


@given(random_waits(), random_waits())
def test_both_do_not_overlap(
    one: tuple[int, list[Wait], list[Piece]], other: tuple[int, list[Wait], list[Piece]]
) -> None:
    recorded, windows = edges_of(one[1]), edges_of(other[1])
    kept = recorded.outside(windows)
    busy = np.zeros((4, 70), np.int64)
    for line, begin, end in spans(kept) + spans(windows):
        assert begin < end
        busy[line, begin:end] += 1
    assert busy.max(initial=0) <= 1
    for line, begin, end in spans(kept):
        assert any(begin >= wait[1] and end <= wait[2] for wait in one[1] if wait[0] == line)
