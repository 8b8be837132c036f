"""Python functions in the call paths of real interpreters."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpcd.analysis as hpcd_analysis
from hpcd.analysis.database import Database
from hpcd.analysis.database.check import check_database
from hpcd.analysis.findings.findings import findings
from tests.support.gil_waits import gil_waits
from tests.support.interpreters import interpreters
from tests.support.paths import ROOT
from tests.support.recorded import HPCD, hpcd, record
from tests.support.standing import stacks
from tests.support.tables import libraries_of_python, prepare_tables

pytestmark = pytest.mark.root

PYTHON = "/usr/bin/python3"
DIVISION = ROOT / "tests/programs/python_division.py"
STANDING = ROOT / "tests/programs/python_standing.py"
GIL = ROOT / "tests/programs/python_gil.py"
VERSIONS = interpreters()
Path_ = tuple[str, ...]


def recorded(folder: Path, *command: object, options: tuple[object, ...] = ()) -> dict[str, Any]:
    """Record a command, its tables being there, and merge; the summary."""
    prepare_tables(*libraries_of_python("ctypes"))
    summary = record(folder / "m", [*command], *options)
    hpcd("merge", folder / "m", "-o", folder / "db")
    assert check_database(folder / "db") == []
    return summary


def seconds_by_path(db: Database, metric: str) -> Counter[Path_]:
    """Seconds of each call path, by the names of its functions."""
    paths: Counter[Path_] = Counter()
    cost = db.metrics.exclusive(metric)
    for node in np.flatnonzero(cost).tolist():
        names = [db.procedure_names[db.procedure_of_node[at]] for at in db.cct.path(node)]
        paths[tuple(names)] += float(cost[node])
    return paths


def begins_with(*names: str) -> Callable[[Path_], bool]:
    return lambda path: path[: len(names)] == names


def total(paths: Counter[Path_], fits: Callable[[Path_], bool]) -> float:
    return sum(seconds for path, seconds in paths.items() if fits(path))


@pytest.fixture(scope="module")
def division(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recording of the program whose functions have known shares, and its
    database."""
    folder = tmp_path_factory.mktemp("division")
    recorded(folder, PYTHON, DIVISION, 2)
    return folder


def test_time_of_functions_and_the_place_of_waits(division: Path) -> None:
    with hpcd_analysis.open(division / "db") as db:
        paths = seconds_by_path(db, "cpu_time")
        spent = total(paths, begins_with("<module>", "main"))
        f, g = (total(paths, begins_with("<module>", "main", name, "spin")) for name in "fg")
        # 2,000 samples: four standard errors of a share of 3/4.
        assert abs(f / (f + g) - 3 / 4) < 0.04
        assert f + g > 0.95 * spent
        # Folded, no frame of the interpreter stands below a Python function.
        module = db.procedures.module[db.procedure_of_node]
        executable = next(row.id for row in db.modules if row.path.endswith("/python3.11"))
        spin = np.array([name == "spin" for name in db.procedures.name])[db.procedure_of_node]
        assert not (module[spin[db.cct.parent]] == executable).any()
        waits = seconds_by_path(db, "blocked_time")
        nap = total(
            waits,
            lambda path: (
                path[:3] == ("<module>", "main", "through_c")
                and path[path.index("compare") :][:2] == ("compare", "nap")
                if "compare" in path
                else False
            ),
        )
        assert abs(nap - 0.2) < 0.1
        # What the nap is made of is below it: the C library's call, the kernel.
        deepest = max((path for path in waits if "nap" in path), key=len)
        assert "qsort" in " ".join(deepest), deepest
        assert deepest[-1].endswith("[k]")
    with hpcd_analysis.open(division / "db", native=True) as db:
        paths = seconds_by_path(db, "cpu_time")
        assert any("_PyEval_EvalFrameDefault" in path for path in paths)


def test_lines_are_the_interpreters_own(division: Path) -> None:
    text = DIVISION.read_text().splitlines()
    done = hpcd("report", "--json", "--view", "source-lines", division / "db")
    report = json.loads(done.stdout)
    lines = {
        row["line"]: row["exclusive"]["cpu_time"]
        for row in report["tree"]["children"]
        if str(row.get("file", "")).endswith(DIVISION.name)
    }
    hot = [text[line - 1].strip() for line in sorted(lines, key=lines.__getitem__)[-2:]]
    assert set(hot) <= {"for _ in range(200):", "pass", "while time.thread_time() < end:"}


def test_the_standard_library_works_for_the_programs_own_function(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        """
import json, time
def encode(rows):
    return json.dumps(rows, indent=1)
def main():
    while time.thread_time() < 1:
        encode([{"a": row} for row in range(1000)])
main()
"""
    )
    recorded(tmp_path, PYTHON, app)
    with hpcd_analysis.open(tmp_path / "db") as db:
        work = [finding.text for finding in findings(db) if finding.kind == "hot"]
    assert [text.partition(":")[0] for text in work] == ["Most work is done in json for encode"]


def test_functions_of_a_program_that_has_ended_before_it_is_read(tmp_path: Path) -> None:
    """The recorder stands still while it runs; that it is CPython is known from before."""
    app = tmp_path / "app.py"
    app.write_text(
        """
import time
def spin():
    while time.thread_time() < 0.5:
        sum(range(1000))
def größe():
    spin()
größe()
"""
    )
    for folder in ("before", "after"):
        (tmp_path / folder).mkdir()
    recorded(tmp_path / "before", PYTHON, app)
    script = f"kill -STOP $PPID; {PYTHON} {app}; kill -CONT $PPID"
    recorded(tmp_path / "after", "/bin/sh", "-c", script)
    with hpcd_analysis.open(tmp_path / "after/db") as db:
        paths = seconds_by_path(db, "cpu_time")
    assert not total(paths, lambda path: "[Python function that is gone]" in path)
    assert total(paths, begins_with("<module>", "größe", "spin")) > 0.3
    done = hpcd("report", "--json", "--view", "source-lines", tmp_path / "after/db")
    rows = json.loads(done.stdout)["tree"]["children"]
    lines = {row["line"] for row in rows if str(row.get("file", "")) == str(app)}
    assert {4, 5} & lines and lines <= {*range(2, 9)}, lines


def test_a_test_of_pytest_begins_its_path(tmp_path: Path) -> None:
    test = tmp_path / "test_app.py"
    test.write_text(
        """
import time
def spin():
    while time.thread_time() < 2:
        for _ in range(1000):
            pass
def test_it():
    spin()
"""
    )
    options = ("-q", "-p", "no:cacheprovider", "--rootdir", tmp_path)
    recorded(tmp_path, sys.executable, "-m", "pytest", *options, test)
    with hpcd_analysis.open(tmp_path / "db") as db:
        paths = seconds_by_path(db, "cpu_time")
        first = findings(db)[0].text
    assert total(paths, begins_with("test_it", "spin")) > 0.5
    assert not total(paths, lambda path: "test_it" in path[1:])
    assert "spin" in first or "test_it" in first, first


def states(pid: int) -> str:
    """The states of a process's threads, sorted."""
    tasks = Path(f"/proc/{pid}/task").glob("*/stat")
    return "".join(sorted(task.read_text().rpartition(")")[2].split()[0] for task in tasks))


@contextlib.contextmanager
def standing(version: str) -> Iterator[int]:
    """The pid of a Python program whose threads stand where its lines say."""
    command = [*map(str, VERSIONS[version]), STANDING]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            while states(process.pid) != "RSSS":
                time.sleep(0.002)
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize("version", VERSIONS)
def test_waits_from_before_the_recording_have_python_functions(
    version: str, tmp_path: Path
) -> None:
    with standing(version) as pid:
        hpcd("attach", "--pid", pid, "-d", 0.5, "-o", tmp_path / "m")
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    with hpcd_analysis.open(tmp_path / "db") as db:
        waits = seconds_by_path(db, "blocked_time")
    # 3.9 and 3.10 do not keep the names of the classes.
    begins = {tuple(name.split(".")[-1] for name in path[:3]) for path in waits}
    for path in (("run", "take"), ("through_c",), ("<module>", "main", "wait")):
        assert any(path == begin[: len(path)] for begin in begins), (path, begins)


@pytest.mark.parametrize("version", VERSIONS)
def test_present_stacks_have_the_line_each_thread_stands_at(version: str) -> None:
    text = STANDING.read_text().splitlines()
    with standing(version) as pid:
        threads = stacks("--pid", pid)["threads"]
        native = stacks("--pid", pid, "--native")["threads"]
    paths = [[frame for frame in thread["path"] if not frame["kernel"]] for thread in threads]
    innermost = {}
    for path in paths:
        functions = [frame for frame in path if "line" in frame]
        # 3.9 and 3.10 do not keep the names of the classes.
        names = [frame["name"].split(".")[-1] for frame in functions]
        innermost[names[-1]] = names, functions[-1]
        assert path[0] == functions[0], "the interpreter's start, or a thread's, is folded"
    assert innermost["take"][0] == ["run", "take"]
    assert innermost["nap"][0] == ["through_c", "nap"]
    assert innermost["spin"][0] == ["spin"]
    assert innermost["wait"][0] == ["<module>", "main", "wait", "wait"]
    for name, (_, frame) in innermost.items():
        if frame["module"] == str(STANDING):
            assert text[frame["line"] - 1].endswith(f"# stands here: {name}")
    # Of 3.14 and 3.15 the evaluation loop has no name.
    folded, unfolded = (sum(len(t["path"]) for t in some) for some in (threads, native))
    assert unfolded > folded + 2 * len(threads)


def test_present_stacks_of_many_threads_and_of_those_without_a_state() -> None:
    """Threads begin in the order of their numbers and end in none, so that the list of states has
    gaps; those of OpenBLAS have no state."""
    code = """
import threading
import numpy
gates = [threading.Event() for _ in range(150)]
threads = [threading.Thread(target=gate.wait) for gate in gates]
for thread in threads:
    thread.start()
numpy.ones((500, 500)) @ numpy.ones((500, 500))
for gate, thread in list(zip(gates, threads))[::3]:
    gate.set()
    thread.join()
print("started", flush=True)
gates[1].wait()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            while "R" in states(process.pid):
                time.sleep(0.002)
            threads = stacks("--pid", process.pid)["threads"]
        finally:
            process.kill()
    named = [thread for thread in threads if any("line" in frame for frame in thread["path"])]
    assert len(named) == 101


def test_top_folds_what_it_shows(division: Path) -> None:
    shown, native = (
        json.loads(hpcd("top", "--json", *option, "--window", 60, division / "m").stdout)
        for option in ((), ("--native",))
    )
    hottest = [tuple(path["path"]) for path in shown["hottest"]]
    assert hottest[0][:2] == ("<module>", "main")
    assert not any("_PyEval_EvalFrameDefault" in path for path in hottest if "main" in path)
    assert any("_PyEval_EvalFrameDefault" in path["path"] for path in native["hottest"])
    assert shown["cpu_s"] == native["cpu_s"]


def test_a_version_whose_structures_are_not_known_is_named(tmp_path: Path) -> None:
    """Whatever calls itself CPython: here a program with the symbols of one, and nothing else."""
    source = tmp_path / "embedder.c"
    source.write_text(
        "char _PyRuntime[1 << 12]; const unsigned Py_Version = 0x030800f0;\n"
        "int main(void) { for (volatile long turn = 0; turn < 500000000; turn++); return 0; }\n"
    )
    program = tmp_path / "embedder"
    subprocess.run(["gcc", "-rdynamic", "-o", program, source], check=True)
    summary = recorded(tmp_path, program)
    assert summary["unwind"]["failures"] == {str(program): "no Python frames of CPython 3.8"}
    with hpcd_analysis.open(tmp_path / "db") as db:
        paths = seconds_by_path(db, "cpu_time")
        assert total(paths, lambda path: "main" in path) > 0.9 * sum(paths.values())


def test_more_frames_than_a_path_has_room_for(tmp_path: Path) -> None:
    summary = recorded(tmp_path, PYTHON, ROOT / "tests/programs/python_deep.py")
    assert "more than there is room for" in summary["unwind"]["failures"]["Python frames"]
    with hpcd_analysis.open(tmp_path / "db") as db:
        paths = [path for path in seconds_by_path(db, "cpu_time") if "spin" in path]
    assert max(path.count("deep") for path in paths) > 400


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ("", ""),
        ("circle", "more than there is room for"),
        ("circle of entries", "could not be followed to the end"),
        ("kernel", "could not be followed to the end"),
        ("unmapped", ""),
        ("length", ""),
        ("encoding", ""),
    ],
)
def test_structures_that_lie(
    lie: str, why: str, tmp_path: Path, build: Callable[..., Path]
) -> None:
    # Native frames are there in any case, Python frames where the lists lead somewhere.
    summary = recorded(tmp_path, build("python_liar.c", "-rdynamic"), lie)
    failures = summary["unwind"]["failures"]
    assert why in failures.get("Python frames", "") and bool(why) <= ("Python frames" in failures)
    with hpcd_analysis.open(tmp_path / "db", native=True) as db:
        paths = seconds_by_path(db, "cpu_time")
        assert total(paths, lambda path: "main" in path and "spin" in path) > 0.5
        names = {name for path in paths for name in path}
        assert all(len(name) <= 2048 and name.isprintable() for name in names)
        if lie in ("", "length"):
            assert any(name.startswith("xxxxxx") for name in names)
        if lie == "kernel":
            assert "[Python function that is gone]" in names


def test_a_table_of_offsets_that_lies(tmp_path: Path, build: Callable[..., Path]) -> None:
    program = build("python_liar.c", "-rdynamic", "-DOFFSETS")
    summary = recorded(tmp_path, program)
    why = "no Python frames of CPython 3.13 with impossible offsets"
    assert summary["unwind"]["failures"] == {str(program): why}


def test_a_loader_whose_programs_take_no_python_frames_is_named(tmp_path: Path) -> None:
    summary = recorded(tmp_path, PYTHON, DIVISION, 0.2, options=("--loader", "bcc"))
    failures = summary["unwind"]["failures"].items()
    named = [why for name, why in failures if "python" in Path(name).name]
    assert named == ["no Python frames: not by the loader bcc"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wait_for_the_gil_is_due_to_the_thread_that_holds_it(
    tmp_path: Path, version: str
) -> None:
    """Also where a timeout ended it: who waits for the GIL asks for it every 5 ms."""
    python = VERSIONS[version]
    prepare_tables(*libraries_of_python("ctypes", python))
    command = [*HPCD, "run", "-o", tmp_path / "m", "--", *python, GIL, "2"]
    done = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True)
    hpcd("merge", "-o", tmp_path / "db", tmp_path / "m")
    waited, due = gil_waits(tmp_path / "db")
    assert 0 < waited <= float(done.stdout)
    # Nobody hands the lock over behind the last wait.
    assert due > 0.9 * waited
