"""Processes below those that started them."""

from __future__ import annotations

import numpy as np

from hpcd.analysis.profile.process_tree import parents, tree_order


def test_the_parent_is_the_newest_that_had_its_number() -> None:
    processes = [
        (3, 0, 10, 1, "make"), (0, 0, 11, 10, "gcc"), (1, 0, 10, 1, "make again"),
        (2, 0, 12, 10, "cc1"), (4, 1, 13, 10, "on another node"), (9, 0, 14, 10, "beyond"),
    ]  # fmt: skip
    assert parents(processes, 5).tolist() == [3, -1, 1, -1, -1]


def test_all_stand_below_their_parents() -> None:
    parent = np.array([3, -1, 1, -1, -1, 3, 0], np.int64)
    order = np.argsort(tree_order(parent)).tolist()
    assert order == [1, 2, 3, 0, 6, 5, 4]
    assert tree_order(np.empty(0, np.int64)).tolist() == []
