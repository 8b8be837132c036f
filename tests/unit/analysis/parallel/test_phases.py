"""Iterations and phases found in made traces."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.parallel.phases import PhaseTimeline
from hpcd.analysis.parallel.ranks import find_ranks
from hpcd.errors import UsageError
from tests.support.made import Step, make

STEPS = 8


def program(seconds: float = 0.05) -> list[Step]:
    """Set-up, then steps of assemble, solve, wait; step 4 solves longer, step 6 checkpoints."""
    steps: list[Step] = [("main/setup", "cpu", 0.1)]
    for number in range(1, STEPS + 1):
        steps.append(("main/assemble", "cpu", 0.02))
        steps.append(("main/solve/kernel", "cpu", seconds * (2 if number == 4 else 1)))
        if number == 6:
            steps.append(("main/checkpoint", "cpu", 0.03))
        steps.append(("main/MPI_Barrier/k_sleep", "blocked", 0.01))
    return [*steps, ("main/output", "cpu", 0.1)]


def timeline(path: Path) -> PhaseTimeline:
    db = hpcd.analysis.open(path)
    return PhaseTimeline(db, find_ranks(db))


def test_iterations_and_phases_are_found(tmp_path: Path) -> None:
    phase_timeline = timeline(make(tmp_path / "db", {0: program(), 1: program()}, helper=True))
    pattern = phase_timeline.iterations()
    assert pattern.path == ["main"]
    assert pattern.calls == ["assemble", "solve", "MPI_Barrier"]
    assert (len(pattern.instances), pattern.alike) == (STEPS, STEPS - 1)
    assert pattern.period_s == pytest.approx(0.08, abs=0.002)
    truth = np.array([0.08, 0.08, 0.08, 0.13, 0.08, 0.11, 0.08, 0.08])
    # Whatever callee is taken to begin them, all but the last are whole.
    assert pattern.instances.length[:-1] / 1e9 == pytest.approx(truth[:-1], abs=0.002)
    phases = phase_timeline.phases(pattern)
    assert [phase.name for phase in phases] == ["setup", f"{STEPS} iterations", "output"]
    assert phases[0].end_s == pytest.approx(0.1, abs=0.002)
    assert phases[2].begin_s == pytest.approx(0.1 + truth.sum(), abs=0.002)
    assert phase_timeline.label == "rank 0"


def test_phases_are_those_of_the_program_beside_one_with_the_same_names(tmp_path: Path) -> None:
    launcher = {0: [("main/wait", "cpu", 0.1)]}
    parts = [
        make(tmp_path / "one", launcher, program="/opt/a/launcher", name="launcher", size=0),
        make(tmp_path / "two", {0: program(), 1: program()}),
    ]
    merge([path.with_name(f"{path.name}-m") for path in parts], tmp_path / "db")
    phase_timeline = timeline(tmp_path / "db")
    phases = phase_timeline.phases(phase_timeline.iterations())
    assert [phase.name for phase in phases] == ["setup", f"{STEPS} iterations", "output"]


def test_waits_that_are_drawn_out_are_no_iterations(tmp_path: Path) -> None:
    """Ranks meet before the first step and after the last, too."""
    meet: list[Step] = [("main/MPI_Barrier/k_sleep", "blocked", 0.1)]
    step: list[Step] = [("main/assemble", "cpu", 0.02), ("main/solve", "cpu", 0.03), *meet]
    steps = [*meet, ("main/setup", "cpu", 0.05), *20 * step, ("main/output", "cpu", 0.05), *meet]
    pattern = timeline(make(tmp_path / "db", {0: steps, 1: steps})).iterations()
    assert (len(pattern.instances), pattern.anchor) == (20, "assemble")


def test_a_wait_that_looks_more_than_once_whether_it_is_over_is_no_iteration(
    tmp_path: Path,
) -> None:
    """Also where waits take more time than all else."""
    poll: list[Step] = [("main/MPI_Test", "cpu", 0.002), ("main/MPI_Wait/k_sleep", "blocked", 0.08)]
    step: list[Step] = [("main/assemble", "cpu", 0.02), ("main/solve", "cpu", 0.03), *poll]
    steps = [*(10 * [*step, *poll]), *10 * step]
    pattern = timeline(make(tmp_path / "db", {0: steps, 1: steps})).iterations()
    assert len(pattern.instances) == 20


def test_a_thread_that_no_sample_shows_between_two_waits_has_not_left_the_call(
    tmp_path: Path,
) -> None:
    """The closest sample behind such a wait is that of the next iteration."""
    again: list[Step] = [("main/MPI_Barrier/k_sleep", "blocked", 0.01), ("main", "unseen", 0.0004)]
    steps: list[Step] = []
    for _ in range(STEPS):
        steps += [("main/assemble", "cpu", 0.02), ("main/solve", "cpu", 0.05), *again * 3]
    ranks = {0: steps, 1: steps}
    pattern = timeline(make(tmp_path / "db", ranks)).iterations()
    assert (len(pattern.instances), pattern.alike) == (STEPS, STEPS)
    assert pattern.calls == ["assemble", "solve", "MPI_Barrier"]


def test_a_short_last_iteration_leaves_what_follows_to_itself(tmp_path: Path) -> None:
    """As on a machine that others use, where most iterations take longer than by themselves."""
    steps: list[Step] = [("main/setup", "cpu", 0.1)]
    for length in [0.1] * (STEPS - 1) + [0.02]:
        steps += [("main/assemble", "cpu", 0.02), ("main/solve", "cpu", length)]
    steps.append(("main/output", "cpu", 0.08))
    phase_timeline = timeline(make(tmp_path / "db", {0: steps, 1: steps}))
    phases = phase_timeline.phases(phase_timeline.iterations())
    assert [phase.name for phase in phases] == ["setup", f"{STEPS} iterations", "output"]
    begin = 0.1 + 0.12 * (STEPS - 1) + 0.04
    assert phases[1].end_s == phases[2].begin_s == pytest.approx(begin, abs=0.002)


def test_inner_loops_are_patterns_of_their_own(tmp_path: Path) -> None:
    steps: list[Step] = []
    for _ in range(5):
        steps.append(("main/assemble", "cpu", 0.03))
        for _ in range(10):
            steps.append(("main/solve/product", "cpu", 0.008))
            steps.append(("main/solve/MPI_Allreduce/k_sleep", "blocked", 0.002))
    phase_timeline = timeline(make(tmp_path / "db", {0: steps, 1: steps}))
    outer, inner = phase_timeline.patterns()
    assert (outer.path, len(outer.instances)) == (["main"], 5)
    assert (inner.path, len(inner.instances)) == (["main", "solve"], 50)
    assert inner.period_s == pytest.approx(0.01, abs=0.001)
    assert inner.calls == ["product", "MPI_Allreduce"]
    assert phase_timeline.iterations().path == outer.path
    assert len(phase_timeline.iterations("solve").instances) == 50
    with pytest.raises(UsageError, match="no procedure"):
        phase_timeline.patterns("absent")


def test_the_rank_that_shows_the_pattern_lends_it_to_others(tmp_path: Path) -> None:
    # Rank 1 is the slowest: it never waits, and its steps run into each other.
    busy: list[Step] = [("main/solve", "cpu", 0.06)] * STEPS
    waiting: list[Step] = [
        ("main/solve", "cpu", 0.04), ("main/MPI_Barrier/k_sleep", "blocked", 0.02),
    ] * STEPS  # fmt: skip
    phase_timeline = timeline(make(tmp_path / "db", {0: busy, 1: waiting}))
    pattern = phase_timeline.iterations()
    assert len(pattern.instances) == STEPS
    assert pattern.instances.begin[:, 0].tolist() == pattern.instances.begin[:, 1].tolist()


def test_what_does_not_repeat_is_no_iteration(tmp_path: Path) -> None:
    irregular = [0.01, 0.2, 0.02, 0.4, 0.03, 0.1]
    steps: list[Step] = []
    for length in irregular:
        steps.append(("main/a", "cpu", length))
        steps.append(("main/b", "cpu", 0.45 - length))
    once: list[Step] = [("main/a", "cpu", 0.1), ("main/b", "cpu", 0.1)]
    path = make(tmp_path / "once", {0: once})
    assert timeline(path).patterns() == []
    with pytest.raises(UsageError, match="nothing repeats"):
        timeline(path).iterations()
    # Returns after 0.45 s each, however long it takes: that is regular, of main.
    assert len(timeline(make(tmp_path / "db", {0: steps})).iterations().instances) == 6


def test_phases_by_name(tmp_path: Path) -> None:
    phase_timeline = timeline(make(tmp_path / "db", {0: program(), 1: program(0.06)}))
    solve = phase_timeline.phase("solve")
    assert len(solve) == STEPS
    assert solve.length[3] / 1e9 == pytest.approx(0.11, abs=0.002)
    assert (solve.end - solve.begin)[0].tolist() != [(solve.end - solve.begin)[0, 0]] * 2
    with pytest.raises(UsageError, match="no procedure"):
        phase_timeline.phase("absent")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = str(make(tmp_path / "one", {0: program(), 1: program()}))
    two = str(make(tmp_path / "two", {0: program(0.09), 1: program(0.09)}, seed=1))
    assert main(["compare", "--phases", one]) == 0
    text = capsys.readouterr().out
    assert f"main: {STEPS} iterations of 80.00 ms" in text
    assert re.search(r"the longest: 4 \(13\d\.\d ms\)", text)
    assert main(["compare", "--phases", "--json", one, two]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed[1]["patterns"][0]["period_s"] == pytest.approx(0.12, abs=0.002)
    assert printed[0]["phases"][0]["name"] == "setup"

    def regions(*arguments: str) -> dict[str, list[str]]:
        assert main(["compare", "--json", *arguments]) == 0
        result = json.loads(capsys.readouterr().out)
        return {region["path"][-1]: region["change"] for region in result["regions"]}

    assert regions(one, "--iteration", "2", "--iteration", "3") == {}
    assert regions(one, "--iteration", "3", "--iteration", "4", "--iteration", "6") == {
        "kernel": ["more", "less"],
        "checkpoint": ["absent", "new"],
    }
    assert regions(one, two, "--iteration", "2") == {"kernel": ["more"]}
    assert regions(one, "--phase", "solve") == {"kernel": ["same", "more"]}
    assert regions(one, two, "--phase", "solve") == {"kernel": ["more"]}
    assert main(["compare", one, "--iteration", "2", "--iteration", "99"]) == 2
    assert f"no iteration 99; there are {STEPS}" in capsys.readouterr().err
    assert main(["compare", one, "--phase", "solve", "--rank", "0"]) == 2
    assert "cannot be combined" in capsys.readouterr().err
