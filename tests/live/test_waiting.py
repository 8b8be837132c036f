"""Time spent off the CPU, of real processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.database import Database
from hpcd.analysis.findings.context_use import ContextUse, Use
from hpcd.analysis.findings.findings import findings
from hpcd.analysis.findings.time_use import TimeUse
from hpcd.analysis.parallel.imbalance import measure
from hpcd.analysis.parallel.tree_matching import innermost
from hpcd.measurement.reader import open_measurement
from tests.support.paths import ROOT
from tests.support.programs import PROGRAMS
from tests.support.recorded import hpcd, record
from tests.support.waiting import Recorder, records_in, seconds_by_function, started

pytestmark = pytest.mark.root

# Waits are measured where a thread leaves its CPU; the program reads a clock around that.
NEAR = 0.02


def test_sleep_is_found_where_it_happens(tmp_path: Path, build: Callable[..., Path]) -> None:
    executable = build("naps.c")
    process = started(executable, 20, 50)
    recorder = Recorder(tmp_path / "m", "-p", process.pid)
    began = time.monotonic()
    out, _ = process.communicate()
    until_end = time.monotonic() - began
    summary = recorder.wait()
    slept, lived = map(float, out.split())
    seconds = seconds_by_function(tmp_path / "m", executable)
    nap = seconds["nap"]
    assert nap["blocked_time"] + nap["runnable_time"] == pytest.approx(slept, rel=NEAR)
    assert nap["blocked"] >= 20 * 0.05 * (1 - NEAR)  # what it asked for; the rest is late waking
    main = seconds["main"]
    # main also waits for its input to close, before it reads the clock, and ends after it has read
    # it for the last time: where the machine is busy it waits for a CPU then, too.
    accounted = main["cpu_time"] + nap["blocked_time"] + main["runnable_time"]
    assert lived * (1 - NEAR) - 0.05 <= accounted <= until_end * (1 + NEAR) + 0.05
    total = summary["time"]
    assert total["cpu"] + total["blocked"] + total["runnable"] == pytest.approx(total["lifetime"])


def test_a_wait_that_began_before_attaching_is_told_by_the_kernel(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    process = started(build("naps.c"), 1, 1)
    try:
        recorder = Recorder(tmp_path / "m", "-p", process.pid, "-d", 2)
        summary = recorder.wait()
    finally:
        process.kill()
        process.wait()
    # Threads are watched from when they are registered, a moment before the duration begins.
    assert 0 < summary["time"]["lifetime"] <= summary["duration_s"] + 1
    assert summary["time"]["blocked"] == pytest.approx(summary["time"]["lifetime"])
    with open_measurement(tmp_path / "m") as measurement:
        symbols = {name for rows in measurement.symbols.values() for *_, name in rows}
        assert "schedule" in symbols or any("pipe" in name for name in symbols)
        assert {"blocked"} == {
            measurement.events[event].name
            for part in measurement.record_chunks()
            for event in part.event.tolist()
        }


def test_two_on_one_cpu_wait_for_it_half_the_time(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    cpu = min(os.sched_getaffinity(0))
    spinners = [subprocess.Popen([str(build("deep.c")), "600"]) for _ in range(2)]
    try:
        for spinner in spinners:
            os.sched_setaffinity(spinner.pid, {cpu})
        pids = [option for spinner in spinners for option in ("-p", spinner.pid)]
        time = Recorder(tmp_path / "m", *pids, "-d", 3).wait()["time"]
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    # Whatever else runs there only makes them wait longer, and what is done for them in the kernel.
    assert time["runnable"] >= 0.45 * time["lifetime"]
    assert time["blocked"] <= 0.02 * time["lifetime"]
    assert sum(time[part] for part in ("cpu", "blocked", "runnable")) == pytest.approx(
        time["lifetime"]
    )


def test_without_blocked_time_nothing_of_it_is_recorded(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    summary = record(tmp_path / "m", [build("deep.c"), 1], "--no-blocked")
    assert summary["switches"] == {"taken": 0, "recorded": 0}
    assert summary["time"] == {}
    with open_measurement(tmp_path / "m") as measurement:
        assert [event.name for event in measurement.events.values()] == ["cpu-clock"]


def test_threads_that_start_before_they_are_sampled_are_lines(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """Every thread is accounted for, however short it lived."""
    summary = record(tmp_path / "m", ["/bin/sh", "-c", "for i in 1 2 3 4 5; do /bin/true; done"])
    with open_measurement(tmp_path / "m") as measurement:
        assert len(measurement.threads) == summary["threads"] == 6
        assert all(thread.end_ns for thread in measurement.threads.values())


# --- which processes ---


def test_processes_by_name_that_start_later(tmp_path: Path, build: Callable[..., Path]) -> None:
    executable = build("naps.c")
    recorder = Recorder(tmp_path / "m", "--comm", executable.name[:15])
    for number in (1, 2):
        process = started(executable, 2, 20)
        # It waits to be told, so that it is there to be attached to.
        recorder.wait_for_program(executable, number)
        process.communicate()
    subprocess.run(["/bin/true"], check=True)
    recorder.stop()
    with open_measurement(tmp_path / "m") as measurement:
        exes = [process.exe for process in measurement.processes.values()]
    assert exes == [str(executable)] * 2


def test_processes_of_a_user_and_a_name(tmp_path: Path) -> None:
    def as_nobody() -> None:
        os.setgid(65534)
        os.setuid(65534)

    mine = subprocess.Popen(["/bin/sleep", "60"])
    theirs = subprocess.Popen(["/bin/sleep", "60"], preexec_fn=as_nobody)
    try:
        Recorder(tmp_path / "m", "--user", "nobody", "--comm", "sleep", "-d", 1).wait()
    finally:
        for process in (mine, theirs):
            process.kill()
            process.wait()
    with open_measurement(tmp_path / "m") as measurement:
        pids = {process.pid for process in measurement.processes.values()}
    assert theirs.pid in pids and mine.pid not in pids


def test_everything_on_the_node(tmp_path: Path, build: Callable[..., Path]) -> None:
    executable = build("deep.c")
    cpus = os.cpu_count() or 1
    with contextlib.ExitStack() as stack:
        for _ in range(cpus):  # so that all CPUs are busy also before samples are taken
            busy = stack.enter_context(subprocess.Popen(["sha1sum", "/dev/zero"]))
            stack.callback(busy.kill)
        recorder = Recorder(tmp_path / "m", "--all")
        with subprocess.Popen([str(executable), "600"]) as process:
            recorder.wait_for_program(executable)
            recorder.wait_until(lambda measurement: records_in(measurement) > 100)
            process.kill()
        summary = recorder.stop()
    assert summary["cpu"]["counted_s"] <= cpus * (summary["duration_s"] + 0.1)
    with open_measurement(tmp_path / "m") as measurement:
        exes = {process.exe for process in measurement.processes.values()}
        pids = {process.pid for process in measurement.processes.values()}
    assert str(executable) in exes
    assert 0 not in pids
    assert summary["samples"]["taken"] > 100


def test_nothing_selected_is_a_usage_error(tmp_path: Path) -> None:
    for options in ([], ["--all", "--pid", os.getpid()], ["--user", "no such user"]):
        done = hpcd("attach", "-o", tmp_path / "m", *options, check=False)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1


# --- events ---


def counted(path: Path) -> Counter[str]:
    """Return the sum of the records of each event."""
    sums: Counter[str] = Counter()
    with open_measurement(path) as measurement:
        for part in measurement.record_chunks():
            for event in set(part.event.tolist()):
                described = measurement.events[event]
                sums[described.name] += (
                    float(part.value[part.event == event].sum()) * described.scale
                )
    return sums


def test_several_events_at_once(tmp_path: Path, build: Callable[..., Path]) -> None:
    """Every page fault and read of a program that says how many it makes."""
    program = (
        "import contextlib, mmap\n"
        "m = mmap.mmap(-1, 4096 * 2000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        # A real-time kernel has no huge pages to refuse.
        "with contextlib.suppress(OSError): m.madvise(mmap.MADV_NOHUGEPAGE)\n"
        "for page in range(2000): m[4096 * page] = 1\n"
        "with open('/dev/zero', 'rb', buffering=0) as zero:\n"
        "    for _ in range(300): zero.read(1)\n"
    )
    events = "page-faults/period=1/,syscalls:sys_enter_read,cpu-clock"
    record(tmp_path / "m", ["/usr/bin/python3", "-c", program], "-e", events)
    sums = counted(tmp_path / "m")
    assert sums["page-faults"] >= 2000
    assert 300 <= sums["syscalls:sys_enter_read"] < 600  # the interpreter reads, too
    assert sums["cpu-clock"] > 0.01
    with open_measurement(tmp_path / "m") as measurement:
        assert measurement.events[0].name == "cpu-clock"


def test_what_a_frequency_samples_is_counted_within_its_error(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """Bursts of page faults, a known number of each function, after times without any."""
    runs, pages = 10, {"touch_first": 10240, "touch_second": 2560}
    script = f"for i in $(seq {runs}); do {build('touches.c')} 40; done"
    record(tmp_path / "m", ["sh", "-c", script], "-e", "page-faults")
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    view = ("--metric", "page-faults", "--view", "flat", "--percent", "0", "--json")
    report = json.loads(hpcd("report", tmp_path / "db", *view).stdout)
    error = report["sampled"]["page-faults"]["error_at_most"]
    assert 0 < error < 0.2 * runs * sum(pages.values())
    sums = {row["name"]: row["inclusive"]["page-faults"] for row in report["tree"]["children"]}
    for function, count in pages.items():
        assert abs(sums[function] - runs * count) < 4 * error, function
    assert "page-faults:" in hpcd("report", tmp_path / "db").stdout


def test_an_event_the_machine_lacks_is_one_clear_line(tmp_path: Path) -> None:
    for event in ("cpu-clok", "nosuch:tracepoint", "r1a8/period=0/"):
        done = hpcd("run", "-o", tmp_path / "m", "-e", event, "--", "/bin/true", check=False)
        assert done.returncode in (2, 5), done.stderr
        assert done.stderr.count("\n") == 1 and event[:4] in done.stderr
        assert not (tmp_path / "m").exists()


def test_a_pool_between_requests_waits_for_nobody(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """Its threads' time is as the scheduler has it, and idle but for the requests."""
    program = build("causes.c", "-fopenmp")
    hpcd("run", "-o", tmp_path / "m", "--", program, "healthy_request_pool")
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    with Database(tmp_path / "db") as db:
        assert "communication" not in [finding.kind for finding in findings(db)]
        use = TimeUse(db).by_thread
        lived = (db.lines.end - db.lines.start) / 1e9
        # CPU time is sampled: an error of a few milliseconds a thread.
        assert use.sum(1) == pytest.approx(lived, rel=0.01, abs=0.03)
        serves = np.array(["serves" in label for label in db.lines.labels(range(5))])
        assert np.count_nonzero(serves) == 4
        idle = use[:, Use.EVENTS] + use[:, Use.STARVED]
        assert (idle > 0.7 * lived)[serves].all()


def cause(source: str, name: str, folder: Path) -> list[object]:
    """Return what starts the program ``name`` of a source of benchmarks/causes, compiled."""
    program = folder / Path(source).stem
    flags = ["-g", "-O1", "-w", "-fopenmp", "-I", PROGRAMS]
    source_file = ROOT / "benchmarks/causes/programs" / source
    subprocess.run(["gcc", *flags, "-o", program, source_file, "-lpthread"], check=True)
    return [program, name]


def test_who_spins_without_a_cpu_waits_for_the_lock(tmp_path: Path) -> None:
    """By the program's own clock, on one CPU for all its threads."""
    cpu = str(min(os.sched_getaffinity(0)))
    program = cause("threads.c", "spin_lock", tmp_path)
    out = hpcd("run", "-o", tmp_path / "m", "--", "taskset", "-c", cpu, *program, "0.3").stdout
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    with Database(tmp_path / "db") as db:
        waited = TimeUse(db).seconds(Use.LOCKS).sum()
        assert waited == pytest.approx(float(out.split()[0]), rel=0.1)


def test_who_asks_through_the_network_waits_and_who_serves_is_idle(tmp_path: Path) -> None:
    """By the program's own clock, whether it uses a connection or looks up names."""
    for name in ("far_server", "slow_names", "healthy_thread_server"):
        program = cause("files.c", name, tmp_path)
        out = hpcd("run", "-o", tmp_path / f"{name}.m", "--", *program, "0.5").stdout
        hpcd("merge", tmp_path / f"{name}.m", "-o", tmp_path / name)
        with Database(tmp_path / name) as db:
            seconds = TimeUse(db).seconds(Use.ANSWERS).sum()
            waited = seconds + db.line_totals("runnable_time").sum()
            assert seconds <= float(out.split()[0]) * 1.02 + 0.01 and bool(seconds) == (
                name != "healthy_thread_server"
            )
            assert waited >= float(out.split()[0]) * 0.98


def test_who_waits_for_a_file_that_another_locked_waits_for_the_lock(tmp_path: Path) -> None:
    """By the program's own clock, less its time without a CPU; the sentence names the holder."""
    program = cause("files.c", "file_lock", tmp_path)
    out = hpcd("run", "-o", tmp_path / "m", "--", *program, "0.3").stdout
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    waited = sum(map(float, re.findall(r"^\d+\.\d+$", out, re.MULTILINE)))
    with Database(tmp_path / "db") as db:
        use = TimeUse(db)
        starved = use.seconds(Use.STARVED).sum() + use.seconds(Use.RUNNABLE).sum()
        for_locks = use.seconds(Use.LOCKS).sum()
        assert waited - starved - 0.05 <= for_locks + 0.02 * waited and for_locks <= 1.02 * waited
        first = next(one for one in findings(db) if one.kind == "locks")
        assert "in main > file_lock > books_in_the_file; held" in first.text


def test_processes_wait_for_each_other_by_eventfd_semaphores_and_queues(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """That is no wait for a device, nor for a request."""
    program = build("waits_between_processes.c")
    for name in ("asks_the_renderer", "edits_the_record", "submits_a_page"):
        hpcd("run", "-o", tmp_path / f"{name}.m", "--", program, name)
        hpcd("merge", tmp_path / f"{name}.m", "-o", tmp_path / name)
        with Database(tmp_path / name) as db:
            contexts = ContextUse(db)
            (procedure,) = (number for number, of in enumerate(db.procedures.name) if of == name)
            inside = innermost(db.cct, db.procedure_of_node == procedure) > 0
            waits = inside & (db.metrics.exclusive("blocked_time") > 0.001)
            assert waits.any()
            if name == "asks_the_renderer":
                assert contexts.pipe[waits].all()
            else:
                assert (contexts.of_wait[waits] == Use.OTHERS).all()
            assert contexts.full[waits].all() == (name == "submits_a_page")


def test_polling_in_the_library_of_openmp_is_no_work(tmp_path: Path) -> None:
    """Its procedures have no names where it is stripped."""
    program = cause("teams.c", "ordered_part", tmp_path)
    polls = ["env", "OMP_WAIT_POLICY=active", *program, "0.3"]
    hpcd("run", "-o", tmp_path / "m", "--", *polls)
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    with Database(tmp_path / "db") as db:
        use, sharing = TimeUse(db), measure(db)
        work = use.seconds(Use.WORK).sum() + use.seconds(Use.SYSTEM).sum()
        polled = use.seconds(Use.LOCKS).sum() + use.seconds(Use.OPENMP).sum()
        assert 2 * sharing.inclusive.mean[0] == pytest.approx(work, rel=0.02)
        assert sharing.idle.sum() == pytest.approx(polled, rel=0.1)
