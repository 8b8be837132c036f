"""Tests replays of runs that are made up, with parts of them shortened."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpcd.analysis.waits.path_steps import NO_LINE
from hpcd.analysis.waits.rank_messages import Needs
from hpcd.analysis.waits.replay import Replay, Samples
from hpcd.analysis.waits.wait_chains import Cause
from hpcd.array_types import F64
from hpcd.model.codes import Waker
from tests.support.replays import UNIT, needs_of, replay_of
from tests.support.wait_graphs import Piece, Wait, random_waits

A, B, C = range(3)
THREAD = Waker.THREAD


def ends(replay: Replay, *saved: float, lines: tuple[bool, ...] = ()) -> list[float]:
    """When each line ends with groups shortened, on all lines or on some."""
    on = np.array(lines or [True] * len(replay.stop))
    result: list[float] = (replay.ends(np.array(saved), on) / UNIT).tolist()
    return result


def on_path(replay: Replay, line: int) -> list[float]:
    """The time of each group that the end of a line depended on."""
    result: list[float] = (replay.on_path(line) / UNIT).tolist()
    return result


# A computes (group 0), then waits for B (group 1), which A created, is on a CPU 2 later, and goes
# on (group 0).
_CHAIN = (
    [(A, 20, 60, B, int(THREAD))],
    [(A, 0, 10, 0), (A, 10, 20, 0), (A, 62, 80, 0), (B, 10, 60, 1)],
)


def chain(creator: int = A) -> Replay:
    waits, runs = _CHAIN
    return replay_of(2, waits, runs, [NO_LINE, creator], 2)


def test_what_is_shorter_on_the_path_is_gained() -> None:
    replay = chain()
    assert ends(replay, 0, 0) == [80, 60]
    assert ends(replay, 0, 0.2) == [70, 50]
    assert on_path(replay, A) == [28, 50]
    # B begins as soon as A has created it.
    assert ends(replay, 0.5, 0) == [80 - 5 - 9, 55]


def test_who_comes_late_to_a_wait_does_not_wait() -> None:
    """Nor for a CPU, which it has: a gain ends where another path is as long."""
    replay = chain()
    assert ends(replay, 0, 1) == [20 + 18, 10]
    assert on_path(replay, A) == [38, 0]
    assert ends(replay, 0, 0.84) == [20 + 18, 10 + 8]
    assert ends(replay, 0, 0.82) == [10 + 9 + 2 + 18, 10 + 9]


def test_some_lines_alone_are_shorter() -> None:
    assert ends(chain(), 0.5, 0.5, lines=(True, False)) == [80 - 5 - 9, 55]
    assert ends(chain(), 0.5, 0.5, lines=(False, True)) == [80 - 25, 35]


def test_a_line_whose_creator_is_not_known_begins_as_it_did() -> None:
    assert ends(chain(NO_LINE), 0.5, 0) == [80 - 9, 60]


def test_what_is_beside_the_path_gains_nothing() -> None:
    """B is done before A asks for it, and C has nothing to do with either."""
    runs = [(A, 0, 50, 0), (A, 60, 90, 0), (B, 0, 20, 1), (C, 0, 90, 2)]
    waits = [(A, 50, 60, -1, int(Waker.TIMER)), (B, 20, 25, A, int(THREAD))]
    replay = replay_of(3, waits, runs, [NO_LINE] * 3, 3)
    assert ends(replay, 0, 1, 1)[A] == 90
    # A timer lasts as long.
    assert ends(replay, 0.5, 0, 0)[A] == 25 + 10 + 15


def test_a_chain_of_many_threads_gains_its_part_exactly() -> None:
    """Each of 1,000 waits for the one before it."""
    count = 1000
    runs = [(line, 10 * line, 10 * line + 10, line % 2) for line in range(count)]
    runs += [(line, 0, 1, 2) for line in range(1, count)]
    waits = [(line, 1, 10 * line, line - 1, int(THREAD)) for line in range(1, count)]
    replay = replay_of(count, waits, runs, [NO_LINE] * count, 3)
    assert ends(replay, 0, 0, 1)[-1] == 10 * count
    assert ends(replay, 0, 0.5, 0)[-1] == 10 * count - 5 * count / 2
    assert on_path(replay, count - 1) == [5 * count, 5 * count, 0]


def test_who_comes_last_to_a_meeting_may_be_another_in_the_replay() -> None:
    """A, B and C meet each 10, after 10, 7 and 4 of work."""
    works = (10, 7, 4)
    runs = [(line, 10 * turn, 10 * turn + work, line) for turn in range(5)
            for line, work in enumerate(works)]  # fmt: skip
    needs = needs_of(5, [(work, 10) for work in works])
    replay = replay_of(3, [], runs, [NO_LINE] * 3, 3, needs=needs)
    assert ends(replay, 0, 0, 0) == [50, 47, 44]
    assert ends(replay, 0.2, 0, 0)[A] == 40
    assert on_path(replay, A) == [50, 0, 0]
    # Then they wait for B.
    assert ends(replay, 0.5, 0, 0)[A] == 35
    assert on_path(replay, A) == [0, 35, 0]
    assert ends(replay, 0.5, 0.5, 0)[A] == 25
    # B alone gains nothing.
    assert ends(replay, 0, 0.5, 0)[A] == 50


def test_a_message_that_was_there_in_time_is_waited_for_in_the_replay() -> None:
    """A receives at 20 what B sent at 10."""
    needs = Needs(*(np.array([one]) for one in (A, 20 * UNIT, 20 * UNIT, 0, B, 10 * UNIT, 0)), 1)
    replay = replay_of(2, [], [(A, 0, 20, 0), (A, 20, 30, 1), (B, 0, 15, 2)], [NO_LINE] * 2, 3,
                       needs=needs)  # fmt: skip
    assert ends(replay, 0, 0, 0) == [30, 15]
    assert ends(replay, 0.4, 0, 0)[A] == 22
    assert ends(replay, 1, 0, 0)[A] == 20
    assert ends(replay, 1, 0, 0.5)[A] == 15


@given(
    random_waits(), st.lists(st.floats(0, 1), min_size=4, max_size=4), st.sampled_from((1, UNIT))
)
def test_a_replay_without_a_change_is_the_run(
    graph: tuple[int, list[Wait], list[Piece]], saved: list[float], unit: int
) -> None:
    """However the lines wake each other, even where their times contradict one another; and nothing
    is later for being shorter than it was."""
    lines, waits, pieces = graph
    runs = [(line, begin, end, node) for line, begin, end, node, kind in pieces
            if kind == Cause.THREAD]  # fmt: skip
    creator = [line - 1 for line in range(lines)]
    replay = replay_of(lines, waits, runs, creator, 4, unit)
    everywhere, nowhere = np.ones(lines, bool), np.zeros(lines, bool)
    assert replay.ends(np.zeros(4), everywhere).tolist() == replay.stop.tolist()
    assert replay.ends(np.array(saved), nowhere).tolist() == replay.stop.tolist()
    sooner = replay.ends(np.array(saved), everywhere)
    assert bool((sooner <= replay.stop + 1e-3).all())
    for line in range(lines):
        assert replay.on_path(line).sum() <= 60 * unit


def samples_of(*counts: tuple[int, ...], on_cpu: float = 1) -> Samples:
    """Samples of groups, by context."""
    table = np.array(counts)
    group, node = np.nonzero(table)
    return Samples(
        group.astype(np.uint32), node.astype(np.uint32), table[group, node], table.sum(axis=1),
        np.full(len(table), on_cpu),
    )  # fmt: skip


def test_a_group_has_contexts_by_its_samples() -> None:
    samples = samples_of((3, 1), (0, 8), (0, 0), on_cpu=0.5)
    half: F64 = np.array([0.0, 0.5])
    assert samples.mean(half).tolist() == [0.0625, 0.25, 0]
    assert samples.by_node(np.array([100.0, 10, 7]), 2).tolist() == [37.5, 12.5 + 5]


def test_errors_are_those_of_a_share_by_samples() -> None:
    """A quarter of 1,000 samples; of ten times as many; a few that agree are not certain."""
    inside: F64 = np.array([0.0, 1.0])
    few, many = samples_of((750, 250)), samples_of((7500, 2500))
    assert np.isclose(np.sqrt(few.variance(inside)[0]), (0.25 * 0.75 / 1000) ** 0.5, rtol=0.01)
    assert np.isclose(few.variance(inside)[0], 10 * many.variance(inside)[0], rtol=0.01)
    certain = samples_of((0, 3), (0, 1000), (3, 0)).variance(inside)
    assert certain[0] > 0.02 and certain[1] < 1e-5 and certain[2] == 0
