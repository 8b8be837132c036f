"""Tests for what threads did between samples and waits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis import Database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.parallel.waiting import StretchReader
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread

MS = 10**6


@pytest.mark.parametrize(
    "entry, before",
    [("asm_sysvec_apic_timer_interrupt", "schedule"), ("__x64_sys_sched_yield", "receive")],
)
def test_who_loses_the_cpu_to_an_interrupt_ran_where_that_was(
    entry: str, before: str, tmp_path: Path
) -> None:
    """A thread has a CPU from 10 to 20 ms, between two waits for one, without a sample."""
    writer = MeasurementWriter(tmp_path / "m", Host("host", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_event(Event(1, "preempted", "s", 1e-3, "runnable_time", interval=True))
    writer.add_module(Module(1, ModuleKind.KERNEL, "[kernel]"))
    names = ["receive", "work", entry, "schedule"]
    writer.add_symbols(1, [(16 * at, 16, name) for at, name in enumerate(names)])
    writer.add_clock_pair(0, 10**18)
    writer.add_process(Process(1, 10, 1, "app", "", (), 0, 0))
    writer.add_thread(Thread(0, 1, 10, "app", 0, 40 * MS))
    frames = np.array([module_frame(1, 16 * at + 1) for at in range(4)], np.uint64)
    # receive, work, work > entry > schedule.
    writer.add_nodes(np.array([0, 0, 2, 3], np.uint32), frames)
    writer.add_records(
        np.zeros(3, np.uint32), np.array([0, 20, 40], np.uint64) * np.uint64(MS),
        np.array([1, 4, 2], np.uint32), np.array([1, 1, 0], np.uint16),
        np.array([10, 10, 1], np.uint64),
    )  # fmt: skip
    writer.close()
    merge([tmp_path / "m"], tmp_path / "db")
    with Database(tmp_path / "db") as db:
        contexts = np.arange(len(db.cct), dtype=np.uint32)
        part = StretchReader(db, contexts, np.zeros(len(db.cct), bool)).stretches(0)
        names = [db.procedures.name[db.procedure_of_node[node]] for node in part.node]
    lasted = part.end > part.begin
    assert part.ready is not None
    assert part.begin[lasted].tolist() == [0, 10 * MS, 20 * MS, 30 * MS]
    assert part.ready[lasted].tolist() == [True, False, True, False]
    shown = [name for name, long in zip(names, lasted, strict=True) if long]
    assert shown == ["receive", before, "schedule", "work"]
