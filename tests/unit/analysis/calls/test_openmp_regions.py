"""Reports on parallel regions, from calls that are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.calls.openmp_regions import openmp_report
from hpcd.analysis.database import open as open_database
from hpcd.analysis.findings.findings import findings
from hpcd.analysis.merge.stages import merge
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.summary import ProbeCounts, ProbesSummary, Summary
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame
from hpcd.model.calls import CalledFunction, CallValue, ValueKind
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from tests.support.recorded import hpcd

SECOND = 10**9
DATA = (CallValue("data", ValueKind.ADDRESS),)
NAMES = ("main", "_Z4workid", "GOMP_parallel", "_Z4workid._omp_fn.0", "GOMP_critical_start")
FUNCTIONS = [
    CalledFunction(number, name, "lib", "probe", values)
    for number, (name, values) in enumerate(
        [(NAMES[2], DATA), (NAMES[3], DATA), (NAMES[4], ()), ("other", ())]
    )
]
REGION, BODY, CRITICAL, OTHER = range(4)
PARALLEL = [
    # line, function, node, begin and duration (ms), weight, data
    (0, REGION, 3, 100, 100, 1, 7),
    (0, BODY, 4, 110, 80, 1, 7),
    (0, CRITICAL, 5, 120, 10, 2, 0),
    (0, OTHER, 5, 121, 5, 1, 0),
    (1, BODY, 4, 120, 50, 1, 7),
]


def database(folder: Path, rows: list[tuple[int, ...]], summary: Summary | None = None) -> Path:
    writer = MeasurementWriter(folder / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_process(Process(0, 7, 1, "app", "/bin/app", ("app",), 0, SECOND))
    for line in range(2):
        writer.add_thread(Thread(line, 0, 7 + line, "app", SECOND))
    for module, name in ((1, "app"), (2, "libgomp.so.1")):
        writer.add_module(Module(module, ModuleKind.NAMED, name))
        writer.add_symbols(module, [(number, 1, name) for number, name in enumerate(NAMES, 1)])
    writer.add_clock_pair(SECOND, 10**18)
    writer.add_nodes(
        np.array([0, 1, 2, 3, 4, 3], np.uint32),
        np.array(
            [
                frame.module_frame(2 if NAMES[at - 1].startswith("GOMP") else 1, at)
                for at in (1, 2, 3, 4, 5, 5)
            ],
            np.uint64,
        ),
    )
    for time in (SECOND, 2 * SECOND):
        writer.add_records(
            np.arange(2, dtype=np.uint32), np.full(2, time, np.uint64), np.full(2, 2, np.uint32), 0
        )
    for function in FUNCTIONS:
        writer.add_function(function)
    line, function, node, begin, duration, weight, data = np.array(rows).T
    value = np.zeros((len(rows), 6), np.uint64)
    value[:, 0] = data
    writer.add_calls(
        Calls(
            line.astype(np.uint32), (SECOND + begin * 1_000_000).astype(np.uint64),
            (duration * 1_000_000).astype(np.uint64), node.astype(np.uint32),
            function.astype(np.uint16), weight.astype(np.uint32), value,
        )
    )  # fmt: skip
    writer.flush()
    writer.add_clock_pair(3 * SECOND, 10**18 + 2 * SECOND)
    writer.close(summary)
    merge([folder / "m"], folder / "db", workers=1)
    return folder / "db"


def test_a_region_is_named_as_in_the_source_and_divided(tmp_path: Path) -> None:
    path = database(tmp_path, PARALLEL)
    with open_database(path) as db:
        report = openmp_report(db)
    (region,) = report.regions
    assert str(region.place) == "work (._omp_fn.0)"
    assert (region.executions, region.threads) == (1, 2)
    # The critical section stands for two; the other thread ends 20 ms earlier.
    assert region.thread_s == pytest.approx(0.2)
    assert region.lock_s == pytest.approx(0.02)
    assert region.imbalance_s == pytest.approx(0.02)
    assert region.scheduling_s == pytest.approx(0.03 + 0.02)
    assert region.work_s == pytest.approx(0.11)
    assert report.serial_s == pytest.approx(report.lived_s - 0.1)
    assert {(one.construct, one.times, round(one.seconds, 6)) for one in report.constructs} == {
        ("critical section", 2, 0.02), ("end of region", 1, 0.02),
        ("start and end of threads", 1, 0.05),
    }  # fmt: skip
    assert not report.notes
    text = hpcd("openmp", path, "--width", 80).stdout
    assert "critical section in work\n" in text and "serial time" in text
    assert json.loads(hpcd("openmp", path, "--json").stdout)["regions"][0]["executions"] == 1


def test_a_call_that_leaves_no_frame_of_the_body_is_in_the_region(tmp_path: Path) -> None:
    rows = [*PARALLEL[:2], (0, CRITICAL, 6, 120, 10, 1, 0)]
    with open_database(database(tmp_path, rows)) as db:
        report = openmp_report(db)
    (section,) = (one for one in report.constructs if one.use == "lock")
    assert section.name == "critical section in work (._omp_fn.0)"


def test_the_first_sentence_names_the_region_with_most_imbalance(tmp_path: Path) -> None:
    rows = [
        (0, REGION, 3, 0, 900, 1, 7), (0, BODY, 4, 10, 880, 1, 7), (1, BODY, 4, 10, 100, 1, 7),
    ]  # fmt: skip
    with open_database(database(tmp_path, rows)) as db:
        first, *_ = findings(db)
    assert (first.rule, first.kind, first.place.path) == ("regions", "imbalance", ("work",))
    assert first.value == pytest.approx(0.78)
    assert first.text.startswith("OpenMP threads wait for the last 780.0 ms")


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    path = database(
        tmp_path,
        [
            *PARALLEL,
            (0, REGION, 3, 300, 100, 3, 9),
            (1, BODY, 4, 500, 10, 1, 9),
            (1, BODY, 4, 600, 0, 1, 9),
        ],
    )
    with open_database(path) as db:
        report = openmp_report(db)
    assert sorted(region.executions for region in report.regions) == [1, 1]
    notes = " ".join(report.notes)
    for part in ("1 call of OpenMP without a known end", "2 regions or bodies not recorded",
                 "1 body ran outside", "1 execution of regions without any body"):  # fmt: skip
        assert part in notes


def test_probes_that_were_dropped_to_keep_the_budget_are_named(tmp_path: Path) -> None:
    functions = (ProbeCounts("GOMP_parallel", let_go=True), ProbeCounts("GOMP_critical_start"))
    path = database(tmp_path, PARALLEL, Summary(probes=ProbesSummary(functions)))
    line = "note: from some time on not recorded, to keep the budget: GOMP_parallel\n"
    for verb in ("openmp", "calls", "report"):
        assert line in hpcd(verb, path).stdout


def test_a_database_without_regions_says_how_they_are_recorded(tmp_path: Path) -> None:
    done = hpcd("openmp", database(tmp_path, [(0, OTHER, 2, 5, 5, 1, 0)]), check=False)
    assert done.returncode == 2 and "--probes openmp" in done.stderr
