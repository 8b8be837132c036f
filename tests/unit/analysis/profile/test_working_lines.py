"""Which trace lines did the work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.analysis.profile.launchers import select_launchers
from hpcd.analysis.profile.shared_rows import shared_rows
from hpcd.analysis.profile.working_lines import select_working, working_lines
from hpcd.errors import UsageError
from hpcd.model.cct import NO_NODE
from hpcd.viewer.pictures import PictureView, draw
from hpcd.viewer.server.selection import Choice, LineSelection
from tests.support.brief_threads import a_thread_a_request
from tests.support.made import make
from tests.support.viewer import ranks_with_helpers


def test_helpers_that_sleep_are_left_out(tmp_path: Path) -> None:
    steps = {
        0: [("main/solve", "cpu", 2.0)],
        1: [("main/MPI_Recv", "blocked", 2.0), ("main/solve", "cpu", 0.001)],
        2: [("main/solve", "cpu", 1.9)],
    }
    path = make(tmp_path / "db", steps, helper=True)
    with hpcd.analysis.open(path) as db:
        cost = db.line_totals("cpu_time")
        assert np.allclose(cost, db.metrics.over_lines("cpu_time", 0))
        working = working_lines(db)
        assert (len(db.lines), int(working.sum())) == (6, 3)
        assert cost[~working].sum() <= 0.005 * cost.sum()
        for rank in np.unique(db.lines.rank[db.lines.rank >= 0]):
            mine = np.flatnonzero(db.lines.rank == rank)
            assert working[mine[cost[mine].argmax()]]
        with pytest.raises(UsageError, match="no metric"):
            db.line_totals("luck")


def test_one_rule_for_helper_threads_and_idle_processes() -> None:
    # Process 0: a worker, one of a thousandth, one that sleeps; 1: a launcher; 2: a server whose
    # four threads each run for a moment, as often as one another.
    cpu = np.array([5.0, 0.02, 0.0, 0.001, 0.08, 0.08, 0.08, 0.08])
    process = np.array([0, 0, 0, 1, 2, 2, 2, 2])
    life, unranked = np.full(8, 10.0), np.full(8, -1)
    working = select_working(cpu, life, process, unranked)
    assert working.tolist() == [True, False, False, False, True, True, True, True]
    # A rank that did nothing is news; a thread may have worked all of a short life.
    rank = np.array([-1, -1, -1, 0, -1, -1, -1, -1])
    assert select_working(cpu, life, process, rank)[3]
    life[1] = 0.03
    assert select_working(cpu, life, process, unranked)[1]
    # Where nothing ran there is nothing to choose by.
    assert select_working(np.zeros(3), np.ones(3), np.zeros(3, np.int64), np.full(3, -1)).all()


def test_one_row_stands_for_all_helper_threads(tmp_path: Path) -> None:
    path = ranks_with_helpers(tmp_path, helpers=3)
    with hpcd.analysis.open(path) as db:
        selection = LineSelection(db)
        every, folded = Choice(), Choice(fold=True)
        rows = selection.order(folded)
        assert (len(selection.order(every)), len(rows)) == (8, 3)
        labels = selection.labels(rows.tolist(), folded)
        assert labels == ["rank 0", "rank 1", "6 helpers"]
        assert selection.folded(rows.tolist(), folded) == [0, 0, 6]
        # Nothing of the costs is lost: a row stands for all of its lines.
        assert sorted(selection.with_folded(rows, folded).tolist()) == list(range(8))
        assert len(selection.with_folded(rows[2:], folded)) == 6
        unfolded = Choice(fold=True, unfolded=True)
        counts = selection.folded(selection.order(unfolded).tolist(), unfolded)
        assert counts == [0, 1, 1, 1, 0, 1, 1, 1]
        # Who asks for helper threads alone sees them.
        assert len(selection.order(Choice("helper", fold=True))) == 6
        assert len(selection.order(Choice("rank 0", fold=True))) == 2


def test_threads_that_lived_one_after_another_share_rows() -> None:
    start = np.array([0, *range(0, 40), 0])
    end = np.array([1000, *range(2, 42), 50])
    process = np.array([0] * 41 + [1])
    rows = shared_rows(start, end, process, np.ones(42, bool))
    # Two live at any time: the odd ones follow one another, and the even ones.
    assert rows.tolist() == [0, *[1, 2] * 20, 41]
    # Who may not, or lives for long, does not; nor do few.
    may = np.ones(42, bool)
    may[5] = False
    assert shared_rows(start, end, process, may)[5] == 5
    assert shared_rows(start[:16], end[:16], process[:16], may[:16]).tolist() == list(range(16))
    at_once = np.zeros(42, np.int64)
    assert (shared_rows(at_once, end, process, may) == np.arange(42)).all()
    assert len(shared_rows(start[:0], end[:0], process[:0], may[:0])) == 0


def test_the_picture_of_a_thread_a_request_is_that_of_a_pool(tmp_path: Path) -> None:
    with hpcd.analysis.open(a_thread_a_request(tmp_path)) as db:
        selection, folded = LineSelection(db), Choice(fold=True)
        rows = selection.order(folded)
        assert selection.labels(rows.tolist(), folded) == [
            "server 100", "server 100 · 20 threads", "server 100 · 20 threads",
        ]  # fmt: skip
        assert selection.folded(rows.tolist(), folded) == [0, 0, 0]
        assert len(selection.with_folded(rows, folded)) == len(db.lines)
        assert sorted(selection.with_shared(rows, folded).tolist()) == list(range(41))
        picture = selection.sample(rows, folded, 0, 2_000_000_000, 200)
        shown = picture != NO_NODE
        # One of a row's threads after another, to both ends of what is looked at.
        assert shown[:2].all() and shown[2, 6:].all() and not shown[2, :4].any()
        assert len(np.unique(picture[1:][shown[1:]])) == 1
        # A part of the time has the threads of that part.
        part = selection.sample(rows[1:], folded, 500_000_000, 600_000_000, 10)
        assert (part == picture[1, 60]).all()
        every = selection.sample(selection.order(Choice()), Choice(), 0, 2_000_000_000, 200)
        assert every.shape == (41, 200)
        assert (every[1:] != NO_NODE).sum() == shown[1:].sum()
        drawn = draw(db, tmp_path / "pool.png", PictureView(share=True, height=300))
        assert drawn.lines == rows.tolist()


def test_launchers_are_told_by_the_work_below_them() -> None:
    processes = [
        (0, 0, 10, 1, "make"), (1, 0, 11, 10, "gcc"), (2, 0, 12, 11, "cc1"),
        (3, 0, 20, 1, "driver"), (4, 0, 21, 20, "solver"),
        # A pool of workers of one program has a master that works, too.
        (5, 0, 30, 1, "server"), (6, 0, 31, 30, "server"),
        # Much work of its own, and a shell that did more than what it started.
        (7, 0, 40, 1, "main"), (8, 0, 41, 40, "tool"), (9, 0, 50, 1, "sh"), (10, 0, 51, 50, "ls"),
    ]  # fmt: skip
    used = np.array([0.5, 0.5, 1.0, 0.1, 2.0, 0.1, 5.0, 1.0, 2.0, 3.0, 0.1])
    assert np.flatnonzero(select_launchers(processes, used)).tolist() == [0, 1, 3]
