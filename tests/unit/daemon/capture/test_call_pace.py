"""Calls are thinned when they cost too much, function by function, and come back."""

from __future__ import annotations

import numpy as np

from hpcd.daemon.capture.calls.call_pace import MOST_ONE_IN, CallPace


def pace_after(pace: CallPace, rates: list[int], spent_each: float = 0.0) -> list[int]:
    """``one_in`` of the first of two functions after each second in which it is called so often."""
    pace.step(0.0, 0.0, 0.0, np.zeros(2, np.int64))
    spent, paces = 0.0, []
    for second, rate in enumerate(rates, 1):
        recorded = np.array([rate // pace.one_in[0], 10], np.int64)
        spent += float(recorded.sum()) * spent_each
        pace.step(float(second), spent, float(second), recorded)
        paces.append(int(pace.one_in[0]))
    return paces


def test_too_many_calls_are_thinned_and_come_back() -> None:
    pace = CallPace(2, None, most=1000)
    busy = pace_after(pace, [7000] * 4 + [100] * 40)
    assert busy[0] == 8
    assert busy[3] <= 16
    assert busy[-1] == 1
    assert pace.one_in.tolist() == [1, 1]


def test_a_rare_function_is_left_alone() -> None:
    pace = CallPace(2, None, most=1000)
    pace_after(pace, [50_000])
    assert pace.one_in[0] >= 32
    assert pace.one_in[1] == 1


def test_calls_cost_no_more_than_their_share() -> None:
    pace = CallPace(2, 0.01)
    pace_after(pace, [100_000] * 10, spent_each=2e-6)
    # 3 us a call with the recorder's part: 0.01 s a second are 3,333 calls.
    assert 100_000 / pace.one_in[0] <= 3333 * 1.1
    assert pace.one_in[0] <= 64


def test_what_passing_over_costs_is_not_saved_by_passing_over_more() -> None:
    pace = CallPace(1, 0.01)
    spent = 0.0
    pace.step(0.0, 0.0, 0.0, np.zeros(1, np.int64))
    for second in range(1, 20):
        recorded = np.array([400_000 // pace.one_in[0]], np.int64)
        spent += 0.1 + 2e-6 * float(recorded[0])
        pace.step(float(second), spent, float(second), recorded)
    assert 256 <= pace.one_in[0] <= 2048


def test_no_call_is_thinned_beyond_the_bound() -> None:
    pace = CallPace(1, None, most=1)
    for second in range(30):
        pace.step(float(second), 0.0, 0.0, np.array([1 << 30], np.int64))
    assert pace.one_in.tolist() == [MOST_ONE_IN]


def test_the_share_is_of_the_targets_cpu_time_but_at_least_of_one_cpu() -> None:
    for targets, calls, one_in in ((4.0, 10_000, 1), (4.0, 40_000, 4), (0.1, 3000, 1)):
        pace = CallPace(1, 0.01)
        pace.step(0.0, 0.0, 0.0, np.zeros(1, np.int64))
        # 3 us a call with the recorder's part: 1 % of 4 CPUs are 13,333 calls a second.
        pace.step(1.0, 2e-6 * calls, targets, np.array([calls], np.int64))
        assert pace.one_in.tolist() == [one_in]
