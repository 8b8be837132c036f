"""Tests waits by messages between hosts whose clocks differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.database import open as open_database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.waits.gains import what_if
from hpcd.analysis.waits.path_report import path_report
from hpcd.analysis.waits.wait_report import wait_report
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.calls import CalledFunction, CallValue, Group, ValueKind
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from hpcd.model.mpi_functions import FUNCTIONS
from hpcd.model.mpi_records import FLAVOURS, MISSING, MPICH, records

START, US, TURN, TURNS = 10**9, 10**3, 8_000, 100
# The second host's clock is ahead, by more than a rank works in a turn.
AHEAD = 3_000
ASKS, ANSWERS, SEND, RECEIVE = range(2, 6)
_NAMES = ("main", "asks", "answers", "MPI_Send", "MPI_Recv")
_FUNCTIONS = [records(FUNCTIONS[name], MPICH)[0] for name in ("MPI_Send", "MPI_Recv")]
# In µs of a turn: rank 0 asks until 2000 and sends, rank 1 has it at 2030, and answers at 7950.
_CALLS = (
    ((0, 2_000, 2_010), (1, 2_020, 8_000)),
    ((1, -30, 2_030), (0, 7_950, 7_960)),
)
_WORK = ((0, 2_000), (2_030, 7_950))


def rank_of_host(folder: Path, rank: int) -> None:
    """Write a measurement of a rank that works in its turn and spins in MPI_Recv else."""
    begin, end = START + rank * AHEAD * US, START + (TURNS * TURN + AHEAD) * US
    writer = MeasurementWriter(folder, Host(f"h{rank}", f"{rank}", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_module(Module(1, ModuleKind.NAMED, "app"))
    writer.add_symbols(1, [(16 * (at + 1), 16, name) for at, name in enumerate(_NAMES)])
    writer.add_clock_pair(START, 10**18)
    parents = [0] + [1] * (len(_NAMES) - 1)
    frames = [module_frame(1, 16 * (at + 1) + 4) for at in range(len(_NAMES))]
    writer.add_nodes(np.array(parents, np.uint32), np.array(frames, np.uint64))
    writer.add_process(Process(0, 100, 1, "app", "", (), 0, begin, "job", rank, 2))
    writer.add_thread(Thread(0, 0, 100, "app", begin, end))
    for number, function in enumerate(_FUNCTIONS):
        values = tuple(
            CallValue(one.name, ValueKind.HANDLE if one.unit in FLAVOURS else ValueKind.SIGNED,
                      one.unit)
            for one in function.values
        )  # fmt: skip
        writer.add_function(CalledFunction(number, function.name, "libmpi.so", Group.MPI, values))
    moments = np.arange(43, TURNS * TURN, 43)
    works = (moments % TURN >= _WORK[rank][0]) & (moments % TURN < _WORK[rank][1])
    node = np.where(works, ANSWERS if rank else ASKS, RECEIVE).astype(np.uint32)
    time = (begin + moments * US).astype(np.uint64)
    writer.add_records(np.zeros(len(time), np.uint32), time, node, 0)
    given = {"communicator": 0x44000000, "peer": 1 - rank, "tag": 0, "count": 1,
             "datatype": 0x4C000405}  # fmt: skip
    calls = sorted(
        (max(turn * TURN + since, 0), turn * TURN + until, function)
        for turn in range(TURNS)
        for function, since, until in _CALLS[rank]
    )
    called = np.array(calls, np.int64).T
    value = np.array([
        [given.get(one.name, MISSING) for one in _FUNCTIONS[number].values]
        + [MISSING] * (6 - len(_FUNCTIONS[number].values))
        for _, _, number in calls
    ], np.int64)  # fmt: skip
    writer.add_calls(
        Calls(
            np.zeros(len(calls), np.uint32), (begin + called[0] * US).astype(np.uint64),
            ((called[1] - called[0]) * US).astype(np.uint64),
            np.where(called[2], RECEIVE, SEND).astype(np.uint32), called[2].astype(np.uint16),
            np.ones(len(calls), np.uint32), value.astype(np.uint64),
        )
    )  # fmt: skip
    writer.close()


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hosts")
    for rank in range(2):
        rank_of_host(folder / f"m{rank}", rank)
    merge([folder / "m0", folder / "m1"], folder / "db", workers=1)
    return folder / "db"


@pytest.mark.parametrize(("since", "name"), [(1_000, "asks"), (5_000, "answers")])
def test_in_a_part_of_the_run_the_path_ends_on_who_works(
    since: int, name: str, two_hosts: Path
) -> None:
    """Both ranks are on a CPU then, one of them waiting for the other."""
    end = (40 * TURN + since) * US
    with open_database(two_hosts) as db:
        report = path_report(db, 0, end)
    assert report.thread == f"rank {int(name == 'answers')}"
    assert report.seconds == pytest.approx(end / 1e9)
    last = report.parts[int(report.steps.part[-1])]
    assert last.path[-1] == name and report.sentence == ""


def test_the_path_passes_from_host_to_host(two_hosts: Path) -> None:
    with open_database(two_hosts) as db:
        report = path_report(db)
        waits = wait_report(db)
        gains = {gain.procedures[0]: gain for gain in what_if(db, limit=2).gains}
    assert sum(part.seconds for part in report.parts) == pytest.approx(report.seconds)
    seconds = dict.fromkeys(_NAMES, 0.0)
    for part in report.parts:
        seconds[part.path[-1] if part.path else "main"] += part.seconds
    expected = {
        name: (end - begin) * TURNS / 1e6
        for name, (begin, end) in zip(("asks", "answers"), _WORK, strict=True)
    }
    for name, length in expected.items():
        assert seconds[name] == pytest.approx(length, rel=0.05)
        assert gains[name].seconds == pytest.approx(0.2 * length, rel=0.05)
    # Each rank is on a CPU all the time: by CPU time receiving comes first.
    assert report.sentence == (
        "The critical path is 74 % in answers of rank 1, which has 37 % of the CPU time."
    )
    assert waits.by_message == pytest.approx(2 * TURNS, abs=2)
    # Of 1.97 and 5.92 ms the rank waits for the other.
    assert waits.by_message_seconds == pytest.approx(TURNS * (2.03 + 5.93) / 1e3, rel=0.02)
    for path in waits.paths:
        due = {root.path[-1]: root.seconds for root in path.roots}
        assert due["asks"] + due["answers"] >= 0.95 * path.seconds
