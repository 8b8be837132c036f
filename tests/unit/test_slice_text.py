"""Slices as text of Chrome's events: what Python writes, and compiled loops without its checks."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hpcd.interchange.export_loops import export_loops
from hpcd.interchange.nested_slices import Slices
from hpcd.interchange.slice_text import SliceText

NAMES = ['"a"', f'"{"long" * 2000}"', '""']


@pytest.mark.parametrize("count", [0, 1, 2000])
def test_compiled_text_is_the_same(count: int) -> None:
    """Also where names are long and numbers have all their digits."""
    loops = export_loops()
    assert loops is not None
    random = np.random.default_rng(count)
    begin = np.sort(random.integers(0, 1 << 62, count))
    for costs in (np.zeros((2, count)), random.integers(0, 10**12, (2, count)) * 1e-9,
                  random.random((2, count)) * 1e3):  # fmt: skip
        costs[random.random(costs.shape) < 0.4] = 0
        slices = Slices(
            random.integers(0, len(NAMES), count), begin, begin + random.integers(0, 10**15, count),
            random.random(count) < 0.3, costs,
        )  # fmt: skip
        texts = []
        for used in (loops, None):
            text = SliceText(NAMES, ['"samples"', '"cpu_time"'], used)
            text.begin('"pid":1,"tid":-2')
            texts.append("".join(text.of(slices.context, slices)))
        assert texts[0] == texts[1]
        events = json.loads(f"[{texts[0][1:]}]")
        assert [event["ts"] for event in events] == (begin // 1000).tolist()
        told = [event.get("args", {}).get("cpu_time", 0.0) for event in events]
        assert told == pytest.approx(costs[1].tolist(), rel=1e-15)
