"""Cost of a report of a known stack in the collector, from the ring to the file.

The ring of samples is fed with what real programs would have sent, far faster than any machine
does, and drained by the real collector into a real measurement: the records of a recording
(:mod:`benchmarks.shapes`) are turned back into the kernel's reports, samples as they are and waits
as a thread that leaves its CPU and comes back, over and over. Shape "none" is what no program does:
64 threads on CPUs all the time.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.shapes import RECORDED
from benchmarks.workloads import sized
from hpcd.bpf.wire import SLOT_BITS, Sample
from tests.support.report_streams import PERIOD, Stream, record, recorded

STACKS = 2000
THREADS = 64
SAMPLES = sized(1_000_000, 10_000)  # at each size of a round


def unwaiting() -> Stream:
    """64 threads that never wait, in 2,000 stacks."""
    rng, size = np.random.default_rng(0), 200_000
    samples = np.zeros(size, Sample.dtype())
    length = size * PERIOD // THREADS
    samples["time"] = np.sort(rng.integers(0, length, size))
    samples["value"] = PERIOD
    samples["thread"] = rng.integers(1, THREADS + 1, size) << 10
    samples["stack"] = 1 << SLOT_BITS | (rng.zipf(1.3, size) % STACKS)
    return Stream(samples, length, rng.integers(5, 40, STACKS), THREADS)


def cost(stream: Stream, size: int, rounds: int) -> tuple[float, float, float]:
    """(ns of CPU a report, trace records a report, bytes a record) of ``rounds`` drains of ``size``
    reports, each followed by a flush."""
    with tempfile.TemporaryDirectory() as name:
        spent, records, written = record(stream, size, rounds, Path(name) / "m")
    return 1e9 * spent / (rounds * size), records / (rounds * size), written / records


def run() -> Table:
    """The table."""
    table = Table(title="collector: CPU from ring to trace file, stacks already seen")
    for heading in (
        "shape",
        "reports a round",
        "ns a report",
        "records a report",
        "bytes a record",
    ):
        table.add_column(heading, justify="left" if heading == "shape" else "right")
    for name in sized(("none", *RECORDED), ("none", "mpi")):
        stream = recorded(name) if name in RECORDED else unwaiting()
        for size in sized((2000, 20_000, 200_000), (2000,)):
            spent, records, width = cost(stream, size, max(4, SAMPLES // size))
            table.add_row(name, f"{size:,}", f"{spent:.0f}", f"{records:.2f}", f"{width:.2f}")
    return table
