"""The last seconds of a measurement that is being written."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcd.analysis.live.recent_window import Live
from hpcd.measurement.summary import OverheadSeconds, Summary
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.identity import Host


def test_the_recorders_cost_is_of_the_window_or_of_all_so_far(tmp_path: Path) -> None:
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 2), options={})
    window = Live(tmp_path / "m", 5.0)
    assert window.snapshot().overhead_cpu is None
    for seconds, cpu, expected in ((2.0, 1.0, 0.5), (4.0, 1.2, 0.1), (12.0, 1.6, 0.05)):
        writer.flush(Summary(duration_s=seconds, overhead=OverheadSeconds(cpu, 0.1)))
        window.refresh()
        assert window.snapshot().overhead_cpu == pytest.approx(expected)
    assert window.snapshot().overhead_bpf == 0
    window.close()
    writer.close()
