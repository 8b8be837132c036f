"""Operations on whole trees, against walking up from each node."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpcd.model.cct import CCT
from tests.support.random_measurements import trees

_MOST = 25  # nodes below the root
_CHOICE = st.lists(st.booleans(), min_size=_MOST + 1, max_size=_MOST + 1)


def _way_up(tree: CCT, node: int) -> list[int]:
    """A node and those above it, the root last."""
    return [*reversed(tree.path(node).tolist()), 0]


@given(trees(_MOST), _CHOICE)
def test_below_and_reached_are_what_walking_up_finds(tree: CCT, choice: list[bool]) -> None:
    chosen = np.array(choice[: len(tree)])
    below = [any(chosen[at] for at in _way_up(tree, node)) for node in range(len(tree))]
    assert tree.below(chosen).tolist() == below
    nodes = np.flatnonzero(chosen)
    reached = {at for node in nodes.tolist() for at in _way_up(tree, node)}
    assert set(np.flatnonzero(tree.reached(nodes)).tolist()) == reached


@given(trees(_MOST), _CHOICE)
def test_kept_nodes_hang_below_the_kept_ones_above_them(tree: CCT, choice: list[bool]) -> None:
    kept = np.array(choice[: len(tree)])
    kept[0] = True
    shorter, to = tree.keep(kept)
    shorter.validate("shorter")
    for node in range(len(tree)):
        expected = [int(tree.frame[at]) for at in _way_up(tree, node) if kept[at]]
        assert [int(shorter.frame[at]) for at in _way_up(shorter, int(to[node]))] == expected


@given(trees(_MOST))
def test_inclusive_costs_of_several_rows_are_those_of_each(tree: CCT) -> None:
    own = np.arange(3.0 * len(tree)).reshape(3, -1)
    together = tree.inclusive(own)
    assert together.tolist() == [tree.inclusive(row).tolist() for row in own]
