"""Samples that are to be expected of the targets' CPU time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.daemon.capture.loop.recording_summary import ExpectedSamples


def test_each_rate_counts_for_the_time_it_held() -> None:
    expected = ExpectedSamples(100)
    expected.change(2.0, 10)
    assert expected.after(5.0) == 230
    assert expected.of(10.0, 5.0) == 460


def test_nothing_that_was_seen_leaves_the_first_rate() -> None:
    assert ExpectedSamples(100).of(0.5, 0.0) == 50


def test_an_estimate_that_turns_out_to_be_less_takes_nothing_back() -> None:
    expected = ExpectedSamples(10)
    expected.change(1.0, 1000)
    assert expected.after(0.5) == expected.after(1.0) == 10


# CPU time is counted in ns.
SECONDS = st.just(0.0) | st.floats(1e-9, 1e6)


@given(st.lists(st.tuples(SECONDS, st.floats(1, 1e4))), SECONDS)
def test_there_are_never_less_than_none(changes: list[tuple[float, float]], used: float) -> None:
    expected = ExpectedSamples(99)
    for seconds, frequency in changes:
        expected.change(seconds, frequency)
    most = max([99.0, *(frequency for _, frequency in changes)])
    times = [used, *(seconds for seconds, _ in changes)]
    assert 0 <= expected.after(used) <= max(times) * most * (1 + 1e-9) + 1e-9
    assert expected.of(used, used) == pytest.approx(expected.after(used) if used else 0)
