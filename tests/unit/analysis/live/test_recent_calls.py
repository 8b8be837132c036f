"""Calls of the last seconds: files, ranks and functions of a window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.console import Group as Screen

from hpcd.analysis.live.recent_calls import CallWindow
from hpcd.analysis.live.recent_messages import SentMessages
from hpcd.cli.output.call_rates import call_tables
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.reader import open_measurement
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.calls import CalledFunction, CalledObject, CallValue, Group, ValueKind
from hpcd.model.identity import Event, Host, Process, Thread
from hpcd.model.mpi_functions import FUNCTIONS
from hpcd.model.mpi_records import OPENMPI, records

SECOND = 10**9


def values(*pairs: tuple[str, ValueKind]) -> tuple[CallValue, ...]:
    return tuple(CallValue(name, kind) for name, kind in pairs)


OBJECT, BYTES, ERROR = ValueKind.OBJECT, ValueKind.BYTES, ValueKind.ERROR
SEND = records(FUNCTIONS["MPI_Send"], OPENMPI)[0]
KINDS = {"handle": ValueKind.HANDLE, "count": ValueKind.COUNT, "signed": ValueKind.SIGNED}
FUNCTIONS_CALLED = (
    CalledFunction(0, "read", "", Group.IO,
                   values(("file", OBJECT), ("read", BYTES), ("error", ERROR))),
    CalledFunction(1, "sendfile", "", Group.IO,
                   values(("file", OBJECT), ("moved", BYTES), ("other", OBJECT))),
    CalledFunction(2, "solve", "/lib/libsolver.so", Group.PROBE),
    CalledFunction(3, "MPI_Send", "/lib/libmpi.so.40", Group.MPI,
                   tuple(CallValue(v.name, KINDS[v.kind], v.unit) for v in SEND.values)),
)  # fmt: skip


def calls(*rows: tuple[int, int, float, float, int, tuple[int, ...]]) -> Calls:
    """Make calls of rows (line, function, begin and duration in seconds, weight, values)."""
    value = np.zeros((len(rows), 6), np.uint64)
    for number, row in enumerate(rows):
        value[number, : len(row[5])] = np.array(row[5], np.int64).astype(np.uint64)
    line, function, begin, duration, weight, _ = zip(*rows, strict=True)
    return Calls(
        np.array(line, np.uint32),
        (np.array(begin) * SECOND).astype(np.uint64),
        (np.array(duration) * SECOND).astype(np.uint64),
        np.zeros(len(rows), np.uint32),
        np.array(function, np.uint16),
        np.array(weight, np.uint32),
        value,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    for line in range(2):
        writer.add_process(
            Process(line, 70 + line, 1, "app", "/bin/app", (), 0, SECOND, "job 9", line, 2)
        )
        writer.add_thread(Thread(line, line, 70 + line, "app", SECOND))
    for function in FUNCTIONS_CALLED:
        writer.add_function(function)
    writer.add_object(CalledObject(5, "file", "/data/a"))
    writer.add_object(CalledObject(6, "file", "/data/b"))
    writer.add_calls(calls((0, 0, 2, 0.1, 1, (5, 777, 0))))  # before the window
    writer.flush()
    message = [{"count": 100, "datatype_size": 8}.get(value.name, 1) for value in SEND.values]
    writer.add_calls(
        calls(
            (0, 0, 10, 0.1, 2, (5, 50, 0)),
            (0, 0, 10.2, 0.1, 1, (5, 0, 4)),
            (1, 1, 10.3, 0.1, 1, (6, 30, 5)),
            (1, 2, 10.4, 0.2, 3, ()),
            (0, 3, 10.5, 0.1, 1, tuple(message)),
            (1, 3, 1.0, 10.0, 1, tuple(message)),  # most of it before the window
        )
    )
    writer.flush()
    writer.close()
    return tmp_path / "m"


def test_a_window_has_what_ended_in_it(path: Path) -> None:
    with open_measurement(path) as measurement:
        window = CallWindow(measurement, 2.0)
        window.refresh()
        assert window.end == 11 * SECOND
        now = window.snapshot(window.end, 10)
    assert now is not None
    assert now.seconds == pytest.approx(1.0)  # from the first short call on
    a, b = now.files
    assert (a.name, a.calls, a.errors, a.read, a.written) == ("/data/a", 4, 1, 130, 0)
    assert (b.name, b.calls, b.errors, b.read, b.written) == ("/data/b", 1, 0, 0, 30)
    (solve,) = now.functions
    assert (solve.name, solve.calls, solve.mean_s) == ("solve", 3, pytest.approx(0.2))
    second, first = now.ranks
    assert (first.pid, first.rank, first.job) == (70, 0, "job 9")
    assert (first.calls, first.bytes, first.seconds) == (1, 800, pytest.approx(0.1))
    assert (second.pid, second.bytes, second.seconds) == (71, 800, pytest.approx(1.0))
    (used,) = now.mpi
    assert (used.name, used.calls, used.bytes) == ("MPI_Send", 2, 1600)
    assert used.seconds == pytest.approx(1.1)
    assert [(use.source, use.target, use.messages, use.bytes) for use in now.peers] == [
        (0, 1, 1, 800),
        (1, 1, 1, 800),
    ]


def test_tables_of_a_window(path: Path) -> None:
    with open_measurement(path) as measurement:
        window = CallWindow(measurement, 2.0)
        window.refresh()
        console = Console(width=100)
        with console.capture() as captured:
            console.print(Screen(*call_tables(window.snapshot(window.end, 1))))
    files, file, ranks, rank, mpi, used, peers, peer, functions, function = (
        captured.get().splitlines()
    )
    assert files.split()[:2] == ["read", "B/s"]
    assert file.split() == ["130", "0", "4.0", "1.0", "/data/a"]
    assert ranks.split()[0] == "MPI"
    assert rank.split() == ["100.0", "800", "1.0", "71", "1", "app", "job", "9"]
    assert mpi.split()[:2] == ["time", "%"]
    assert used.split() == ["110.0", "1.60k", "2.0", "550.0", "ms", "MPI_Send"]
    assert peers.split()[:2] == ["B/s", "messages/s"]
    assert peer.split() == ["800", "1.0", "0", "1", "job", "9"]
    assert functions.split()[0] == "calls/s"
    assert function.split() == ["3.0", "200.0", "ms", "60.0", "solve", "(libsolver.so)"]


def test_handles_mean_what_was_said_long_ago(tmp_path: Path) -> None:
    """A communicator of the ranks in reverse order, and sends on it in a later chunk; a rank of
    which the launcher says nothing; and, with too much to be kept, peers that are not known."""
    names = ("MPI_Comm_split", "MPI_Send", "MPI_Comm_rank")
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    for line, rank in enumerate((0, 1, None)):
        writer.add_process(
            Process(line, 70 + line, 1, "app", "/bin/app", (), 0, SECOND, "job 9", rank, 2)
        )
        writer.add_thread(Thread(line, line, 70 + line, "app", SECOND))
    for number, rank in enumerate((1 << 40, 1), 3):  # no such rank, and no job of that size
        writer.add_process(
            Process(number, 80, 1, "app", "/bin/app", (), 0, SECOND, "job 9", rank, 1 << 40)
        )
    places: dict[str, list[str]] = {}
    for number, name in enumerate(names):
        (record,) = records(FUNCTIONS[name], OPENMPI)
        places[name] = [value.name for value in record.values]
        reported = tuple(CallValue(v.name, KINDS[v.kind], v.unit) for v in record.values)
        writer.add_function(CalledFunction(number, name, "/lib/libmpi.so.40", Group.MPI, reported))

    def called(line: int, name: str, begin: float, **values: int) -> tuple[Any, ...]:
        given = tuple(values.get(value, 1) for value in places[name])
        return line, names.index(name), begin, 0.1, 1, given

    new = 0x7F0000000000
    for rank in range(2):
        writer.add_calls(
            calls(
                called(rank, "MPI_Comm_split", 2, new_communicator=new, color=0, key=-rank),
                *(called(rank, "MPI_Comm_rank", 3, communicator=new, rank=0) for _ in range(50)),
            )
        )
    writer.flush()
    sends = [
        called(line, "MPI_Send", 10, communicator=new, peer=0, count=10, datatype_size=4)
        for line in range(3)
    ]
    writer.add_calls(calls(*sends))
    writer.flush()
    writer.close()
    with open_measurement(tmp_path / "m") as measurement:
        window = CallWindow(measurement, 2.0)
        window.refresh()
        now = window.snapshot(window.end, 10)
        assert now is not None
        peers = [(use.source, use.target, use.bytes) for use in now.peers]
        assert peers == [(0, 1, 40), (1, 1, 40)]
        assert now.mpi[0].calls == 3
        sent = SentMessages(measurement)
        several = list(measurement.call_chunks(0))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hpcd.analysis.live.recent_messages.MOST_KEPT", 3)
            told_of = [sent.sent(sent.learn(chunk)) for chunk in several]
        assert {key[1:] for key in told_of[-1]} == {(0, -1), (1, -1)}


def test_parts_of_a_call_wait_for_it(tmp_path: Path) -> None:
    """The object of a wait is recorded ahead of its return, here in an earlier chunk; it is none
    of the call before. One wait that never returns says nothing."""
    names = ("MPI_Send_init", "MPI_Startall", "MPI_Waitall")
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_process(Process(0, 70, 1, "app", "/bin/app", (), 0, SECOND, "job 9", 0, 2))
    writer.add_thread(Thread(0, 0, 70, "app", SECOND))
    recorded = [record for name in names for record in records(FUNCTIONS[name], OPENMPI)]
    for number, record in enumerate(recorded):
        values = tuple(CallValue(v.name, KINDS[v.kind], v.unit) for v in record.values)
        writer.add_function(
            CalledFunction(number, record.name, "/lib/libmpi.so.40", Group.MPI, values)
        )

    def called(name: str, begin: float, duration: float, **values: int) -> tuple[Any, ...]:
        number = next(n for n, record in enumerate(recorded) if record.name == name)
        given = tuple(values.get(value.name, 1) for value in recorded[number].values)
        return 0, number, begin, duration, 1, given

    world, request = 0x7F0000000000, 0x7F0000001000
    init = called("MPI_Send_init", 1, 0.1, communicator=world, peer=1, count=10, datatype_size=4,
                  request=request)  # fmt: skip
    start, listed, wait, waited = (
        [called(name, begin, duration, requests=1, request=request) for begin in begins]
        for name, begins, duration in (
            ("MPI_Startall", (2, 5), 0.1), ("MPI_Startall/listed", (2, 5), 0),
            ("MPI_Waitall", (3,), 1), ("MPI_Waitall/listed", (3, 6), 0),
        )
    )  # fmt: skip
    for chunk in ([init, start[0], listed[0], waited[0]], [wait[0], listed[1]],
                  [start[1], waited[1]]):  # fmt: skip
        writer.add_calls(calls(*chunk))
        writer.flush()
    writer.close()
    with open_measurement(tmp_path / "m") as measurement:
        window = CallWindow(measurement, 10.0)
        window.refresh()
        now = window.snapshot(window.end, 10)
        assert now is not None
        assert [(use.source, use.messages) for use in now.peers] == [(0, 2)]
        counts = {"MPI_Send_init": 1, "MPI_Startall": 2, "MPI_Waitall": 1}
        assert {use.name: use.calls for use in now.mpi} == counts


def test_a_measurement_without_calls_has_no_window_of_them(tmp_path: Path) -> None:
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.close()
    with open_measurement(tmp_path / "m") as measurement:
        window = CallWindow(measurement, 2.0)
        window.refresh()
        assert window.snapshot(5 * SECOND, 10) is None
