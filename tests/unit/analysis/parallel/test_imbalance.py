"""Imbalance and blame on made measurements, compared with the arithmetic."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.parallel.imbalance import Imbalance, measure
from hpcd.analysis.parallel.waiting import Stretches, share_blame
from tests.support.made import Step, make

MS = 10**6


def uneven(kind: str, path: str) -> dict[int, list[Step]]:
    """Ranks 0 to 3 work for 0.1 to 0.4 s, then wait for the last."""
    return {
        rank: [
            ("main/work/kernel", "cpu", 0.1 * (rank + 1)),
            *([(path, kind, 0.1 * (3 - rank))] if rank < 3 else []),
        ]
        for rank in range(4)
    }


def by_path(imbalance: Imbalance) -> dict[str, int]:
    tree, places = imbalance.matching.tree, imbalance.matching.places
    return {
        "/".join(places[int(tree.frame[at])].name for at in tree.path(node)): node
        for node in range(len(tree))
    }


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("cpu", "main/meet/MPI_Barrier/Progress"),  # spinning
        ("blocked", "main/meet/MPI_Barrier/k_sleep"),
        ("blocked", "main/meet/k_sleep"),  # in no call of MPI
    ],
)
def test_waiting_is_blamed_on_those_at_work(tmp_path: Path, kind: str, path: str) -> None:
    with hpcd.analysis.open(make(tmp_path / "db", uneven(kind, path), helper=True)) as db:
        imbalance = measure(db)
        node = by_path(imbalance)
        work, meet = node["main/work/kernel"], node["main/meet"]
        assert imbalance.own.mean[work] == pytest.approx(0.25)
        assert (imbalance.own.maximum[work], imbalance.own.most[work]) == (pytest.approx(0.4), 3)
        assert (imbalance.own.minimum[work], imbalance.own.least[work]) == (pytest.approx(0.1), 0)
        assert imbalance.own.ratio[work] == pytest.approx(1.6)
        assert imbalance.own.imbalance[work] == pytest.approx(0.15)
        assert imbalance.by_rank(work) == pytest.approx([0.1, 0.2, 0.3, 0.4])
        assert imbalance.inclusive.maximum[node["main"]] == pytest.approx(0.4)
        assert imbalance.own.maximum[meet] == 0
        assert imbalance.idle[meet] == pytest.approx(0.6, abs=0.005)
        assert imbalance.blame[work] == pytest.approx(0.6, abs=0.005)
        assert imbalance.unblamed == pytest.approx(0, abs=0.005)
        # A third of 0.1 s; half of 0.2 s; all of 0.3 s.
        assert imbalance.blame_of_rank == pytest.approx([0, 1 / 30, 4 / 30, 13 / 30], abs=0.005)
        assert imbalance.contexts()[0] == work


def test_a_context_of_one_rank_is_most_imbalanced(tmp_path: Path) -> None:
    ranks: dict[int, list[Step]] = {r: [("main/work", "cpu", 0.2)] for r in range(4)}
    ranks[2] = [*ranks[2], ("main/output", "cpu", 0.1)]
    with hpcd.analysis.open(make(tmp_path / "db", ranks)) as db:
        imbalance = measure(db)
        node = by_path(imbalance)["main/output"]
        assert (imbalance.own.most[node], imbalance.own.ratio[node]) == (2, pytest.approx(4))
        assert imbalance.own.imbalance[node] == pytest.approx(0.075)
        assert imbalance.contexts()[0] == node


def test_without_ranks_threads_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path / "db", uneven("cpu", "main/gomp_barrier_wait"), threads=True)
    with hpcd.analysis.open(path) as db:
        imbalance = measure(db)
        work = by_path(imbalance)["main/work/kernel"]
        assert (imbalance.ranks.kind, imbalance.ranks.number.tolist()) == (
            "thread",
            [100, 101, 102, 103],
        )
        assert (imbalance.own.ratio[work], imbalance.own.most[work]) == (pytest.approx(1.6), 103)
        assert imbalance.blame[work] == pytest.approx(0.6, abs=0.005)
    assert main(["imbalance", str(path)]) == 0
    assert "waiting caused by: thread 103 72 %" in capsys.readouterr().out


def test_all_waiting_at_once_is_nobodys_fault(tmp_path: Path) -> None:
    ranks: dict[int, list[Step]] = {r: [("main/MPI_Recv", "cpu", 0.2)] for r in range(2)}
    with hpcd.analysis.open(make(tmp_path / "db", ranks)) as db:
        imbalance = measure(db)
        assert imbalance.unblamed == pytest.approx(0.4, abs=0.005)
        assert imbalance.blame.sum() == 0


times = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.booleans()), min_size=1, max_size=8
)


@given(st.lists(times, min_size=1, max_size=5))
def test_blame_is_what_each_millisecond_says(lines: list[list[tuple[int, int, bool]]]) -> None:
    stretches = []
    grid = np.full((len(lines), 60), -1)
    idle_grid = np.zeros((len(lines), 60), bool)
    for number, parts in enumerate(lines):
        edges = np.cumsum([number, *(length for _, length, _ in parts)])
        for (node, _, idle), low, high in zip(parts, edges[:-1], edges[1:], strict=True):
            grid[number, low:high] = node
            idle_grid[number, low:high] = idle
        stretches.append(
            Stretches(
                edges[:-1] * MS,
                edges[1:] * MS,
                np.array([node for node, _, _ in parts], np.uint32),
                np.array([idle for _, _, idle in parts]),
            )
        )
    blame, waited, unblamed = np.zeros(4), np.zeros(4), 0.0
    for column, idle in zip(grid.T, idle_grid.T, strict=True):
        working = (column >= 0) & ~idle
        for node in column[idle]:
            waited[node] += 1e-3
        for node in column[working]:
            blame[node] += idle.sum() / working.sum() * 1e-3
        if not working.any():
            unblamed += idle.sum() * 1e-3
    shared = share_blame(stretches.__getitem__, len(stretches), 4)
    assert shared.seconds == pytest.approx(blame)
    assert shared.idle == pytest.approx(waited)
    assert shared.unblamed == pytest.approx(unblamed)
    assert shared.by_line.sum() == pytest.approx(blame.sum())


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(make(tmp_path / "db", uneven("blocked", "main/meet/MPI_Barrier/k_sleep")))
    assert main(["imbalance", path]) == 0
    text = capsys.readouterr().out
    assert "most 400.0 ms on rank 3 (1.60 times the mean)" in text
    assert "waiting caused by: rank 3 72 %, rank 2 22 %" in text
    assert text.splitlines()[5].startswith("250.0 ms 400.0 ms    3     1.60  150.0 ms")
    assert main(["imbalance", "--by-rank", path]) == 0
    rows = capsys.readouterr().out.split("context\n")[-1].splitlines()
    assert rows[0].split() == ["3", "400.0", "ms", "1.60", "main", ">", "work", ">", "kernel"]
    assert main(["imbalance", "--metric", "time", "--json", path]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["tree"]["max"] == pytest.approx(0.4)
    assert {tuple(context["path"]) for context in printed["contexts"]} == {
        ("main", "work", "kernel"),
        ("main", "meet"),
    }
    single = str(make(tmp_path / "single", {0: [("main", "cpu", 0.1)]}, size=0))
    assert main(["imbalance", single]) == 0
    assert main(["imbalance", "--job", "x", single]) == 2
    assert main(["imbalance", "--depth", "0", path]) == 2
    assert main(["imbalance", "--percent", "-1", path]) == 2
