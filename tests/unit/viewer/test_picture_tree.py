"""The tree that pictures show: states of threads, owners of colours, inlined calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import hpcd.analysis
from hpcd.analysis.findings.time_use import Use
from hpcd.model.scope import ScopeKind
from hpcd.viewer.picture_tree import ASLEEP, OWN, RUNNING, WAITING, PictureTree
from tests.support.compiled import compiled
from tests.support.made import Step, make


def node_of(tree: PictureTree, *path: str) -> int:
    """The node of a call path of names."""
    node = 0
    for name in path:
        children = np.flatnonzero(tree.tree.parent == node)
        (node,) = [at for at in children.tolist() if at and tree.names[tree.entity[at]] == name]
    return node


def test_states_and_owners_of_colours(tmp_path: Path) -> None:
    steps: list[Step] = [
        ("main/solve", "cpu", 0.2), ("main/solve/k_fault", "cpu", 0.1), ("main/write", "cpu", 0.1),
        ("main/exchange/MPI_Recv/k_poll", "cpu", 0.1), ("main/exchange/MPI_Recv", "blocked", 0.2),
        ("main/exchange/MPI_Isend", "cpu", 0.1), ("main/write/k_nanosleep", "blocked", 0.1),
    ]  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "db", {0: steps})) as db:
        tree = PictureTree(db)
        assert tree.rule == OWN
        known = {
            ("main", "solve"): (RUNNING, "solve"),
            # The kernel counts to its caller.
            ("main", "solve", "k_fault [k]"): (RUNNING, "solve"),
            # MPI has colours of its own; who polls in a receive waits, who starts a send works.
            ("main", "exchange", "MPI_Recv"): (WAITING, "MPI_Recv"),
            ("main", "exchange", "MPI_Recv", "k_poll [k]"): (WAITING, "MPI_Recv"),
            ("main", "exchange", "MPI_Isend"): (RUNNING, "MPI_Isend"),
            ("main", "write", "k_nanosleep [k]"): (ASLEEP, "write"),
        }
        for path, expected in known.items():
            node = node_of(tree, *path)
            assert (tree.state[node], tree.names[tree.owner[node]]) == expected, path
        assert tree.cause[node_of(tree, "main", "exchange", "MPI_Recv")] == Use.OTHERS


def test_inlined_calls_are_frames_and_loops_are_none(tmp_path: Path) -> None:
    with hpcd.analysis.open(compiled(tmp_path)) as db:
        tree = PictureTree(db)
        kind = tree.entities.kind[tree.entity]
        inlined, loops = (
            np.flatnonzero(kind == ScopeKind.INLINED),
            np.flatnonzero(kind == ScopeKind.LOOP),
        )
        assert len(inlined) and len(loops)
        parent = tree.tree.parent
        assert (tree.depth[inlined] == tree.depth[parent[inlined]] + 1).all()
        assert (tree.depth[loops] == tree.depth[parent[loops]]).all()
        # A context stands at its innermost scope.
        assert np.isin(tree.place, inlined).any()
        picture = tree.of_pixels(np.array([[1, 0xFFFFFFFF]], np.uint32))
        assert picture.tolist() == [[int(tree.place[1]), 0xFFFFFFFF]]
