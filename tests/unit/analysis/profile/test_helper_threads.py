"""Statistics over lines are of the lines that work, not of the threads that serve them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.parallel.ranks import main_program
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from hpcd.viewer.selected_costs import over_lines

SECOND = 1_000_000_000


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Two ranks, each of a thread that works, one that sleeps and one that runs for 3 ms."""
    paths = []
    for rank, busy_ms in ((0, 400), (1, 600)):
        path = tmp_path / f"rank{rank}"
        writer = MeasurementWriter(path, Host("host", "b", "6", "x86_64", 2), options={})
        writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
        writer.add_module(Module(1, ModuleKind.JIT, "[jit]", process=1))
        writer.add_symbols(1, [(0, 16, "main")])
        writer.add_process(Process(1, 100, 1, "app", "/app", (), 0, 0, "job", rank, 2))
        first = writer.add_nodes(np.zeros(1, np.uint32), np.array([module_frame(1, 4)], np.uint64))
        for thread, count in enumerate((busy_ms, 0, 3)):
            writer.add_thread(Thread(thread, 1, 100 + thread, "app", 0, SECOND))
            times = np.arange(count, dtype=np.uint64) * np.uint64(1_000_000)
            lines = np.full(count, thread, np.uint32)
            if count:
                writer.add_records(lines, times, np.full(count, first, np.uint32), 0)
        writer.add_clock_pair(0, 10**18)
        writer.close()
        paths.append(path)
    merge(paths, tmp_path / "run.db")
    return tmp_path / "run.db"


def test_statistics_leave_out_helper_threads(database: Path) -> None:
    with hpcd.analysis.open(database) as db:
        lines = np.arange(len(db.lines))
        helpers = ~working_lines(db)
        assert int(helpers.sum()) == 4
        everything = np.ones(len(db.cct), bool)
        answer = over_lines(db, lines, "cpu_time", everything)
        assert (answer["lines"], answer["helpers"], answer["with_cost"]) == (2, 4, 2)
        assert answer["mean"] == pytest.approx(0.5)
        assert answer["cv"] == pytest.approx(0.2)
        assert answer["min"] == pytest.approx(0.4)
        # What helpers cost is no less of a cost.
        assert answer["sum"] == pytest.approx(1.006)
        # Who asks for helpers alone is told of them.
        alone = over_lines(db, lines[helpers], "cpu_time", everything)
        assert (alone["lines"], alone["helpers"]) == (4, 0)
        assert alone["max"] == pytest.approx(0.003)


def launched(tmp_path: Path, *milliseconds: int) -> Path:
    """A launcher and the program it starts, with the CPU time of each in ``milliseconds``."""
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_module(Module(1, ModuleKind.JIT, "[jit]", process=1))
    writer.add_symbols(1, [(0, 16, "main")])
    node = writer.add_nodes(np.zeros(1, np.uint32), np.array([module_frame(1, 4)], np.uint64))
    writer.add_process(Process(0, 100, 1, "mpirun", "/usr/bin/mpirun", (), 0, 0, "", None, None))
    writer.add_process(Process(1, 101, 100, "app", "/opt/app", (), 0, 0, "job", 0, 1))
    for line, count in enumerate(milliseconds):
        writer.add_thread(Thread(line, line, 100 + line, "thread", 0, SECOND))
        times = np.arange(count, dtype=np.uint64) * np.uint64(1_000_000)
        lines = np.full(count, line, np.uint32)
        writer.add_records(lines, times, np.full(count, node, np.uint32), 0)
    writer.add_clock_pair(0, 10**18)
    writer.close()
    merge([tmp_path / "m"], tmp_path / "db")
    return tmp_path / "db"


def test_the_main_program_is_the_ranks_one(tmp_path: Path) -> None:
    # A launcher that works longer than the short program it starts.
    with hpcd.analysis.open(launched(tmp_path, 80, 30)) as db:
        assert main_program(db) == "/opt/app"


def test_costs_over_lines_are_not_the_launchers(tmp_path: Path) -> None:
    with hpcd.analysis.open(launched(tmp_path, 30, 80)) as db:
        answer = over_lines(db, np.arange(2), "cpu_time", np.ones(len(db.cct), bool))
        assert (answer["lines"], answer["helpers"], answer["imbalance"]) == (1, 1, 0)
        assert answer["sum"] == pytest.approx(0.11)
