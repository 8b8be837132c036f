"""Tests the critical path through waits that are graph up."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given

from hpcd.analysis.waits.path_steps import NO_LINE, follow
from hpcd.analysis.waits.wait_chains import Cause
from hpcd.model.codes import Waker
from tests.support.wait_graphs import Piece, Wait, graph_of, random_waits

A, B, C = range(3)
RAN, THREAD = Cause.THREAD, Waker.THREAD
Step = tuple[int, int, int, int, int]  # begin, end, line, node, kind


def steps(
    lines: int, waits: list[Wait], pieces: list[Piece], creator: list[int], line: int, end: int
) -> list[Step]:
    """The path from 0 to ``end`` that ends on ``line``."""
    path = follow(
        graph_of(lines, waits, pieces), np.array(creator, np.int64), line, begin=0, end=end
    )
    columns = (path.begin, path.end, path.line, path.node, path.kind)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_it_passes_to_the_thread_that_ended_a_wait() -> None:
    """A waits for B from 10 to 50; B works, but for a wait for a timer from 40 to 45."""
    waits = [(A, 10, 50, B, THREAD), (B, 40, 45, -1, Waker.TIMER)]
    pieces = [(A, 0, 10, 1, RAN), (A, 52, 60, 2, RAN), (A, 50, 52, 2, Cause.RUNNABLE),
              (B, 0, 40, 3, RAN), (B, 45, 70, 4, RAN)]  # fmt: skip
    assert steps(2, waits, pieces, [NO_LINE] * 2, A, 60) == [
        (0, 40, B, 3, RAN),
        (40, 45, B, 101, Waker.TIMER),
        (45, 50, B, 4, RAN),
        (50, 52, A, 2, Cause.RUNNABLE),
        (52, 60, A, 2, RAN),
    ]


def test_before_a_thread_began_it_is_on_its_creator() -> None:
    pieces = [(A, 0, 90, 1, RAN), (B, 20, 60, 2, RAN)]
    assert steps(2, [], pieces, [NO_LINE, A], B, 60) == [
        (0, 20, A, 1, RAN), (20, 60, B, 2, RAN)
    ]  # fmt: skip
    assert steps(2, [], pieces, [NO_LINE, NO_LINE], B, 60)[0] == (0, 20, B, 0, Cause.NOT_SEEN)


def test_between_pieces_nothing_is_known() -> None:
    pieces = [(A, 5, 10, 1, RAN), (A, 20, 30, 1, RAN)]
    assert steps(1, [], pieces, [NO_LINE], A, 40) == [
        (0, 5, A, 0, Cause.NOT_SEEN), (5, 10, A, 1, RAN), (10, 20, A, 0, Cause.NOT_SEEN),
        (20, 30, A, 1, RAN), (30, 40, A, 0, Cause.NOT_SEEN),
    ]  # fmt: skip


def test_threads_that_wake_each_other_at_one_moment_are_not_followed_forever() -> None:
    waits = [(A, 0, 10, B, THREAD), (B, 0, 10, A, THREAD)]
    assert [step[:2] + step[4:] for step in steps(2, waits, [], [B, A], A, 10)] == [
        (0, 10, Cause.NOT_SEEN)
    ]


@given(random_waits())
def test_steps_follow_one_another_and_add_up(graph: tuple[int, list[Wait], list[Piece]]) -> None:
    lines, waits, pieces = graph
    creator = [line - 1 if line % 2 else line + 1 for line in range(lines)]
    creator[-1] = min(creator[-1], lines - 1)
    for line in range(lines):
        path = steps(lines, waits, pieces, creator, line, 70)
        assert [step[0] for step in path] == [0, *(step[1] for step in path[:-1])]
        assert path[-1][1] == 70
        for before, after in pairwise(path):
            assert before[1] > before[0] and before[2:] != after[2:]


def test_columns_grow_for_a_long_path() -> None:
    waits = [(A, at, at + 5, -1, Waker.TIMER) for at in range(0, 100_000, 10)]
    pieces = [(A, at + 5, at + 10, 1, RAN) for at in range(0, 100_000, 10)]
    assert len(steps(1, waits, pieces, [NO_LINE], A, 100_000)) == 20_000
