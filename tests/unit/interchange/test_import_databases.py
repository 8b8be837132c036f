"""Directories of other tools: HPCToolkit's databases and OTF2 archives."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import otf2
import pytest

from hpcd.__main__ import main
from hpcd.analysis.calls.totals import total_calls
from hpcd.analysis.database import Database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.messages.database_calls import communication
from hpcd.analysis.messages.wait_states import WaitKind
from hpcd.interchange.input.recording_builder import RecordingBuilder
from hpcd.measurement.check import check_measurement
from hpcd.measurement.reader import open_measurement
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process
from hpcd.model.identity import Thread as PlainThread
from tests.support.called import ranks_that_call
from tests.support.hpctoolkit_database import EXAMPLE, Thread, write_database
from tests.support.imported import DATA, imported, sums
from tests.support.made import make
from tests.support.recording_mutants import import_mutants


def seconds(path: Path, event: str) -> dict[tuple[str, ...], float]:
    return {names: value / 1e9 for names, value in sums(path)[event].items()}


def test_costs_of_hpctoolkit_are_those_of_its_contexts(tmp_path: Path) -> None:
    write_database(tmp_path / "database", *EXAMPLE)
    result = imported(tmp_path / "database", tmp_path / "m")
    assert (result.format, result.times, result.lines) == ("hpctoolkit", "recorded", 2)
    assert result.samples == 5
    assert seconds(tmp_path / "m", "CPUTIME") == pytest.approx(
        {("main",): 0.1, ("main", "work"): 1.1, ("main", "MPI_Recv"): 0.3}
    )
    assert check_measurement(tmp_path / "m") == []
    with open_measurement(tmp_path / "m") as measurement:
        processes = measurement.processes.values()
        assert {(p.name, p.job, p.rank, p.size) for p in processes} == {
            ("job", "job", 0, 2), ("job", "job", 1, 2),
        }  # fmt: skip
        assert "/usr/lib/libmpi.so.12" in {module.path for module in measurement.modules.values()}
        (part,) = measurement.record_chunks()
        times = part.time_ns[: part.start[1]].tolist()
        assert measurement.threads[0].end_ns == 4 * 10**8
    # In the order of the trace; the two samples in work share its cost. Its end is no sample.
    assert times == [0, 10**8, 2 * 10**8, 3 * 10**8]
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with Database(tmp_path / "db") as db:
        assert abs(db.measurements[0].start_ns) < 10**6
        assert db.metrics.exclusive("cpu_time").sum() == pytest.approx(1.5)


def test_a_database_without_traces_is_a_profile(tmp_path: Path) -> None:
    threads = [Thread(0, 0, EXAMPLE[1][0].costs)]
    write_database(tmp_path / "database", EXAMPLE[0], threads, metric="cycles")
    result = imported(tmp_path / "database", tmp_path / "m")
    assert result.times == "synthetic"
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with Database(tmp_path / "db") as db:
        assert db.metrics.exclusive("cycles").sum() == pytest.approx(1.0)


def otf2_archive(folder: Path) -> Path:
    """Two ranks in five rounds of ``solve`` and MPI_Allreduce, written by the library itself
    (otf2 3.2 of the Python package index): rank 1 computes twice as long."""
    if not shutil.which("otf2-print"):
        pytest.skip("otf2-print is not installed")
    return Path(shutil.copytree(DATA / "otf2", folder / "otf2"))


def test_regions_of_otf2_are_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = otf2_archive(tmp_path)
    result = imported(archive / "traces.otf2", tmp_path / "m")
    assert (result.format, result.times, result.lines) == ("otf2", "recorded", 2)
    # What its writer did, in seconds of each rank.
    weird = 'weird "quoted" <7>'
    assert seconds(tmp_path / "m", "region") == pytest.approx(
        {
            ("main",): 2 * (5 * 0.010 + 0.001 + 0.004),
            ("main", "solve<größe>"): 5 * (0.05 + 0.1 + 2 * 0.005),
            ("main", "solve<größe>", "MPI_Allreduce"): 5 * (0.1 + 0.05),
            ("main", weird): 2 * 0.002,
            ("main", weird, r"line\nbreak"): 2 * 0.003,
        }
    )
    assert imported(archive, tmp_path / "again").records == result.records
    assert main(["merge", str(tmp_path / "m"), "-o", str(tmp_path / "db")]) == 0
    capsys.readouterr()
    assert main(["imbalance", str(tmp_path / "db")]) == 0
    out = capsys.readouterr().out
    assert "2 ranks" in out and "waiting caused by: rank 1 100 %" in out
    with Database(tmp_path / "db") as db:
        assert db.duration_ns == pytest.approx(0.835e9, rel=1e-3)


@pytest.mark.skipif(not shutil.which("otf2-print"), reason="needs otf2-tools")
def test_operations_of_otf2_are_calls_where_the_location_is(tmp_path: Path) -> None:
    """As Score-P writes them: within the region of the call, without attributes."""
    with otf2.writer.open(str(tmp_path / "trace"), timer_resolution=10**9) as trace:
        given = trace.definitions
        node = given.system_tree_node("node")
        group = given.location_group("rank 0", system_tree_parent=node)
        writer = trace.event_writer("main thread", group=group)
        main_region, read_region = given.region("main"), given.region("read(fd)")
        file = given.io_regular_file("/data/\u00e4 b", scope=node)
        serial, flag = otf2.IoParadigmClass.SERIAL, otf2.IoParadigmFlag.OS
        posix = given.io_paradigm("POSIX", "POSIX I/O", serial, flag)
        handle = given.io_handle("", file=file, io_paradigm=posix)
        writer.enter(0, main_region)
        for time, matching in ((100, 7), (300, 8)):
            writer.enter(time, read_region)
            mode, flags = otf2.IoOperationMode.READ, otf2.IoOperationFlag.NONE
            writer.io_operation_begin(time + 10, handle, mode, flags, 64, matching)
            writer.io_operation_complete(time + 50, handle, 40, matching)
            writer.leave(time + 60, read_region)
        writer.io_operation_complete(500, handle, 40, 99)  # Began before the trace.
        writer.leave(1000, main_region)
    result = imported(tmp_path / "trace", tmp_path / "m")
    assert result.left_out == {"operations on files": 1}
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with Database(tmp_path / "db") as db:
        totals = total_calls(db, "path")
        assert totals.name == ["read(fd) < main"]
        assert (totals.calls.tolist(), totals.read.tolist()) == ([2], [80])
        assert totals.seconds.tolist() == pytest.approx([80e-9])
        assert total_calls(db, "file").name == ["/data/\u00e4 b"]


def test_damaged_databases_are_read_or_refused(tmp_path: Path) -> None:
    write_database(tmp_path / "database", *EXAMPLE)
    import_mutants(tmp_path / "database", tmp_path, 450)


@pytest.mark.parametrize("own", [False, True], ids=["regions", "samples"])
def test_damaged_archives_are_read_or_refused(tmp_path: Path, own: bool) -> None:
    archive = otf2_archive(tmp_path)
    if own:
        database = ranks_that_call(tmp_path, ranks=2, rounds=1)
        archive = tmp_path / "own"
        assert main(["export", str(database), "--format", "otf2", "-o", str(archive)]) == 0
    import_mutants(archive, tmp_path, 12)


Costs = dict[tuple[int | None, str], dict[tuple[str, ...], float]]
Moments = dict[int | None, list[tuple[int, tuple[str, ...]]]]


def costs_and_moments(path: Path) -> tuple[Costs, Moments]:
    """By rank and metric what call paths cost; by rank when its main thread was in which."""
    costs: Costs = {}
    moments: Moments = {}
    with Database(path) as db:
        names = [
            tuple(db.procedure_names[db.procedure_of_node[n]] for n in db.cct.path(node))
            for node in range(len(db.cct))
        ]
        for line in db.lines.rows(range(len(db.lines))):
            for metric in db.metrics.names:
                of_metric = costs.setdefault((line.rank, metric), {})
                for node, cost in zip(*db.metrics.by_line(metric, line.number), strict=True):
                    of_metric[names[node]] = of_metric.get(names[node], 0.0) + float(cost)
            if line.pid == line.tid:
                records = db.records(line.number)
                kept = (records.value > 0).tolist()
                columns = zip(records.time.tolist(), records.node.tolist(), kept, strict=True)
                moments[line.rank] = [(time, names[node]) for time, node, real in columns if real]
    return {key: {p: c for p, c in of.items() if c} for key, of in costs.items()}, moments


@pytest.mark.parametrize("kind", ["hpctoolkit", "otf2"])
def test_a_round_trip_brings_back_what_was_there(tmp_path: Path, kind: str) -> None:
    """Every metric of every call path of every rank, and when it was sampled."""
    if kind == "otf2" and not shutil.which("otf2-print"):
        pytest.skip("otf2-print is not installed")
    ranks = {
        0: [("main/solve/dot", "cpu", 0.3), ("main/MPI_Wait/k_sched", "blocked", 0.1),
            ("main/MPI_Wait/k_sched", "cpu", 0.02), ("main/MPI_Wait/k_sched", "blocked", 0.2),
            ("main/solve", "cpu", 0.05)],
        1: [("main/solve/dot", "cpu", 0.1), ("main/solve/dot/solve/dot", "cpu", 0.05),
            ("main/MPI_Wait/k_sched", "blocked", 0.3), ("main/solve/dot", "cpu", 0.02)],
    }  # fmt: skip
    before = make(tmp_path / "before", ranks, helper=True, weight=2)
    exported = tmp_path / "exported"
    assert main(["export", str(before), "--format", kind, "-o", str(exported)]) == 0
    assert imported(exported, tmp_path / "m").lines == 4
    merge([tmp_path / "m"], tmp_path / "after", workers=1)
    costs, moments = costs_and_moments(before)
    costs_after, moments_after = costs_and_moments(tmp_path / "after")
    assert costs_after.keys() == costs.keys()
    for key, by_path in costs.items():
        assert costs_after[key] == pytest.approx(by_path, rel=1e-9), key
    for rank, samples in moments.items():
        again = moments_after[rank]
        assert len(again) == len(samples)
        if kind == "hpctoolkit":
            # Where a context has samples and waits, its trace does not tell which is which.
            again, samples = (
                [s for s in of if "k_sched" not in s[1][-1]] for of in (again, samples)
            )
        assert again == samples
    with Database(before) as old, Database(tmp_path / "after") as new:
        assert new.origin_ns == old.origin_ns


def launched(folder: Path) -> Path:
    """A launcher, two ranks of a job that it started, and three processes that one forked."""
    writer = MeasurementWriter(folder / "m", Host("h", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "ns", 1e6, "cpu_time", 1000))
    writer.add_module(Module(1, ModuleKind.JIT, "/app", process=0))
    writer.add_symbols(1, [(0, 16, "main")])
    writer.add_nodes(np.array([0], np.uint32), np.array([module_frame(1, 0)], np.uint64))
    writer.add_clock_pair(10**9, 2 * 10**18)
    ranks = {1: None, 50: 0, 51: 1, 0x10000: None, 0x10001: None, 0x10002: None}
    for line, (pid, rank) in enumerate(ranks.items()):
        job = "job" if rank is not None else ""
        writer.add_process(Process(line, pid, 1, "app", "", (), 0, 10**9, job, rank, 2))
        writer.add_thread(PlainThread(line, line, pid, "app", 10**9))
        times = 10**9 + 10**6 * np.arange(1 + line, dtype=np.uint64)
        writer.add_records(
            np.full(len(times), line, np.uint32), times, np.ones(len(times), np.uint32), 0
        )
    writer.close()
    merge([folder / "m"], folder / "launched", workers=1)
    return folder / "launched"


def by_process(path: Path) -> list[tuple[str, int | None, float]]:
    """Job, rank and CPU time of each process."""
    with Database(path) as db:
        rows = [
            (
                line.job and "job",
                line.rank,
                round(float(db.metrics.by_line("cpu_time", line.number)[1].sum()), 9),
            )
            for line in db.lines
        ]
        assert len(rows) == len(set(db.lines.process.tolist()))
        return sorted(rows, key=str)


@pytest.mark.parametrize("kind", ["pprof", "hpctoolkit", "otf2"])
def test_processes_without_rank_come_back_without(tmp_path: Path, kind: str) -> None:
    if kind == "otf2" and not shutil.which("otf2-print"):
        pytest.skip("otf2-print is not installed")
    before = launched(tmp_path)
    exported = tmp_path / "exported"
    assert main(["export", str(before), "--format", kind, "-o", str(exported)]) == 0
    imported(exported, tmp_path / "again")
    merge([tmp_path / "again"], tmp_path / "after", workers=1)
    assert by_process(tmp_path / "after") == by_process(before)


def test_nodes_of_tau_are_ranks_beside_a_launcher(tmp_path: Path) -> None:
    output = tmp_path / "tau"
    assert main(["export", str(launched(tmp_path)), "--format", "tau", "-o", str(output)]) == 0
    milliseconds = {
        file.name: float(file.read_text().splitlines()[2].split()[5]) / 1e3
        for file in (output / "MULTI__cpu_time").iterdir()
    }
    assert milliseconds["profile.0.0.0"] == 2 and milliseconds["profile.1.0.0"] == 3
    assert sorted(milliseconds.values()) == [1, 2, 3, 4, 5, 6]
    assert {f"profile.{node}.0.0" for node in range(6)} == milliseconds.keys()


def test_profiles_of_equal_identifiers_are_different_processes(tmp_path: Path) -> None:
    """As hpcprof writes them for processes that forked and are of no job."""
    threads = [Thread(0, 0, {0: cost, 1: cost, 2: cost}) for cost in (1.0, 2.0, 4.0)]
    write_database(tmp_path / "database", EXAMPLE[0], threads)
    imported(tmp_path / "database", tmp_path / "m")
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    assert [cost for _, _, cost in by_process(tmp_path / "db")] == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("kind", ["pprof", "hpctoolkit", "otf2", "collapsed"])
def test_what_hpcd_exports_it_can_import(tmp_path: Path, kind: str) -> None:
    """Both are written from the formats' descriptions, by nothing they share."""
    imported(DATA / "perf-script.txt.gz", tmp_path / "m")
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    exported = tmp_path / "exported"
    words = ["export", str(tmp_path / "db"), "--format", kind, "-o", str(exported)]
    assert main([*words, "--metric", "cpu_time"] if kind == "collapsed" else words) == 0
    result = imported(exported, tmp_path / "again")
    assert result.format == kind
    original = {
        path: value for path, value in sums(tmp_path / "m")["cpu-clock"].items()
        if not any(name.startswith("[") for name in path)
    }  # fmt: skip
    totals = sums(tmp_path / "again")
    (event,) = [name for name in totals if "cpu" in name.lower() or kind == "collapsed"]
    again = {tuple(name.removesuffix(" [k]") for name in path): value
             for path, value in totals[event].items()}  # fmt: skip
    for path, value in original.items():
        assert again[path] == pytest.approx(value, rel=1e-6)
    if kind != "collapsed":
        with open_measurement(tmp_path / "again") as measurement:
            assert len(measurement.threads) == 2 and len(measurement.processes) == 1


@pytest.mark.skipif(not shutil.which("otf2-print"), reason="needs otf2-tools")
def test_messages_of_otf2_are_calls_of_their_regions(tmp_path: Path) -> None:
    """As Score-P writes them: within the region of the call, without attributes. Rank 1 is late
    for the message of rank 0, rank 0 for the barrier."""
    with otf2.writer.open(str(tmp_path / "trace"), timer_resolution=10**9) as trace:
        given = trace.definitions
        node = given.system_tree_node("node")
        ranks = [given.location_group(f"MPI Rank {n}", system_tree_parent=node) for n in range(2)]
        members = tuple(given.location("Master thread", group=group) for group in ranks)
        writers = [trace.event_writer_from_location(location) for location in members]
        regions = {
            name: given.region(name) for name in ("main", "MPI_Send", "MPI_Irecv", "MPI_Wait",
                                                  "MPI_Barrier")
        }  # fmt: skip
        mpi = otf2.Paradigm.MPI
        given.group("", otf2.GroupType.COMM_LOCATIONS, mpi, members=members)
        everybody = given.group("", otf2.GroupType.COMM_GROUP, mpi, members=members)
        world = given.comm("MPI_COMM_WORLD", everybody)
        for rank, writer in enumerate(writers):
            writer.enter(0, regions["main"])
            if rank:
                writer.enter(100, regions["MPI_Irecv"])
                writer.mpi_irecv_request(110, request_id=5)
                writer.leave(120, regions["MPI_Irecv"])
                writer.enter(200, regions["MPI_Wait"])
                writer.mpi_irecv(890, 0, world, 3, 64, request_id=5)
                writer.leave(900, regions["MPI_Wait"])
            else:
                writer.enter(800, regions["MPI_Send"])
                writer.mpi_send(810, 1, world, 3, 64)
                writer.leave(880, regions["MPI_Send"])
            begin = 1000 if rank else 1500
            writer.enter(begin, regions["MPI_Barrier"])
            writer.mpi_collective_begin(begin)
            writer.mpi_collective_end(1600, otf2.CollectiveOp.BARRIER, world, 0xFFFFFFFF, 0, 0)
            writer.leave(1600, regions["MPI_Barrier"])
            writer.leave(2000, regions["main"])
    assert not imported(tmp_path / "trace", tmp_path / "m").left_out
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with Database(tmp_path / "db") as db:
        traffic = communication(db)
        assert traffic.point_to_point.dense(2)[1].tolist() == [[0, 64], [0, 0]]
        assert len(traffic.messages) == 1 and traffic.collectives.complete.tolist() == [True]
        waits, operations = traffic.waits, traffic.operations
        waiter = operations.rank[waits.operation].tolist()
        assert sorted(zip(waits.kind.tolist(), waiter, waits.severity.tolist(), strict=True)) == [
            (WaitKind.LATE_SENDER, 1, 600), (WaitKind.WAIT_AT_BARRIER, 1, 500),
        ]  # fmt: skip
        names = db.procedure_names
        places = db.procedure_of_node[operations.node[waits.operation]]
        assert sorted(names[at] for at in places.tolist()) == ["MPI_Barrier", "MPI_Wait"]


@pytest.mark.parametrize("realtime_ns", [1 << 61, 1 << 62, 1 << 70])
def test_a_time_that_no_clock_shows_counts_as_unknown(tmp_path: Path, realtime_ns: int) -> None:
    host = Host("host", "boot", "6", "x86_64", 1)
    builder = RecordingBuilder(tmp_path / "m", host, {}, "file")
    line = builder.threads.line(1, 1, "thread")
    builder.add(line, 5, 0, builder.event("cpu-clock", "ns", 1e-9, "cpu_time"), 1)
    builder.close(realtime_ns)
    assert not check_measurement(tmp_path / "m")
    with open_measurement(tmp_path / "m") as measurement:
        assert len(measurement.clock_pairs) == (realtime_ns < 1 << 62)
