"""Tests the replay of ranks that meet with the same work each."""

from __future__ import annotations

import numpy as np
import pytest

from hpcd.analysis.waits.balance import balance
from hpcd.analysis.waits.path_steps import NO_LINE
from tests.support.replays import UNIT, needs_of, replay_of

A, B, C = range(3)


def balanced(
    runs: list[tuple[int, int, int, int]], turns: list[tuple[int, int]], count: int
) -> list[float]:
    """When each line ends, in replay with perfect balance."""
    replay = replay_of(
        len(turns), [], runs, [NO_LINE] * len(turns), 1, needs=needs_of(count, turns)
    )
    saved, meetings = balance(replay.runs, replay.needs)
    assert meetings == count
    result = replay.by_run().ends(saved, np.ones(len(turns), bool)) / UNIT
    return [float(end) for end in result]


def test_all_have_the_mean_of_their_work_before_a_meeting() -> None:
    """A and B meet each 10, after 10 and 4 of work, the latter in two parts."""
    runs = [run for turn in range(0, 50, 10)
            for run in ((A, turn, turn + 10, 0), (B, turn, turn + 1, 0),
                        (B, turn + 1, turn + 4, 0))]  # fmt: skip
    assert balanced(runs, [(10, 10), (4, 10)], 5)[A] == pytest.approx(35)


def test_ranks_that_have_as_much_gain_nothing() -> None:
    runs = [(line, 10 * turn, 10 * turn + 8, 0) for turn in range(5) for line in (A, B, C)]
    assert balanced(runs, [(8, 10)] * 3, 5) == pytest.approx([48] * 3)


def test_a_rank_without_work_stays_without_and_work_behind_the_last_meeting_stays() -> None:
    runs = [(A, 0, 10, 0), (B, 0, 6, 0), (A, 10, 30, 0), (C, 20, 21, 0)]
    ends = balanced(runs, [(10, 20), (6, 20), (0, 20)], 1)
    assert ends[A] == pytest.approx(8 + 20)
