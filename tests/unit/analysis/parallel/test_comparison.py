"""Comparison of made measurements whose costs are known."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.parallel.comparison import Comparison, CostChange, compare
from hpcd.analysis.parallel.comparison_sides import some_processes, some_ranks, whole_runs, windows
from hpcd.analysis.profile.costs import costs_by_node, costs_in_window, event_weights
from hpcd.analysis.profile.visits import common_ancestors, count_visits
from hpcd.errors import UsageError
from hpcd.model.cct_union import union
from tests.support.made import Step, make
from tests.support.random_measurements import trees

STEPS: list[Step] = [
    ("main/setup", "cpu", 0.2),
    ("main/solve/kernel", "cpu", 0.5),
    ("main/solve/MPI_Allreduce/k_sleep", "blocked", 0.1),
    ("main/solve/kernel", "cpu", 0.5),
    ("main/solve/MPI_Allreduce/k_sleep", "blocked", 0.1),
    ("main/output", "cpu", 0.1),
]
OTHER: list[Step] = [
    ("main/setup", "cpu", 0.202),
    ("main/solve/kernel", "cpu", 0.8),
    ("main/solve/MPI_Allreduce/k_sleep", "blocked", 0.2),
    ("main/checkpoint", "cpu", 0.3),
]


def path_of(comparison: Comparison, node: int) -> str:
    tree = comparison.matching.tree
    return "/".join(comparison.places[int(tree.frame[at])].label for at in tree.path(node))


def differences(comparison: Comparison) -> dict[str, list[str]]:
    nodes, _, changes = comparison.regions()
    return {
        path_of(comparison, node): [CostChange(code).name for code in changes[:, number].tolist()]
        for number, node in enumerate(nodes.tolist())
    }


def test_what_is_common_different_new_and_gone(tmp_path: Path) -> None:
    one = make(tmp_path / "one", {0: STEPS, 1: STEPS})
    two = make(tmp_path / "two", {0: OTHER, 1: OTHER}, seed=4, program="/opt/new/solver2")
    with hpcd.analysis.open(one) as a, hpcd.analysis.open(two) as b:
        comparison = compare(whole_runs([a, b, a]), metric="time")
        # Waiting in the library counts to solve; setup's 1 % is within the sensitivity.
        assert differences(comparison) == {
            "main/checkpoint": ["NEW", "GONE"],
            "main/solve/kernel": ["LESS", "MORE"],
            "main/output": ["GONE", "NEW"],
        }
        assert comparison.total == pytest.approx([1.5, 1.502, 1.5], abs=1e-6)
        coarse = compare(whole_runs([a, b]), metric="time", sensitivity=0.5, hotspot=0.1)
        assert differences(coarse) == {"main/checkpoint": ["NEW"]}
        only = compare(whole_runs([a, b]), metric="blocked_time")
        assert differences(only) == {}
        assert only.total == pytest.approx([0.2, 0.2])


def test_identical_runs_differ_nowhere(tmp_path: Path) -> None:
    one = make(tmp_path / "one", {0: STEPS})
    two = make(tmp_path / "two", {0: STEPS}, seed=9)
    with hpcd.analysis.open(one) as a, hpcd.analysis.open(two) as b:
        comparison = compare(whole_runs([a, b]), metric="time")
        assert differences(comparison) == {}
        assert comparison.cost[0] == pytest.approx(comparison.cost[1])
        assert comparison.visits[0].tolist() == comparison.visits[1].tolist()


def test_what_sampling_explains_is_no_difference(tmp_path: Path) -> None:
    few = [("main/a", "cpu", 0.050), ("main/b", "cpu", 0.1)]
    more = [("main/a", "cpu", 0.060), ("main/b", "cpu", 0.1)]
    one, two = (make(tmp_path / str(n), {0: steps}) for n, steps in enumerate((few, more)))
    with hpcd.analysis.open(one) as a, hpcd.analysis.open(two) as b:
        # 50 and 60 samples: 20 % more, yet less than three standard deviations.
        assert differences(compare(whole_runs([a, b]), metric="cpu_time")) == {}


def test_a_lower_rate_makes_costs_less_certain(tmp_path: Path) -> None:
    # 0.2 and 0.3 s: certain by 200 and 300 samples, not by 10 and 15 that count twenty times.
    short = [("main/a", "cpu", 0.2), ("main/b", "cpu", 0.4)]
    longer = [("main/a", "cpu", 0.3), ("main/b", "cpu", 0.4)]
    for weight, expected in ((1, {"main/a": ["MORE"]}), (20, {})):
        one = make(tmp_path / f"one{weight}", {0: short}, weight=weight)
        two = make(tmp_path / f"two{weight}", {0: longer}, weight=weight)
        with hpcd.analysis.open(one) as a, hpcd.analysis.open(two) as b:
            comparison = compare(whole_runs([a, b]), metric="cpu_time")
            assert comparison.total == pytest.approx([0.6, 0.7])
            assert differences(comparison) == expected


def test_shares_and_parts_of_the_tree(tmp_path: Path) -> None:
    slow = [(path, kind, 2 * seconds) for path, kind, seconds in STEPS]
    one, two = (make(tmp_path / str(n), {0: steps}) for n, steps in enumerate((STEPS, slow)))
    with hpcd.analysis.open(one) as a, hpcd.analysis.open(two) as b:
        sides = whole_runs([a, b])
        assert set(differences(compare(sides, metric="time"))) >= {"main/solve/kernel"}
        assert differences(compare(sides, metric="time", shares=True)) == {}
        inside = compare(sides, metric="time", procedure="solve")
        assert inside.total == pytest.approx([1.2, 2.4])
        with pytest.raises(UsageError, match="no procedure"):
            compare(sides, metric="time", procedure="absent")


def test_ranks_of_one_run(tmp_path: Path) -> None:
    path = make(tmp_path / "db", {0: STEPS, 1: OTHER, 7: STEPS})
    with hpcd.analysis.open(path) as db:
        comparison = compare(some_ranks(db, [0, 1, 7]), metric="time")
        assert differences(comparison)["main/checkpoint"] == ["NEW", "GONE"]
        assert [side.label for side in comparison.sides] == ["rank 0", "rank 1", "rank 7"]
        with pytest.raises(UsageError, match="no rank 2"):
            some_ranks(db, [2])


def test_processes_of_one_run(tmp_path: Path) -> None:
    path = make(tmp_path / "db", {0: STEPS, 1: OTHER}, size=0, helper=True)
    with hpcd.analysis.open(path) as db:
        comparison = compare(some_processes(db, [100, 101]), metric="work")
        assert set(differences(comparison)) == {
            "main/checkpoint", "main/solve/kernel", "main/output",
        }  # fmt: skip
        with pytest.raises(UsageError, match="no process 7"):
            some_processes(db, [7])


def test_windows_cut_waits_where_they_end(tmp_path: Path) -> None:
    path = make(tmp_path / "db", {0: STEPS, 1: STEPS}, helper=True)
    with hpcd.analysis.open(path) as db:
        # 0.2 setup, 0.5 kernel, 0.1 waiting, 0.5 kernel, 0.1 waiting, 0.1 output
        spans = [(0, 10**9 // 4), (3 * 10**9 // 4, 9 * 10**8)]
        comparison = compare(windows(db, spans), metric="time")
        cost = {
            path_of(comparison, node): comparison.cost[:, node].tolist()
            for node in range(len(comparison.matching.tree))
        }
        assert cost["main/setup"] == pytest.approx([0.2, 0])
        assert cost["main/solve/kernel"] == pytest.approx([0.05, 0.1])
        assert cost["main/solve/MPI_Allreduce/k_sleep [k]"] == pytest.approx([0, 0.05])


@given(st.lists(st.integers(0, 1_500), min_size=2, max_size=6))
@settings(max_examples=25)
def test_windows_add_up_to_the_whole(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    # Samples of weight 0 are samples: a counter that did not move while a thread ran.
    path = make(tmp_path_factory.mktemp("cuts") / "db", {0: STEPS, 3: OTHER}, weightless=7)
    with hpcd.analysis.open(path) as db:
        lines = np.arange(len(db.lines))
        for metric in ("cpu_time", "blocked_time", "records"):
            weights = event_weights(db, metric)
            edges = [0, *sorted({cut * 10**6 for cut in cuts}), 10**10]
            total = np.zeros(len(db.cct))
            for low, high in pairwise(edges):
                total += costs_in_window(
                    db, weights, lines, np.full(len(lines), low), np.full(len(lines), high)
                )
            assert total == pytest.approx(costs_by_node(db, metric, lines))


@given(trees(30), st.lists(st.integers(0, 1000), max_size=40))
def test_visits_are_what_walking_counts(tree: Any, steps: list[int]) -> None:
    tree = union([tree])[0]
    nodes = np.array([step % len(tree) for step in steps], np.uint32)
    expected = np.zeros(len(tree))
    before: set[int] = {0}
    for node in nodes.tolist():
        now = {0, *tree.path(node).tolist()}
        for entered in now - before:
            expected[entered] += 1
        before = now
    assert count_visits(tree, [nodes]).tolist() == expected.tolist()
    if len(nodes) > 1:
        shared = common_ancestors(tree, nodes[:-1], nodes[1:])
        for one, other, common in zip(
            nodes[:-1].tolist(), nodes[1:].tolist(), shared.tolist(), strict=True
        ):
            both = {0, *tree.path(one).tolist()} & {0, *tree.path(other).tolist()}
            assert common == max(both)


def test_frequency_groups_call_points(tmp_path: Path) -> None:
    path = make(tmp_path / "db", {0: STEPS, 1: OTHER})
    with hpcd.analysis.open(path) as db:
        comparison = compare(some_ranks(db, [0, 1]), metric="time")
        callers, called, visits, cost = comparison.call_points()
        points = {
            (comparison.places[a].name, comparison.places[b].name): (visits[:, n], cost[:, n])
            for n, (a, b) in enumerate(zip(callers.tolist(), called.tolist(), strict=True))
        }
        assert points["solve", "kernel"][0].tolist() == [2, 1]
        assert points["main", "solve"][0].tolist() == [1, 1]
        assert points["main", "solve"][1] == pytest.approx([1.2, 1.0])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = str(make(tmp_path / "one", {0: STEPS, 1: STEPS}))
    two = str(make(tmp_path / "two", {0: OTHER, 1: OTHER}, seed=2))
    assert main(["compare", one, two]) == 0
    text = capsys.readouterr().out
    assert f"1: {one}: 1.300 s of work for each of 2 ranks\n" in text
    lines = {line.split()[-1]: line for line in text.splitlines() if line.split()}
    assert "new" in lines["checkpoint"]
    assert "gone" in lines["output"]
    assert "=" in lines["setup"]
    assert main(["compare", "--metric", "time", one, two]) == 0
    assert ": 1.500 s of time for each of 2 ranks\n" in capsys.readouterr().out
    assert main(["compare", "--color", "always", one, two]) == 0
    colored = capsys.readouterr().out
    assert "\x1b[1;33m" in colored and "\x1b[1;35m" in colored and "\x1b[1;34m" in colored
    for view in ("bottom-up", "flat"):
        assert main(["compare", "--view", view, one, two]) == 0
        assert "checkpoint" in capsys.readouterr().out
    assert main(["compare", "--calls", one, two]) == 0
    assert "solve > kernel" in capsys.readouterr().out
    assert main(["compare", "--json", one, two]) == 0
    comparison = json.loads(capsys.readouterr().out)
    assert comparison["regions"][0]["path"] == ["main", "checkpoint"]
    assert comparison["regions"][0]["change"] == ["new"]
    assert comparison["steps"][0]["gone"] == 1
    tree = comparison["tree"]["children"][0]
    assert (tree["name"], tree["change"]) == ("main", ["same"])
    assert main(["compare", one, one]) == 0
    assert "no procedure of at least 1 % of the total differs by more" in capsys.readouterr().out
    assert main(["compare", one, "--pid", "100", "--pid", "101"]) == 0
    assert "no procedure" in capsys.readouterr().out
    assert main(["compare", one, "--time", "0:0.5", "--time", "0.5:1"]) == 0
    assert "0.500 to 1.000 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one"], "two databases"),
        (["one", "--time", "0:1"], "two at least"),
        (["one", "one", "--time", "0:1"], "one database"),
        (["one", "--time", "0:1", "--rank", "0"], "cannot be combined"),
        (["one", "--time", "1:0", "--time", "0:1"], "not a time interval"),
        (["one", "--time", "x", "--time", "0:1"], "seconds as in"),
        (["one", "one", "--sensitivity", "-1"], "between 0 and 100"),
        (["one", "one", "--within", "nothing"], "no procedure"),
        (["one", "one", "--metric", "cycles"], "no metric"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    make(tmp_path / "one", {0: STEPS})
    assert main(["compare", *(str(tmp_path / w) if w == "one" else w for w in arguments)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_what_a_run_of_several_threads_took(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: list[Step] = [("main/solve", "cpu", 1.0), ("main/k_sleep", "blocked", 1.0)]
    one = str(make(tmp_path / "one", {0: steps, 1: steps}, threads=True))
    two = str(make(tmp_path / "two", {0: steps, 1: steps}, threads=True, seed=2))
    assert main(["compare", one, two]) == 0
    time, first = capsys.readouterr().out.splitlines()[:2]
    assert time == "run time: 2.000 s -> 2.000 s (+0.0 %, about the same)"
    expected = "2.000 s of work; 4.000 s of the time of 2 threads"
    assert first == f"1: {one}: {expected}"
