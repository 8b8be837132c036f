"""The growth and peak of memory, from touches and releases that are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hpcd.__main__ import main
from hpcd.analysis.calls.memory import measure_memory, memory_by_time
from hpcd.analysis.database import open as open_database
from hpcd.analysis.merge.stages import merge
from hpcd.bpf.calls.memory_calls import memory_functions
from hpcd.errors import UsageError
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread

PAGE = 4096
SECOND = 10**9
TOUCH, MMAP, _, MUNMAP, BRK, MREMAP, MADVISE = range(7)
GROW, SHRINK = 2, 3
Step = tuple[int, int, dict[str, int]]


def database(
    tmp_path: Path, steps: list[Step], processes: int = 1, first_ends: int | None = None
) -> Path:
    """Calls of each process, a microsecond apart: (function, node, values); the first process ends
    ``first_ends`` ns after the first call."""
    functions = memory_functions(0)
    place = [{value.name: at for at, value in enumerate(called.values)} for called in functions]
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_module(Module(1, ModuleKind.NAMED, "app"))
    writer.add_symbols(1, [(1, 1, "main"), (2, 1, "grow"), (3, 1, "shrink")])
    writer.add_nodes(
        np.array([0, 1, 1], np.uint32),
        np.array([frame.module_frame(1, at) for at in (1, 2, 3)], np.uint64),
    )
    writer.add_clock_pair(SECOND, 10**18)
    for function in functions:
        writer.add_function(function)
    count = len(steps)
    for process in range(processes):
        writer.add_process(Process(process, 7 + process, 1, "app", "", (), 0, SECOND))
        end = None if process or first_ends is None else SECOND + first_ends
        writer.add_thread(Thread(process, process, 7 + process, "app", SECOND, end))
        value = np.zeros((count, 6), np.uint64)
        for at, (function, _, values) in enumerate(steps):
            for name, amount in values.items():
                value[at, place[function][name]] = amount
        writer.add_calls(
            Calls(
                np.full(count, process, np.uint32),
                SECOND + 1000 * np.arange(count, dtype=np.uint64),
                np.zeros(count, np.uint64),
                np.array([step[1] for step in steps], np.uint32),
                np.array([step[0] for step in steps], np.uint16),
                np.ones(count, np.uint32),
                value,
            )
        )
    writer.close()
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    return tmp_path / "db"


def touch(page: int, node: int = GROW, pages: int = 1) -> Step:
    return TOUCH, node, {"address": page * PAGE, "touched": pages * PAGE}


def test_pages_count_from_their_touch_until_they_are_unmapped(tmp_path: Path) -> None:
    steps = [
        (MMAP, GROW, {"mapped": 4 * PAGE, "address": 100 * PAGE}),
        *(touch(100 + page) for page in range(4)),
        (MUNMAP, SHRINK, {"released": 2 * PAGE, "address": 100 * PAGE}),
        touch(200, SHRINK),
        # The same addresses again are other pages.
        (MMAP, GROW, {"mapped": PAGE, "address": 100 * PAGE}),
        touch(100),
    ]
    with open_database(database(tmp_path, steps, 2)) as db:
        first, second = measure_memory(db)
    assert (first.peak, second.peak) == (4 * PAGE, 4 * PAGE)
    assert first.touched == 6 * PAGE
    assert first.at_end == 4 * PAGE
    assert first.peak_ns == 4000
    paths = {name.split(" < ")[0]: at for at, name in enumerate(first.paths.name)}
    grow, shrink = paths["grow"], paths["shrink"]
    assert first.paths.at_peak[[grow, shrink]].tolist() == [4 * PAGE, 0]
    assert first.paths.at_end[[grow, shrink]].tolist() == [3 * PAGE, PAGE]
    assert first.paths.mapped[grow] == 5 * PAGE
    assert first.paths.released[shrink] == 2 * PAGE


def test_a_window_begins_with_the_touch_at_its_begin(tmp_path: Path) -> None:
    with open_database(database(tmp_path, [touch(1), touch(2), touch(3)])) as db:
        (process,) = measure_memory(db, t0=1000, t1=2000)
    assert process.touched == PAGE
    assert process.at_end == 2 * PAGE


def test_memory_in_stretches_of_time_until_processes_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [
        *(touch(page) for page in range(3)),
        (MUNMAP, SHRINK, {"released": 2 * PAGE, "address": 0}),
        *(touch(page) for page in range(10, 110)),
    ]
    # The first of two processes ends after 50 µs; calls are a microsecond apart.
    path = database(tmp_path, steps, 2, first_ends=50_000)
    with open_database(path) as db:
        whole = memory_by_time(db)
        part = memory_by_time(db, [1], 2000, 4000)
        nothing = memory_by_time(db, [])
    at = {name: number for number, name in enumerate(whole.name)}
    begin, middle, end = at["0.000000 to 0.000005 s"], at["0.000050 to 0.000055 s"], -1
    assert (whole.held[begin], whole.peak[begin]) == (2 * 2 * PAGE, 2 * 3 * PAGE)
    assert whole.touched[begin] == 2 * 4 * PAGE
    assert whole.released.tolist() == [2 * 2 * PAGE, *[0] * (len(whole.name) - 1)]
    # Pages of a process that has ended are held no more.
    assert whole.held[middle] == (1 + 51) * PAGE
    assert whole.held[end] == 101 * PAGE
    assert part.touched.sum() == PAGE and part.held[-1] == PAGE and part.peak.max() == 3 * PAGE
    assert nothing.name == []
    assert main(["memory", str(path), "--by", "time"]) == 0
    heading, *rows = capsys.readouterr().out.strip().splitlines()
    assert heading.split() == ["at", "end", "peak", "touched", "released", "time"]
    assert rows[0].split()[:3] == ["16.4k", "24.6k", "32.8k"]
    assert main(["memory", str(path), "--by", "time", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["held"][-1] == 101 * PAGE


def test_discarded_and_moved_pages_are_given_back(tmp_path: Path) -> None:
    steps = [
        touch(10, pages=512),
        (MADVISE, SHRINK, {"released": 600 * PAGE, "address": 10 * PAGE}),
        touch(20),
        touch(21),
        # The first of two pages moves, the second is cut off.
        (MREMAP, SHRINK, {"released": 2 * PAGE, "mapped": PAGE, "address": 90 * PAGE,
                          "before": 20 * PAGE}),
        touch(30),
        (BRK, SHRINK, {"released": PAGE, "address": 30 * PAGE}),
        touch(20),
        (MUNMAP, SHRINK, {"released": PAGE, "address": 90 * PAGE}),
    ]  # fmt: skip
    with open_database(database(tmp_path, steps)) as db:
        (process,) = measure_memory(db)
    assert process.peak == 512 * PAGE
    assert process.at_end == PAGE
    assert process.touched == 516 * PAGE
    shrink = [name.split(" < ")[0] for name in process.paths.name].index("shrink")
    # What is discarded stays mapped.
    assert process.paths.released[shrink] == 4 * PAGE


def test_pages_are_told_apart_by_their_numa_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far = {"address": 20 * PAGE, "touched": 2 * PAGE, "node": 1, "remote": 2 * PAGE}
    steps: list[Step] = [
        touch(10),
        (TOUCH, SHRINK, far),
        (TOUCH, SHRINK, {"address": 30 * PAGE, "touched": PAGE, "node": 1}),
        # What is mapped says nothing of nodes, and an error is none.
        (MMAP, GROW, {"error": 12}),
    ]
    path = database(tmp_path, steps)
    with open_database(path) as db:
        (process,) = measure_memory(db)
    assert process.by_numa_node == {0: PAGE, 1: 3 * PAGE}
    assert process.remote == 2 * PAGE
    remote = dict(zip(process.paths.name, process.paths.remote.tolist(), strict=True))
    assert remote == {"shrink < main": 2 * PAGE, "grow < main": 0}
    assert main(["memory", str(path)]) == 0
    shown = capsys.readouterr().out
    assert (
        "(NUMA: 4.10 kB on node 0, 12.3 kB on node 1); 8.19 kB from CPUs of another node" in shown
    )
    assert "remote" in shown


def test_without_touches_there_is_no_peak(tmp_path: Path) -> None:
    steps: list[Step] = [(MMAP, GROW, {"mapped": PAGE, "address": PAGE})]
    with open_database(database(tmp_path, steps)) as db:
        (process,) = measure_memory(db)
        assert (process.peak, process.touched, process.at_end) == (0, 0, 0)


def test_a_database_without_memory_says_so(tmp_path: Path) -> None:
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_clock_pair(SECOND, 10**18)
    writer.close()
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with open_database(tmp_path / "db") as db, pytest.raises(UsageError, match="--memory"):
        measure_memory(db)
