"""Tests the arithmetic of who waits for whom, of waits that are made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from hypothesis import given

from hpcd.analysis.waits.wait_chains import Cause, Causes, list_steps, once_woken, sum_causes
from hpcd.kernels.library import kernels
from hpcd.model import waits
from hpcd.model.codes import Waker
from tests.support.wait_graphs import Piece, Wait, edges_of, graph_of, random_waits

A, B, C, D = range(4)
THREAD = Waker.THREAD


def summed(
    lines: int,
    of_waits: list[Wait],
    of_pieces: list[Piece],
    futex: Callable[[Wait], int] = lambda wait: 0,
    path: Callable[[Wait], int] = lambda wait: 0,
    goes_on: Sequence[Wait] = (),
) -> tuple[Causes, Causes]:
    """The causes of waits, each at a node that is its line plus 100."""
    nodes = np.array([line + 100 for line, *_ in sorted(of_waits)], np.uint32)
    return sum_causes(graph_of(lines, of_waits, of_pieces, futex, path, goes_on), nodes)


def rows(causes: Causes) -> Counter[tuple[int, int, int, int]]:
    """ns by node of the wait, line, node of the cause and kind."""
    columns = (causes.node, causes.line, causes.cause_node, causes.kind)
    keys = zip(*(column.tolist() for column in columns), strict=True)
    return Counter(dict(zip(keys, causes.ns.tolist(), strict=True)))


def test_a_chain_leads_to_who_ran_within_the_window() -> None:
    """A waits for B from 0 to 100; B waits for C from 20 to 90; C ran from 10 on, and waited for a
    CPU from 40 to 50."""
    direct, roots = summed(
        3,
        [(A, 0, 100, B, THREAD), (B, 20, 90, C, THREAD)],
        [
            (B, 0, 20, 1, Cause.THREAD), (B, 90, 100, 2, Cause.THREAD),
            (C, 10, 40, 3, Cause.THREAD), (C, 40, 50, 3, Cause.RUNNABLE),
            (C, 50, 200, 4, Cause.THREAD),
        ],
    )  # fmt: skip
    assert rows(direct) == {
        (100, B, 2, Cause.THREAD): 100,
        (101, C, 4, Cause.THREAD): 70,
    }
    of_a = {key[1:]: ns for key, ns in rows(roots).items() if key[0] == 100}
    assert of_a == {
        (B, 1, Cause.THREAD): 20,
        (C, 3, Cause.THREAD): 20,
        (C, 3, Cause.RUNNABLE): 10,
        (C, 4, Cause.THREAD): 40,
        (B, 2, Cause.THREAD): 10,
    }


def test_a_hop_is_clipped_to_the_window_of_the_waiter() -> None:
    """B had waited for C long before A began to wait for B: that is not A's."""
    _, roots = summed(
        3,
        [(A, 90, 110, B, THREAD), (B, 0, 100, C, THREAD)],
        [(B, 100, 110, 1, Cause.THREAD), (C, 0, 100, 2, Cause.THREAD)],
    )
    of_a = {key[1:]: ns for key, ns in rows(roots).items() if key[0] == 100}
    assert of_a == {(C, 2, Cause.THREAD): 10, (B, 1, Cause.THREAD): 10}


def test_threads_that_wake_each_other_at_one_moment_are_not_followed_forever() -> None:
    _, roots = summed(2, [(A, 0, 10, B, THREAD), (B, 0, 10, A, THREAD)], [])
    assert {key[3] for key in rows(roots)} == {Cause.NOT_SEEN}
    assert sum(rows(roots).values()) == 20


def test_what_nobody_ended_is_nobodys() -> None:
    kinds = [kind for kind in Waker if kind != THREAD]
    of_waits = [(A, 10 * at, 10 * at + 10, -1, int(kind)) for at, kind in enumerate(kinds)]
    direct, roots = summed(1, [*of_waits, (A, 90, 100, -1, THREAD)], [])
    expected = {(100, A, 0, int(kind)): 10 for kind in kinds} | {(100, A, 0, Cause.OUTSIDE): 10}
    assert rows(direct) == expected
    assert {key[3]: ns for key, ns in rows(roots).items()} == {key[3]: 10 for key in expected}


def test_sleep_that_is_recorded_after_a_wake_up_was_time_in_which_the_thread_could_run() -> None:
    """Woken at 60 in a piece from 10 to 70, it had no CPU before 100, nor before 150 after a wait
    that ended at 130; that it slept from 160 to 190 nobody ended."""
    pieces = [
        (0, 10, 5, Cause.THREAD), (10, 70, 6, Cause.NOT_SEEN), (70, 100, 6, Cause.NOT_SEEN),
        (100, 110, 5, Cause.THREAD), (110, 130, 7, Cause.NOT_SEEN), (130, 150, 7, Cause.NOT_SEEN),
        (150, 160, 5, Cause.THREAD), (160, 190, 8, Cause.NOT_SEEN),
    ]  # fmt: skip
    begin, end, node, kind = np.array(pieces, np.int64).T
    edges = edges_of([(A, 10, 60, B, THREAD), (A, 110, 130, B, THREAD)])
    cut = once_woken(begin, end, node.astype(np.uint32), kind.astype(np.uint8), edges)
    assert list(zip(*(column.tolist() for column in cut), strict=True)) == [
        (0, 10, 5, Cause.THREAD), (10, 60, 6, Cause.NOT_SEEN), (60, 70, 6, Cause.RUNNABLE),
        (70, 100, 6, Cause.RUNNABLE), (100, 110, 5, Cause.THREAD), (110, 130, 7, Cause.NOT_SEEN),
        (130, 150, 7, Cause.RUNNABLE), (150, 160, 5, Cause.THREAD), (160, 190, 8, Cause.NOT_SEEN),
    ]  # fmt: skip


def test_before_a_thread_began_it_ran_nothing() -> None:
    _, roots = summed(2, [(A, 0, 10, B, THREAD)], [(B, 6, 12, 1, Cause.THREAD)])
    assert rows(roots) == {(100, B, 0, Cause.UNBORN): 6, (100, B, 1, Cause.THREAD): 4}


def test_a_wait_for_a_lock_is_divided_among_those_who_held_it() -> None:
    """B holds the lock until 40 and wakes C; D has taken it, holds it until 100 and wakes A. Until
    40 D did something else."""
    direct, roots = summed(
        4,
        [(A, 0, 100, D, THREAD), (C, 0, 40, B, THREAD)],
        [
            (B, 0, 40, 1, Cause.THREAD), (D, 0, 40, 2, Cause.THREAD),
            (D, 40, 100, 3, Cause.THREAD),
        ],
        futex=lambda wait: 64 | waits.LOCK,
    )  # fmt: skip
    for causes in (direct, roots):
        of_a = {key[1:]: ns for key, ns in rows(causes).items() if key[0] == 100}
        assert of_a == {(B, 1, Cause.THREAD): 40, (D, 3, Cause.THREAD): 60}
    direct, _ = summed(
        4, [(A, 0, 100, D, THREAD), (C, 0, 40, B, THREAD)], [],
        futex=lambda wait: 64 | waits.LOCK if wait[0] == A else 128 | waits.LOCK,
    )  # fmt: skip
    assert rows(direct)[100, D, 0, Cause.THREAD] == 100


def test_a_thread_that_no_longer_waits_for_a_lock_waited_for_its_holder() -> None:
    """A gives up at 10; B holds the lock until 40, when it wakes A. Then nobody wakes anybody."""
    asks = [(A, 0, 10, -1, Waker.TIMER), (A, 30, 40, B, THREAD), (A, 50, 60, -1, Waker.TIMER)]
    runs = [(B, 0, 60, 1, Cause.THREAD)]
    direct, roots = summed(2, asks, runs, futex=lambda wait: 64 | waits.LOCK)
    assert rows(direct) == {(100, A, 0, Cause.TIMER): 20, (100, B, 1, Cause.THREAD): 10}
    # At 50 B has the lock again, as the one other thread that is known to use it.
    assert rows(roots) == {(100, B, 1, Cause.THREAD): 30}
    # It has not where it sleeps meanwhile, or where another lock is waited for.
    sleeps = (B, 45, 55, -1, Waker.TIMER)
    _, roots = summed(
        2, [*asks, sleeps], runs, futex=lambda wait: 64 | waits.LOCK if wait[0] == A else 0
    )
    assert rows(roots)[100, A, 100, Cause.TIMER] == 10
    _, roots = summed(2, asks, runs, futex=lambda wait: (128 if wait[1] == 50 else 64) | waits.LOCK)
    assert rows(roots)[100, A, 100, Cause.TIMER] == 10
    # A takes it at 10 and hands it back to B, which asks for it from 15 on; C has long waited.
    for other, begin, cause in ((B, 15, (B, 1, Cause.THREAD)), (C, 5, (A, 100, Cause.TIMER))):
        _, roots = summed(
            3,
            [(A, 0, 10, -1, Waker.TIMER), (other, begin, 30, A, THREAD)],
            [(B, 0, 15, 1, Cause.THREAD)],
            futex=lambda wait: 64 | waits.LOCK,
        )
        assert rows(roots)[100, *cause] == 10


def test_who_ended_a_wait_was_where_its_path_says() -> None:
    direct, _ = summed(
        2, [(A, 0, 10, B, THREAD)], [(B, 0, 20, 1, Cause.THREAD)], path=lambda wait: 5
    )
    assert rows(direct) == {(100, B, 5, Cause.THREAD): 10}


def test_a_wake_up_in_vain_is_no_cause() -> None:
    """B wakes A at 10 in vain, C at 30 for good."""
    first, second = (A, 0, 10, B, THREAD), (A, 11, 30, C, THREAD)
    direct, roots = summed(
        3, [first, second], [(C, 0, 30, 1, Cause.THREAD), (B, 0, 30, 2, Cause.THREAD)],
        goes_on=[first],
    )  # fmt: skip
    for causes in (direct, roots):
        assert rows(causes) == {(100, C, 1, Cause.THREAD): 29}


@given(random_waits())
def test_parts_of_a_wait_follow_one_another_and_add_up_to_its_sums(
    graph: tuple[int, list[Wait], list[Piece]],
) -> None:
    lines, of_waits, of_pieces = graph
    of_waits.sort()
    waits_graph = graph_of(
        lines, of_waits, of_pieces, futex=lambda wait: 4 * (wait[1] & 1) | waits.LOCK
    )
    sums = sum_causes(waits_graph, np.arange(len(of_waits), dtype=np.uint32))
    for number, (line, begin, end, _, _) in enumerate(of_waits):
        for direct, causes in zip((True, False), sums, strict=True):
            parts = list_steps(partial(kernels.list_wait_parts, waits_graph, line, number, direct))
            assert [begin, *parts.end.tolist()] == [*parts.begin.tolist(), end]
            summed_parts: Counter[tuple[int, int, int, int]] = Counter()
            for at in range(len(parts.begin)):
                key = (number, parts.line[at], parts.node[at], parts.kind[at])
                summed_parts[key] += parts.end[at] - parts.begin[at]
            mine = {key: ns for key, ns in rows(causes).items() if key[0] == number and ns}
            assert summed_parts == mine


@given(random_waits())
def test_sums_equal_the_waits(graph: tuple[int, list[Wait], list[Piece]]) -> None:
    """Whatever threads wait for one another, in cycles too: of each line's waits, exactly."""
    lines, of_waits, of_pieces = graph
    expected: Counter[int] = Counter()
    for line, begin, end, _, _ in of_waits:
        expected[line + 100] += end - begin
    for causes in summed(
        lines, of_waits, of_pieces,
        futex=lambda wait: wait[1] % 3 and 4 * (wait[0] & 1) + wait[1] % 3 - 1,
        goes_on=[
            one for one, after in pairwise(sorted(of_waits)) if one[0] == after[0] and one[2] & 1
        ],
    ):  # fmt: skip
        per_node: Counter[int] = Counter()
        for (node, _, _, _), ns in rows(causes).items():
            per_node[node] += ns
        assert per_node == expected
