"""The last seconds of a measurement that is being written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.live.recent_window import Live
from hpcd.measurement.summary import OverheadSeconds, Summary
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Thread

HOST = Host("h", "b", "6", "x86_64", 2)
FRAME = module_frame(1, 16)


def test_the_recorders_cost_is_of_the_window_or_of_all_so_far(tmp_path: Path) -> None:
    writer = MeasurementWriter(tmp_path / "m", HOST, options={})
    window = Live(tmp_path / "m", 5.0)
    assert window.snapshot().overhead_cpu is None
    for seconds, cpu, expected in ((2.0, 1.0, 0.5), (4.0, 1.2, 0.1), (12.0, 1.6, 0.05)):
        writer.flush(Summary(duration_s=seconds, overhead=OverheadSeconds(cpu, 0.1)))
        window.refresh()
        assert window.snapshot().overhead_cpu == pytest.approx(expected)
    assert window.snapshot().overhead_bpf == 0
    window.close()
    writer.close()


def test_a_wait_counts_as_far_as_it_is_in_the_window(tmp_path: Path) -> None:
    """A thread computes for 0.3 s, waits for 0.4 s and computes for 0.05 s."""
    writer = MeasurementWriter(tmp_path / "m", HOST, options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_event(Event(1, "blocked", "s", 1e-9, "blocked_time", interval=True))
    writer.add_thread(Thread(0, 0, 7, "thread", 0))
    writer.add_nodes(np.array([0, 1], np.uint32), np.array([FRAME, FRAME], np.uint64))
    samples = [*range(300), *range(700, 750)]
    time = np.array([*samples, 300], np.uint64) * 1_000_000
    count = len(time)
    event, value = np.zeros(count, np.uint16), np.ones(count, np.uint64)
    event[-1], value[-1] = 1, 400_000_000
    writer.add_records(np.zeros(count, np.uint32), time, event + np.uint32(1), event, value)
    writer.close()
    window = Live(tmp_path / "m", 0.149)
    now = window.snapshot()
    window.close()
    assert (now.threads, now.samples) == (1, 50)
    assert (now.seconds, now.cpu_s, now.blocked_s) == pytest.approx((0.149, 0.05, 0.1))
