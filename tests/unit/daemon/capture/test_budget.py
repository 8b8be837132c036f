"""Keeping the overhead within its budget."""

from __future__ import annotations

import pytest

from hpcd.daemon.capture.loop.budget import Budget, Cost, SamplingRate
from hpcd.daemon.capture.loop.recording_summary import unexplained

WANTED = SamplingRate(1000)


def simulate(budget: Budget, seconds: int, sample_us: float, switches_s: float) -> list[float]:
    """Two busy CPUs: each sample costs ``sample_us``, walking all switches ``switches_s`` a second,
    the recorder 2 ms a second. Shares of the targets' time spent, second by second."""
    cost = Cost(0.0, 0.0, 0.0, 0.0)
    shares = []
    budget.step(0.0, cost)
    for second in range(1, seconds + 1):
        rate = budget.rate
        sampling = 2 * rate.frequency * sample_us / 1e6
        switching = switches_s / rate.walk_one_in
        cost = Cost(
            cost.sampling + sampling,
            cost.switching + switching,
            cost.recorder + 0.002,
            cost.targets + 2.0,
        )
        budget.step(float(second), cost)
        shares.append((sampling + switching + 0.002) / 2)
    return shares


def test_below_the_budget_nothing_changes() -> None:
    budget = Budget(0.01, WANTED)
    simulate(budget, 50, 2.0, 0.001)
    assert budget.rate == WANTED


def test_costly_samples_lower_the_rate() -> None:
    budget = Budget(0.01, WANTED)
    shares = simulate(budget, 30, 40.0, 0.001)
    assert max(shares[10:]) <= 0.0115
    assert budget.rate.walk_one_in == 1 and budget.rate.frequency < 500


def test_many_switches_leave_call_paths_out() -> None:
    budget = Budget(0.01, WANTED)
    shares = simulate(budget, 30, 2.0, 0.2)
    assert max(shares[10:]) <= 0.0115
    assert budget.rate == SamplingRate(1000, budget.rate.walk_one_in)
    assert budget.rate.walk_one_in >= 16


def test_the_pace_returns_when_it_is_calm() -> None:
    budget = Budget(0.01, WANTED)
    simulate(budget, 30, 40.0, 0.2)
    assert budget.rate != WANTED
    simulate(budget, 300, 1.0, 0.0001)
    assert budget.rate == WANTED


def test_a_rate_below_the_least_is_left_alone() -> None:
    budget = Budget(0.0001, SamplingRate(7))
    simulate(budget, 10, 1000.0, 0.0)
    assert budget.rate.frequency == 7


@pytest.mark.parametrize(
    ("taken", "left_out", "said"),
    [(10_000, 0, 0), (7_000, 3_000, 0), (7_000, 0, -3_000), (5_000, 3_000, -2_000),
     (13_000, 3_000, 3_000)],
)  # fmt: skip
def test_firings_left_out_explain_that_samples_are_missing(
    taken: int, left_out: int, said: int
) -> None:
    assert unexplained(taken, 10_000, left_out) == said


@pytest.mark.parametrize(("taken", "said"), [(13_000, 0), (16_000, 3_000), (9_000, -1_000)])
def test_time_that_no_switch_was_reported_of_explains_more_samples(taken: int, said: int) -> None:
    assert unexplained(taken, 10_000, unreported=3_000) == said
