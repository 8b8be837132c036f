"""Sources of a process's mappings: the kernel's reports of them, or /proc."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from hpcd.bpf.table_memory import MAPPING, UnwindTables
from hpcd.daemon.targets import process_table
from hpcd.daemon.targets.process_table import Targets
from hpcd.model.identity import Process
from hpcd.model.region import Region
from tests.soak.mappings import code
from tests.support.array_memory import ArrayMemory
from tests.support.reported_history import ReportedHistory


class Machine:
    """Stands for load modules and sampler: /proc shows one mapping, files are known or not."""

    def __init__(self) -> None:
        self.read, self.known = 0, True
        self.there = [code(9, 0x9000, 1)]

    def rows(self, regions: list[Region]) -> Any:
        rows = np.zeros(len(regions), MAPPING)
        rows["start"], rows["module"] = [r.start for r in regions], [r.inode for r in regions]
        return rows

    def mappings(self, _pid: int, _process: int) -> Any:
        self.read += 1
        return self.there, self.rows(self.there)

    def recent_mappings(self, _pid: int, _process: int, regions: list[Region]) -> Any:
        return self.rows(regions) if self.known else None

    def add_process(self, *_: Any, **__: Any) -> None:
        pass

    set_space = add_process


@pytest.fixture
def parts(monkeypatch: Any) -> Any:
    def identify(pid: int, number: int) -> Process:
        return Process(number, pid, 1, "p", "/p", (), 0, 0)

    monkeypatch.setattr(process_table, "identify", identify)
    machine: Any = Machine()
    history = ReportedHistory()
    targets = Targets(machine, UnwindTables(ArrayMemory()), machine, history, lambda _: None)
    targets.target(1)
    targets.refresh(1)
    assert machine.read == 1
    return machine, history, targets


def modules(targets: Any) -> list[int]:
    return targets._by_pid[1].mappings["module"].tolist()  # type: ignore[no-any-return]


def began(targets: Any, history: ReportedHistory) -> int:
    """A program begins and maps module 2, and both are reported; when (ns)."""
    now = time.monotonic_ns()
    targets.on_exec(1, 2, "p", now)
    history.on_exec(1, now - 5)
    history.on_map(1, now - 4, code(2, 0x9000, 1))
    return now


def test_what_a_program_maps_from_its_start_is_taken_from_reports(parts: Any) -> None:
    machine, history, targets = parts
    began(targets, history)
    targets.refresh(1)
    assert (modules(targets), machine.read) == ([2], 1)
    # Asked for again with no news, as where a walk met code in no mapping: /proc tells.
    targets.refresh(1)
    assert (modules(targets), machine.read) == ([9], 2)


def test_reports_of_the_program_before_are_not_the_new_ones(parts: Any) -> None:
    machine, history, targets = parts
    now = began(targets, history)
    targets.refresh(1)
    # It begins another one, of which nothing has been reported yet.
    targets.on_exec(1, 3, "p", now + 100)
    targets.refresh(1)
    assert (modules(targets), machine.read) == ([9], 2)


def test_files_that_were_not_looked_up_just_now_are_read(parts: Any) -> None:
    machine, history, targets = parts
    machine.known = False
    began(targets, history)
    targets.refresh(1)
    assert (modules(targets), machine.read) == ([9], 2)


def test_code_in_the_place_of_another_is_known_until_it_is_read(parts: Any) -> None:
    _, history, targets = parts
    began(targets, history)
    targets.refresh(1)
    read = targets._by_pid[1].read_ns
    history.on_map(1, read + 5, code(4, 0xA000, 1))  # beside it
    history.on_map(1, read + 6, code(2, 0x9000, 1))  # the same again, as by mprotect
    assert targets.replaced_at(1) is None
    history.on_map(1, read + 7, code(5, 0x9000, 1))
    history.on_map(1, read + 8, code(6, 0x9000, 1))
    assert targets.replaced_at(1) == read + 7
    assert targets.replaced_at(2) is None
    assert targets.drain_replaced() == {}
    targets.refresh(1)
    assert targets.replaced_at(1) is None
    assert targets.drain_replaced() == {1: read + 7}
    assert targets.drain_replaced() == {}
