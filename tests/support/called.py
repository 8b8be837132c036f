"""A database of ranks that recorded every kind of call, with traffic and waits that are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpcd.analysis.merge.stages import merge
from hpcd.bpf.calls.memory_calls import memory_functions
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.calls import CalledFunction, CalledObject, CallValue, Group, ValueKind
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from hpcd.model.mpi_functions import FUNCTIONS
from hpcd.model.mpi_records import MISSING, MPICH, records

MS = 10**6
START = 10**9
ROUND = 100 * MS
PAGE = 4096
WORLD, INT, DOUBLE = 0x44000000, 0x4C000405, 0x4C00080B
PATHS = [
    "main",
    "main/solve",
    "main/exchange",
    "main/exchange/MPI_Send",
    "main/exchange/MPI_Recv",
    "main/exchange/MPI_Allreduce",
    "main/output",
    "main/output/write",
    "main/solve/grow",
]
_MPI = [record for name in ("MPI_Send", "MPI_Recv", "MPI_Allreduce")
        for record in records(FUNCTIONS[name], MPICH)]  # fmt: skip
_IO = [
    CalledFunction(20, "write", "", Group.IO, (
        CallValue("file", ValueKind.OBJECT), CallValue("written", ValueKind.BYTES, "B"))),
    CalledFunction(21, "read", "", Group.IO, (
        CallValue("file", ValueKind.OBJECT), CallValue("read", ValueKind.BYTES, "B"))),
    CalledFunction(22, "work", "/bin/app", Group.PROBE, (CallValue("n", ValueKind.COUNT),)),
]  # fmt: skip

_Call = tuple[int, int, int, str, str, dict[str, int]]
"""(line, begin, end, function, path, values)."""


def ranks_that_call(folder: Path, *, ranks: int = 4, rounds: int = 10) -> Path:
    """Rounds of 100 ms, in each of which every rank sends 1,000 · (rank + 1) integers to the next
    one and all reduce. The last rank is late: rank 0 waits 18 ms for its message, all others 10 ms
    in the reduction. Rank 0 writes 4,096 bytes to a file in 1 ms, rank 1 reads 100 bytes from a
    connection in 0.1 ms and touches a page, rank 2 calls a probed function for 5 ms."""
    functions = _functions()
    number = {function.name: function.id for function in functions}
    slots = {function.name: [value.name for value in function.values] for function in functions}
    writer = MeasurementWriter(folder / "m", Host("host", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_module(Module(1, ModuleKind.NAMED, "app"))
    names = sorted({path.rpartition("/")[2] for path in PATHS})
    writer.add_symbols(1, [(16 * (at + 1), 16, name) for at, name in enumerate(names)])
    writer.add_clock_pair(START, 10**18)
    parents = [PATHS.index(path.rpartition("/")[0]) + 1 if "/" in path else 0 for path in PATHS]
    frames = [
        module_frame(1, 16 * (names.index(path.rpartition("/")[2]) + 1) + 4) for path in PATHS
    ]
    writer.add_nodes(np.array(parents, np.uint32), np.array(frames, np.uint64))
    for function in functions:
        writer.add_function(function)
    writer.add_object(
        CalledObject(1, "file", "/data/out", {"file_system": "ext4", "mount": "/data"})
    )
    writer.add_object(CalledObject(2, "socket", "a:1 -> b:2", {"peer": "b:2"}))
    end = START + rounds * ROUND
    for rank in range(ranks):
        writer.add_process(
            Process(rank, 100 + rank, 1, "app", "/bin/app", ("app",), 0, START, "job", rank, ranks)
        )
        writer.add_thread(Thread(rank, rank, 100 + rank, "app", START, end))
    calls: list[_Call] = []
    for turn in range(rounds):
        for rank in range(ranks):
            calls += _round(rank, ranks, turn, START + turn * ROUND)
    calls.sort(key=lambda call: call[:2])
    value = np.full((len(calls), 6), 0, np.uint64)
    for at, (_, _, _, name, _, values) in enumerate(calls):
        if name.startswith("MPI_"):
            value[at] = MISSING % (1 << 64)
        for key, amount in values.items():
            value[at, slots[name].index(key)] = amount
    begin = np.array([call[1] for call in calls], np.uint64)
    writer.add_calls(
        Calls(
            np.array([call[0] for call in calls], np.uint32),
            begin,
            np.array([call[2] for call in calls], np.uint64) - begin,
            np.array([PATHS.index(call[4]) + 1 for call in calls], np.uint32),
            np.array([number[call[3]] for call in calls], np.uint16),
            np.ones(len(calls), np.uint32),
            value,
        )
    )
    for rank in range(ranks):
        mine = [call for call in calls if call[0] == rank]
        times = np.arange(START + MS // 2, end, MS, dtype=np.uint64)
        node = np.full(len(times), PATHS.index("main/solve") + 1, np.uint32)
        for _, since, until, _, path, _ in mine:
            node[(times >= since) & (times < until)] = PATHS.index(path) + 1
        writer.add_records(np.full(len(times), rank, np.uint32), times, node, 0)
    writer.close()
    merge([folder / "m"], folder / "called.db", workers=1)
    return folder / "called.db"


def _functions() -> list[CalledFunction]:
    mpi = [
        CalledFunction(
            at, record.name, "/usr/lib/libmpich.so.12", Group.MPI,
            tuple(CallValue(value.name, ValueKind(value.kind), value.unit)
                  for value in record.values),
        )
        for at, record in enumerate(_MPI)
    ]  # fmt: skip
    return [*mpi, *_IO, *memory_functions(30)]


def _round(rank: int, ranks: int, turn: int, at: int) -> list[_Call]:
    last = rank == ranks - 1
    to, source = (rank + 1) % ranks, (rank - 1) % ranks
    ms = lambda moment: at + round(moment * MS)  # noqa: E731
    sent = {"communicator": WORLD, "peer": to, "tag": 7, "count": 1000 * (rank + 1),
            "datatype": INT}  # fmt: skip
    received = {"communicator": WORLD, "peer": source, "tag": 7, "status_source": source,
                "status_tag": 7}  # fmt: skip
    reduced = {"communicator": WORLD, "count": 4, "datatype": DOUBLE}
    begin = 72 if last else 52
    end = 71 if rank == 0 else begin + 0.1
    post = 70 if last else 50
    calls: list[_Call] = [
        (rank, ms(post), ms(post + 0.01), "MPI_Send", "main/exchange/MPI_Send", sent),
        (rank, ms(begin), ms(end), "MPI_Recv", "main/exchange/MPI_Recv", received),
        (rank, ms(85 if last else 75), ms(86), "MPI_Allreduce", "main/exchange/MPI_Allreduce",
         reduced),
    ]  # fmt: skip
    if rank == 0:
        written = {"file": 1, "written": PAGE}
        calls.append((rank, ms(90), ms(91), "write", "main/output/write", written))
    if rank == 1:
        calls.append((rank, ms(91), ms(91.1), "read", "main/output", {"file": 2, "read": 100}))
        touched = {"address": (100 + turn) * PAGE, "touched": PAGE}
        calls.append((rank, ms(10), ms(10), "page_touch", "main/solve/grow", touched))
        if turn == 7:
            gone = {"address": 100 * PAGE, "released": 6 * PAGE}
            calls.append((rank, ms(12), ms(12), "munmap", "main/solve/grow", gone))
    if rank == 2:
        calls.append((rank, ms(20), ms(25), "work", "main/solve", {"n": 3}))
    return calls
