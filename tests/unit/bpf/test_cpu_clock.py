"""The periods of the events that make up the clock of a CPU."""

from __future__ import annotations

import pytest

from hpcd.bpf.events.cpu_clock import PARTS, periods


@pytest.mark.parametrize("period_ns", [100_000, 1_003_009, 10_101_010])
def test_the_events_together_fire_once_a_period(period_ns: int) -> None:
    lengths = periods(period_ns)
    assert len(lengths) == PARTS
    assert sum(1 / length for length in lengths) == pytest.approx(1 / period_ns, rel=1e-6)
    # No two have the same, or they would fire at the same distance for ever.
    assert sorted(set(lengths)) == lengths
    assert lengths[-1] < 1.3 * lengths[0]


def test_a_long_period_is_one_event() -> None:
    assert periods(250_000_000) == [250_000_000]
