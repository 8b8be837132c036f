"""Tests which of several waits that one thread ended were ended in vain."""

from __future__ import annotations

import numpy as np

from hpcd.analysis.waits.false_wakeups import among_others, enders

# (waker, node, begin, end, returned), in microseconds
Row = tuple[int, int, int, int, bool]


def among(rows: list[Row]) -> list[bool]:
    waker, node, begin, end, returned = zip(*rows, strict=True)
    return among_others(
        np.array(waker), np.array(node, np.uint32), np.array(begin) * 1000, np.array(end) * 1000,
        np.array(returned),
    ).tolist()  # fmt: skip


def test_of_a_herd_one_goes_on() -> None:
    assert among([(1, 5, 0, 100, True), (1, 5, 0, 103, False)]) == [True, True]
    assert among([(1, 5, 0, 100, True), (1, 5, 0, 103, True)]) == [False, False]  # a barrier


def test_others_are_no_herd() -> None:
    for other in (
        (2, 5, 0, 103, False),  # woken by another
        (1, 6, 0, 103, False),  # that waited elsewhere
        (1, 5, 0, 900, False),  # later
        (1, 5, 101, 103, False),  # that began to wait in between
    ):
        assert not among([(1, 5, 0, 100, True), other])[0]


def test_a_wait_ends_with_the_first_that_is_not_in_vain() -> None:
    vain = np.array([True, True, False, False, True, False])
    assert enders(vain).tolist() == [2, 2, 2, 3, 5, 5]
