"""Scaling loss on made measurements, compared with the arithmetic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.parallel.ranks import find_ranks
from hpcd.analysis.parallel.scaling import Scaling, measure
from hpcd.analysis.parallel.tree_matching import match
from hpcd.analysis.profile.views import View
from hpcd.errors import UsageError
from tests.support.hostile_databases import change_tables
from tests.support.made import Step, make


def serial_output(ranks: int) -> list[list[Step]]:
    """Work of 0.4 s, then a loop in which one rank after another writes for 0.1 s."""
    result: list[list[Step]] = []
    for rank in range(ranks):
        steps: list[Step] = [("main/work", "cpu", 0.4)]
        for turn in range(ranks):
            if turn == rank:
                steps.append(("main/output/write", "cpu", 0.1))
            else:
                steps.append(("main/output/MPI_Barrier/k_sleep", "blocked", 0.1))
        result.append(steps)
    return result


def run_of(path: Path, ranks: int, **options: Any) -> Path:
    return make(path, dict(enumerate(serial_output(ranks))), **options)


@contextmanager
def study(paths: list[Path], mode: str, **options: Any) -> Iterator[Scaling]:
    with ExitStack() as stack:
        opened = [stack.enter_context(hpcd.analysis.open(path)) for path in paths]
        yield measure(opened, mode, **{"metric": "time", **options})


def by_path(scaling: Scaling, view: View, run: int = -1) -> dict[str, tuple[float, float]]:
    """(inclusive, exclusive) loss by path of names."""
    runs = len(scaling.runs)
    inclusive = scaling.loss(view.inclusive[:runs])[run]
    exclusive = scaling.loss(view.exclusive[:runs])[run]
    paths = [""]
    for node in range(1, len(view)):
        name = scaling.places[int(view.procedure[node])].label
        paths.append(f"{paths[int(view.parent[node])]}/{name}".lstrip("/"))
    return {
        path: (float(inclusive[node]), float(exclusive[node])) for node, path in enumerate(paths)
    }


def test_weak_scaling_of_a_serial_loop(tmp_path: Path) -> None:
    # Two ranks: 0.4 + 0.2 s each; four: 0.4 + 0.4 s. Lost are 0.2 of 0.8 s, all in waiting.
    paths = [run_of(tmp_path / "two", 2), run_of(tmp_path / "four", 4, seed=1)]
    with study(paths, "weak") as scaling:
        losses = by_path(scaling, scaling.view("top-down"))
        assert losses[""] == pytest.approx((25, 0), abs=0.01)
        assert losses["main/work"] == pytest.approx((0, 0), abs=0.01)
        assert losses["main/output"] == pytest.approx((25, 0), abs=0.01)
        assert losses["main/output/write"] == pytest.approx((0, 0), abs=0.01)
        waiting = losses["main/output/MPI_Barrier/k_sleep [k]"]
        assert waiting == pytest.approx((25, 25), abs=0.01)
        nodes, cost = scaling.origins()
        first = [scaling.places[int(scaling.matching.tree.frame[at])].name
                 for at in scaling.matching.tree.path(int(nodes[0]))]  # fmt: skip
        assert first == ["main", "output"]
        assert scaling.loss(cost)[-1, 0] == pytest.approx(25, abs=0.01)
        assert scaling.excess(cost)[-1, 0] == pytest.approx(4 * 0.2, abs=0.001)


def test_strong_scaling_has_gains_too(tmp_path: Path) -> None:
    paths = [run_of(tmp_path / "four", 4), run_of(tmp_path / "two", 2, seed=1)]
    with study(paths, "strong") as scaling:
        # k = 2: work 2 · 0.4 - 0.4 of 2 · 0.8, and so on; the order of databases does not matter.
        losses = by_path(scaling, scaling.view("top-down"))
        assert losses["main/work"][0] == pytest.approx(100 * 0.4 / 1.6, abs=0.01)
        assert losses["main/output/write"][0] == pytest.approx(100 * 0.1 / 1.6, abs=0.01)
        assert losses[""][0] == pytest.approx(100 * (1.6 - 0.6) / 1.6, abs=0.01)
    shrinking = [
        make(tmp_path / f"{ranks}", {r: [("main/a", "cpu", own)] for r in range(ranks)})
        for ranks, own in ((2, 0.4), (4, 0.1))
    ]
    with study(shrinking, "strong") as scaling:
        losses = by_path(scaling, scaling.view("flat"))
        assert losses["a"] == pytest.approx((-100, -100), abs=0.01)


def test_losses_in_all_views_and_of_several_runs(tmp_path: Path) -> None:
    paths = [run_of(tmp_path / str(ranks), ranks, seed=ranks) for ranks in (2, 4, 8)]
    with study(paths, "weak") as scaling:
        for run, whole in ((0, 25.0), (1, 50.0)):
            up = by_path(scaling, scaling.view("bottom-up"), run)
            assert up["k_sleep [k]"][1] == pytest.approx(whole, abs=0.01)
            assert up["k_sleep [k]/MPI_Barrier/output/main"][0] == pytest.approx(whole, abs=0.01)
            flat = by_path(scaling, scaling.view("flat"), run)
            assert flat["output"] == pytest.approx((whole, 0), abs=0.01)
        with pytest.raises(UsageError, match="no view"):
            scaling.view("sideways")


def test_rebuilt_renamed_and_moved_programs_match(tmp_path: Path) -> None:
    one = run_of(tmp_path / "one", 2, program="/opt/a/solver-1.0")
    two = run_of(tmp_path / "two", 4, program="/opt/b/solver-1.1", seed=5)
    with study([one, two], "weak") as scaling:
        assert by_path(scaling, scaling.view("top-down"))["main/work"][0] == pytest.approx(0)
        assert len(scaling.matching.tree) == 1 + len(
            ["main", "work", "output", "write", "MPI_Barrier", "k_sleep"]
        )


def test_specialised_copies_are_one_procedure(tmp_path: Path) -> None:
    one = make(tmp_path / "one", {0: [("main/f.constprop.0", "cpu", 0.1)]})
    two = make(tmp_path / "two", {0: [("main/f.constprop.2.isra.0", "cpu", 0.1)]}, seed=3)
    with hpcd.analysis.open(one) as a, hpcd.analysis.open(two) as b:
        assert len(match([a, b], [["/opt/app/solver"]] * 2).tree) == 3


def test_threads_that_sleep_are_no_part_of_a_rank(tmp_path: Path) -> None:
    path = run_of(tmp_path / "db", 2, helper=True)
    with hpcd.analysis.open(path) as db:
        ranks = find_ranks(db)
        assert (ranks.size, ranks.number.tolist(), ranks.job) == (2, [0, 1], "job")
        assert [db.lines[line].thread for line in ranks.line.tolist()] == ["solver"] * 2
        assert ranks.executables == ("/opt/app/solver",)
        with pytest.raises(UsageError, match="there are job"):
            find_ranks(db, job="other")


def test_processes_without_ranks_need_their_number(tmp_path: Path) -> None:
    paths = [run_of(tmp_path / str(ranks), ranks, size=0) for ranks in (2, 4)]
    with pytest.raises(UsageError, match="--ranks"), study(paths, "weak"):
        pass
    with study(paths, "weak", sizes=[2, 4]) as scaling:
        assert by_path(scaling, scaling.view("top-down"))[""][0] == pytest.approx(25, abs=0.01)


def test_a_job_may_be_called_anything(tmp_path: Path) -> None:
    path = make(tmp_path / "db", {0: [("main", "cpu", 1.0)], 1: [("main", "cpu", 1.0)]})
    # numpy's texts end before it.
    change_tables(path, "UPDATE shared_text SET text = char(0) WHERE text = 'job'")
    with hpcd.analysis.open(path) as db:
        ranks = find_ranks(db)
    assert (ranks.job, len(ranks)) == ("\0", 2)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(run_of(tmp_path / str(ranks), ranks, seed=ranks)) for ranks in (2, 4, 8)]
    assert main(["scaling", "--weak", *paths]) == 0
    text = capsys.readouterr().out
    assert "weak scaling from 2 to 8 ranks: 50.0 % lost" in text
    lost = text[text.index("the program's contexts by loss") :].splitlines()
    assert lost[1].split("%")[0].strip() == "25.00"
    assert lost[1].endswith("main > output")
    assert main(["scaling", "--weak", "--view", "bottom-up", "--depth", "2", *paths]) == 0
    assert "MPI_Barrier" in capsys.readouterr().out
    assert main(["scaling", "--strong", "--json", *paths[::-1]]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [run["ranks"] for run in printed["runs"]] == [2, 4, 8]
    assert printed["tree"]["inclusive"]["loss"] == pytest.approx(
        [100 * (1.6 - 0.6) / 1.6, 100 * (4.8 - 0.6) / 4.8], abs=0.01
    )
    assert printed["tree"]["children"][0]["name"] == "main"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weak", "two"], "two databases"),
        (["--weak", "two", "two"], "both have 2 ranks"),
        (["--weak", "--strong", "two", "four"], "not allowed with"),
        (["two", "four"], "required"),
        (["--weak", "--metric", "cycles", "two", "four"], "no metric cycles"),
        (["--weak", "--ranks", "2", "two", "four"], "2 numbers"),
        (["--weak", "--ranks", "2,x", "two", "four"], "whole numbers"),
        (["--weak", "--percent", "101", "two", "four"], "between"),
        (["--weak", "--depth", "0", "two", "four"], "at least 1"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    run_of(tmp_path / "two", 2)
    run_of(tmp_path / "four", 4)
    words = [str(tmp_path / word) if word in ("two", "four") else word for word in arguments]
    assert main(["scaling", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
