"""A made database of a server that starts a thread a request."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpcd.analysis.merge.stages import merge
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread


def a_thread_a_request(folder: Path) -> Path:
    """A server: a thread that lives, and forty that work for 100 ms each, two at a time."""
    writer = MeasurementWriter(folder / "m", Host("h", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_module(Module(1, ModuleKind.JIT, "[jit]", process=1))
    writer.add_symbols(1, [(0, 16, "serve"), (16, 16, "answer")])
    writer.add_process(Process(1, 100, 1, "server", "/server", (), 0, 0))
    frames = np.array([module_frame(1, 4), module_frame(1, 20)], np.uint64)
    first = writer.add_nodes(np.zeros(2, np.uint32), frames)
    for number in range(41):
        begin, length = (0, 2_100) if number == 0 else (50 * (number - 1), 100)
        writer.add_thread(
            Thread(number, 1, 100 + number, "t", begin * 10**6, (begin + length) * 10**6)
        )
        times = (begin + np.arange(0, length, 2 if number else 100, dtype=np.uint64)) * 10**6
        lines = np.full(len(times), number, np.uint32)
        nodes = np.full(len(times), first + (number > 0), np.uint32)
        writer.add_records(lines, times.astype(np.uint64), nodes, 0)
    writer.add_clock_pair(0, 10**18)
    writer.close()
    merge([folder / "m"], folder / "db")
    return folder / "db"
