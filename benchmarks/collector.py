"""What a sample of a known stack costs the collector, from the ring to the file.

The sample ring is fed with records written by user space in the kernel's layout, far faster than
any machine samples, and drained by the real collector into a real measurement.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.workloads import sized
from hpcd.bpf.layouts import SAMPLE, SLOT_BITS, STACK_EVENT, THREAD_EVENT, EventKind
from hpcd.daemon.capture.collector import Collector
from hpcd.daemon.capture.stack_resolver import StackResolver
from hpcd.daemon.capture.thread_lifecycle import ThreadLifecycle
from hpcd.daemon.capture.thread_times import ThreadTimes
from hpcd.daemon.naming.jit_naming import JitNaming
from hpcd.daemon.naming.kernel_naming import KernelNaming
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Process

PERIOD = 1_003_009
STACKS = 2000
THREADS = 64
SAMPLES = sized(1_000_000, 10_000)  # at each size of a round


class Flood:
    """Stands for the sampler: rounds of samples of the same stacks."""

    def __init__(self, rng: np.random.Generator, size: int, rounds: int) -> None:
        self._rounds = [self._samples(rng, size, i) for i in range(rounds)]
        self._events = list(self._announcements(rng))

    @staticmethod
    def _samples(rng: np.random.Generator, size: int, number: int) -> np.ndarray:
        samples = np.zeros(size, SAMPLE)
        start = 10**12 + number * size * PERIOD // THREADS
        samples["time"] = start + np.sort(rng.integers(0, size * PERIOD // THREADS, size))
        samples["value"] = PERIOD
        samples["thread"] = rng.integers(1, THREADS + 1, size) << 10
        samples["stack"] = 1 << SLOT_BITS | (rng.zipf(1.3, size) % STACKS)
        return samples

    @staticmethod
    def _announcements(rng: np.random.Generator) -> Iterator[bytes]:
        for number in range(1, THREADS + 1):
            yield THREAD_EVENT.pack(0, EventKind.THREAD, 1, number, number << 10, 0, 0, 0, 0, b"")
        for slot in range(STACKS):
            event = np.zeros(1, STACK_EVENT)
            depth = int(rng.integers(5, 40))
            event["kind"], event["stack"] = EventKind.STACK, 1 << SLOT_BITS | slot
            event["user_frames"] = depth
            offsets = rng.integers(0, 50, depth)
            frames = np.array([module_frame(1, int(offset)) for offset in offsets], np.uint64)
            yield event.tobytes() + frames.tobytes()

    def take_samples(self) -> np.ndarray:
        """The next round."""
        return self._rounds.pop(0)

    def take_events(self) -> list[bytes]:
        """Everything is announced in the first round."""
        events, self._events = self._events, []
        return events


class OneProcess:
    """Stands for the targets."""

    process = Process(1, 1, 0, "flood", "", (), 0, 0)
    withheld: frozenset[int] = frozenset()

    def __contains__(self, _: int) -> bool:
        return True

    def target(self, _: int, name: str = "") -> OneProcess:
        """The one there is."""
        return self

    def refresh_postponed(self) -> None:
        """Nothing had to wait."""

    def free_retired(self) -> None:
        """Nothing to free."""


class NoKernel:
    """Stands for the kernel's symbols."""

    def range_of(self, _: str) -> tuple[np.uint64, np.uint64]:
        """Nowhere."""
        return np.uint64(0), np.uint64(0)

    def entry_text(self) -> tuple[np.uint64, np.uint64]:
        """Nowhere."""
        return np.uint64(0), np.uint64(0)

    def signal_ranges(self) -> list[tuple[np.uint64, np.uint64]]:
        """None."""
        return []


def cost(size: int, rounds: int) -> tuple[float, float, int]:
    """(µs of CPU a sample, bytes a record, records) of ``rounds`` drains of ``size`` samples."""
    rng = np.random.default_rng(0)
    flood: Any = Flood(rng, size, rounds)
    targets: Any = OneProcess()
    nothing: Any = None
    kernel: Any = NoKernel()
    with tempfile.TemporaryDirectory() as name:
        writer = MeasurementWriter(Path(name) / "m", Host("", "", "", "", 1), options={})
        writer.add_event(Event(0, "cpu-clock", "s", PERIOD / 1e9, "cpu_time"))
        thread_times = ThreadTimes(1, 50_000)
        stacks = StackResolver(nothing, KernelNaming(lambda: kernel, nothing, writer), nothing, 1)
        threads = ThreadLifecycle(targets, writer, stacks, thread_times)
        jit = JitNaming(nothing, targets, writer)
        collector = Collector(flood, threads, stacks, jit, writer, [PERIOD], thread_times)
        collector.drain()  # announces all stacks
        writer.flush()
        before = time.process_time()
        records = writer.records_written
        for _ in range(rounds - 1):
            collector.drain()
            writer.flush()
        spent = time.process_time() - before
        records = writer.records_written - records
        writer.close({})
        size = writer.bytes_written["records"]
        return 1e6 * spent / records, size / writer.records_written, records


def run() -> Table:
    """The table."""
    table = Table(title="collector: CPU from ring to trace file, stacks already seen")
    for heading in ("samples a round", "µs a sample", "samples a CPU second", "bytes a record"):
        table.add_column(heading, justify="right")
    for size in sized((2000, 20_000, 200_000), (2000,)):
        per_drain, per_record, _ = cost(size, max(5, SAMPLES // size))
        table.add_row(
            f"{size:,}", f"{per_drain:.3f}", f"{1e6 / per_drain:,.0f}", f"{per_record:.2f}"
        )
    return table
