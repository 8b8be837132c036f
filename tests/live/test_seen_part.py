"""The part of a process that a recording saw, beside the process's own account of its CPU time."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hpcd.analysis.database import open as open_database
from hpcd.analysis.database.seen_processes import seen_part
from hpcd.analysis.profile.report_header import gather_facts
from hpcd.measurement.reader import open_measurement
from hpcd.measurement.seen_part import SeenPart
from tests.support.recorded import HPCD, hpcd
from tests.support.waiting import Recorder

pytestmark = pytest.mark.root

# Works for 0.6 s, says what it has used, waits for a line, works on, and does so again.
STEPS = """
import sys, time
def work(until):
    while time.process_time() < until: pass
for step in (1, 2, 3):
    work(0.6 * step)
    print(time.process_time(), flush=True)
    if not sys.stdin.readline(): break
"""
# Of hpcd's figures two ticks of /proc, and what is used between the line and the attachment.
ERROR_S = 0.05


@contextmanager
def program() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", STEPS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def next_step(process: subprocess.Popen[str], *, go_on: bool = True) -> float:
    """Let the program work until it says again what it has used, and return that."""
    assert process.stdin and process.stdout
    if go_on:
        process.stdin.write("\n")
        process.stdin.flush()
    return float(process.stdout.readline())


def merged(measurement: Path) -> Path:
    database = measurement.with_suffix(".db")
    hpcd("merge", measurement, "-o", database)
    return database


def both_parts(measurement: Path) -> tuple[SeenPart, Path]:
    """The part seen by the recording's summary, which its database agrees with."""
    database = merged(measurement)
    summary = open_measurement(measurement).summary
    assert summary is not None
    with open_database(database) as db:
        assert seen_part(db) == pytest.approx(summary.seen, abs=0.25)
        assert seen_part(db)[:5] == pytest.approx(summary.seen[:5], abs=1e-6)
        sentence = gather_facts(db).seen.sentence()
        assert any(sentence in line for line in gather_facts(db).as_text())
    return summary.seen, database


def test_attached_late_and_until_the_end(tmp_path: Path) -> None:
    with program() as process:
        before = next_step(process, go_on=False)
        recorder = Recorder(tmp_path / "late", "-p", process.pid)
        next_step(process)
        last = next_step(process)
        assert process.stdin
        process.stdin.close()
        recorder.wait()
    late, database = both_parts(tmp_path / "late")
    assert (late.processes, late.going_on) == (1, 0)
    assert late.before_s == pytest.approx(before, abs=ERROR_S)
    assert late.before_s + late.cpu_s == pytest.approx(last, abs=ERROR_S)
    assert late.sentence().startswith("saw 1.2") and "went on" not in late.sentence()
    with closing(sqlite3.connect(database / "hpcd.sqlite")) as tables:
        ((end, cpu),) = tables.execute("SELECT end_ns, cpu_ns FROM process").fetchall()
    assert end > 0 and cpu / 1e9 == pytest.approx(last, abs=ERROR_S)
    whole = recorded_whole(tmp_path / "whole")
    refused = subprocess.run(
        [*HPCD, "compare", str(whole), str(database)], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2 and not refused.stdout
    assert refused.stderr.count("\n") == 1
    assert f"{database} saw 1.2" in refused.stderr
    assert "use --shares, --iteration N or --phase PROCEDURE, or --partial" in refused.stderr
    shares = hpcd("compare", whole, database, "--shares").stdout
    assert shares.startswith("run time: ") and shares.splitlines()[0].endswith("-> not known")
    with open_database(database) as db:
        sentence = seen_part(db).sentence()
    assert sentence in shares
    assert sentence in hpcd("compare", whole, database, "--partial").stdout


def recorded_whole(measurement: Path) -> Path:
    """A recording from the program's start to its end says nothing of a part."""
    command = [*HPCD, "run", "-o", str(measurement), "--", sys.executable, "-c", STEPS]
    output = subprocess.run(
        command, input="\n\n\n", capture_output=True, text=True, check=True
    ).stdout
    assert "part of a run" not in output
    whole, database = both_parts(measurement)
    assert whole.whole_run and whole.before_s == 0
    assert "part of a run" not in hpcd("report", database).stdout
    return database


def test_one_process_recorded_twice_goes_on(tmp_path: Path) -> None:
    databases = []
    with program() as process:
        next_step(process, go_on=False)
        for name in ("first", "second"):
            recorder = Recorder(tmp_path / name, "-p", process.pid)
            used = next_step(process)
            summary = recorder.stop()
            assert summary["seen"]["going_on"] == 1
            part, database = both_parts(tmp_path / name)
            assert part.before_s + part.cpu_s == pytest.approx(used, abs=ERROR_S)
            assert "; the process went on after the recording" in part.sentence()
            databases.append(str(database))
    for verb in (["compare"], ["scaling", "--weak", "--ranks", "1,2"]):
        refused = subprocess.run([*HPCD, *verb, *databases], capture_output=True, check=False)
        assert refused.returncode == 2
        hpcd(*verb, *databases, "--partial")


def test_a_forked_child_is_seen_from_its_start(tmp_path: Path) -> None:
    code = "import os, time\nif os.fork(): os.wait()\nwhile time.process_time() < 0.3: pass"
    hpcd("run", "-o", tmp_path / "m", "--", sys.executable, "-c", code)
    part, database = both_parts(tmp_path / "m")
    assert part.whole_run and part.processes == 2
    with open_database(database) as db:
        # A child's number is below its parent's where the numbers begin anew.
        [(child, parent)] = db.rows(
            "SELECT child.start_ns, parent.start_ns FROM process AS child"
            " JOIN process AS parent ON child.parent_pid = parent.pid"
        )
    assert child > parent
