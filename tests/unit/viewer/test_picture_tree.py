"""The tree that pictures show: states of threads, owners of colours, inlined calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.analysis.findings.context_use import Use
from hpcd.analysis.profile.state_times import RecordStates
from hpcd.analysis.profile.views import contexts
from hpcd.analysis.trace.states import NOT_SAMPLED, states_of
from hpcd.model.codes import State
from hpcd.model.scope import ScopeKind
from hpcd.viewer.picture_tree import (
    ASLEEP,
    ON_CPU,
    OWN,
    RUNNABLE,
    RUNNING,
    WAITING,
    PictureTree,
)
from tests.support.compiled import compiled
from tests.support.made import Step, make


def nodes_at(tree: PictureTree, *path: str) -> list[int]:
    """The nodes of a call path of names: one for each state of a thread there, the first of which
    has the children."""
    nodes = [0]
    for name in path:
        children = np.flatnonzero(tree.tree.parent == nodes[0])
        nodes = [at for at in children.tolist() if at and tree.names[tree.entity[at]] == name]
    return nodes


def test_states_and_owners_of_colours(tmp_path: Path) -> None:
    steps: list[Step] = [
        ("main/solve", "cpu", 0.2), ("main/solve/k_fault", "cpu", 0.1), ("main/write", "cpu", 0.1),
        ("main/exchange/MPI_Recv/k_poll", "cpu", 0.1), ("main/exchange/MPI_Recv", "blocked", 0.2),
        ("main/exchange/MPI_Isend", "cpu", 0.1), ("main/write/k_nanosleep", "blocked", 0.1),
    ]  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "db", {0: steps})) as db:
        tree = PictureTree(db)
        assert tree.rule == OWN
        on_cpu = Use.OTHERS + ON_CPU
        known = {
            ("main", "solve"): (RUNNING, Use.WORK, "solve"),
            # The kernel counts to its caller.
            ("main", "solve", "k_fault [k]"): (RUNNING, Use.SYSTEM, "solve"),
            # MPI has colours of its own; who polls in a receive waits, who starts a send works.
            ("main", "exchange", "MPI_Recv"): (WAITING, Use.OTHERS, "MPI_Recv"),
            ("main", "exchange", "MPI_Recv", "k_poll [k]"): (WAITING, on_cpu, "MPI_Recv"),
            ("main", "exchange", "MPI_Isend"): (RUNNING, Use.WORK, "MPI_Isend"),
            ("main", "write", "k_nanosleep [k]"): (ASLEEP, Use.DEVICES, "write"),
        }
        for path, expected in known.items():
            node = nodes_at(tree, *path)[0]
            look = tree.state[node], tree.cause[node], tree.names[tree.owner[node]]
            assert look == expected, path


def test_a_call_path_has_a_node_for_each_state_of_threads_there(tmp_path: Path) -> None:
    """The state is that of the record, not of most records of its call path."""
    steps: list[Step] = [
        ("main/lock/k_futex", "blocked", 0.3), ("main/lock/k_futex", "runnable", 0.2),
        ("main/lock/k_futex", "cpu", 0.1), ("main/lock/k_futex", "blocked", 0.1),
        ("main/work", "cpu", 0.3), ("main/work", "runnable", 0.1),
    ]  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "db", {0: steps})) as db:
        tree = PictureTree(db)
        states = {
            path: [int(tree.state[node]) for node in nodes_at(tree, *path)]
            for path in (("main", "lock", "k_futex [k]"), ("main", "work"))
        }
        # The first is that of most of the time.
        assert states == {
            ("main", "lock", "k_futex [k]"): [ASLEEP, RUNNABLE, RUNNING],
            ("main", "work"): [RUNNING, RUNNABLE],
        }
        # Call paths have the numbers of the view from the top.
        plain = contexts(db, "top-down", nameless=False).tree
        assert np.array_equal(tree.tree.parent[: tree.paths], plain.parent)
        assert np.array_equal(tree.tree.frame[: tree.paths], plain.frame)
        nodes = tree.of_pixels(db.sample_grid(None, 0, db.duration_ns, 1, 1000))[0]
        seconds = np.bincount(tree.state[nodes], minlength=4) * db.duration_ns / 1e12
        # From the first sample on, 0.5 ms after the begin.
        assert seconds == pytest.approx([0.4, 0.3, 0.4, 0], abs=0.003)
        exact = tree.costs(RecordStates(db).occupancy([0], 0, db.duration_ns))
        by_state = np.bincount(tree.state, exact, 4)
        assert by_state == pytest.approx([0.4, 0.3, 0.4, 0], abs=0.002)


def test_a_thread_that_runs_where_no_sample_tells_is_at_a_node_of_its_own(tmp_path: Path) -> None:
    steps: list[Step] = [
        ("main/nap/k_nanosleep", "blocked", 0.1), ("main", "unseen", 0.05),
        ("main/nap/k_nanosleep", "blocked", 0.1),
    ]  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "db", {0: steps})) as db:
        tree = PictureTree(db)
        pixels = db.sample_grid(None, 0, db.duration_ns, 1, 250)
        runs = tree.of_pixels(pixels)[states_of(pixels) == State.SAMPLED]
        assert len(runs) == pytest.approx(50, abs=2)
        (node,) = set(runs.tolist())
        assert tree.names[tree.entity[node]] == NOT_SAMPLED
        assert (tree.state[node], tree.depth[node]) == (RUNNING, 1)


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
