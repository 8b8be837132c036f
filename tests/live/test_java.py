"""Java methods in the call paths of a real HotSpot, without an agent or frame pointers."""

from __future__ import annotations

import subprocess
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from hpcd.analysis.database import Database
from hpcd.analysis.database.check import check_database
from hpcd.model.frame import offset_of
from hpcd.model.python_place import lines_of
from tests.support.jvms import VERSIONS, compile_java, jvm, libraries_of_java
from tests.support.paths import ROOT
from tests.support.recorded import hpcd, record
from tests.support.standing import stacks
from tests.support.tables import prepare_tables

pytestmark = pytest.mark.root

PAIRS = ROOT / "tests/programs/JavaPairs.java"
RESTS = ROOT / "tests/programs/JavaRests.java"
SINES = ROOT / "tests/programs/JavaSines.java"
# Where a caller was not found: a path that says so.
_MARKED = "[truncated"
STEPS = {f"JavaPairs${name}.take" for name in ("Left", "Right", "Outer")}
# Of each method those that it calls.
CALLEES = {
    "JavaPairs.main": {"JavaPairs.turn"},
    "JavaPairs.turn": {"JavaPairs.first", "JavaPairs.second", "JavaPairs.thrown", *STEPS},
    "JavaPairs.first": {"JavaPairs.work"},
    "JavaPairs.second": {"JavaPairs.work"},
    "JavaPairs$Left.take": {"JavaPairs.work"},
    "JavaPairs$Right.take": {"JavaPairs.work"},
    "JavaPairs$Outer.take": {"JavaPairs.descend"},
    "JavaPairs.descend": {"JavaPairs.descend", "JavaPairs.work"},
    "JavaPairs.thrown": {"JavaPairs.raise", "JavaPairs.work"},
    "JavaPairs.raise": {"JavaPairs.work"},
    "JavaPairs.work": set(),
    "JavaPairs.<clinit>": {f"JavaPairs${name}.<init>" for name in ("Left", "Right", "Outer")},
}
# Which the JVM calls.
BEGINS = {"JavaPairs.main", "JavaPairs.<clinit>"}


class Sampled(NamedTuple):
    """A call path: names and lines of its Java methods, the outermost first, all its names, and its
    samples' seconds."""

    methods: tuple[tuple[str, int], ...]
    names: tuple[str, ...]
    seconds: float


def sampled_paths(db: Database) -> list[Sampled]:
    cost = db.metrics.exclusive("cpu_time")
    paths = []
    for node in np.flatnonzero(cost).tolist():
        nodes = list(db.cct.path(node))
        names = tuple(db.procedure_names[db.procedure_of_node[at]] for at in nodes)
        lines = lines_of(offset_of(db.cct.frame[nodes])).tolist()
        methods = tuple(
            (name, line)
            for name, line in zip(names, lines, strict=True)
            if name.startswith("JavaPairs")
        )
        paths.append(Sampled(methods, names, float(cost[node])))
    return paths


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    compile_java(PAIRS, folder)
    compile_java(RESTS, folder)
    compile_java(SINES, folder)
    return folder


def recorded(home: Path, folder: Path, *command: object) -> Path:
    prepare_tables(*libraries_of_java(home))
    record(folder / "m", [home / "bin/java", *command])
    hpcd("merge", folder / "m", "-o", folder / "db")
    assert check_database(folder / "db") == []
    return folder / "db"


def line_of(text: str, source: Path = PAIRS) -> int:
    return 1 + [text in line for line in source.read_text().splitlines()].index(True)


@pytest.mark.parametrize("mode", ["-Xint", "-XX:TieredStopAtLevel=1", "-XX:-Inline", "-Xmixed"])
@pytest.mark.parametrize("version", VERSIONS)
def test_methods_have_the_callers_that_call_them(
    classes: Path, tmp_path: Path, version: int, mode: str
) -> None:
    folder = recorded(jvm(version), tmp_path, mode, "-cp", classes, "JavaPairs", 1.5)
    with Database(folder) as db:
        # Folded, they begin at the program's method.
        begins = {path.names[0] for path in sampled_paths(db) if path.methods}
        assert "JavaPairs.main" in begins
        assert {name for name in begins if not name.startswith(_MARKED)} <= BEGINS
    with Database(folder, native=True) as db:
        paths = sampled_paths(db)
    in_java = [path for path in paths if path.methods]
    with_java = [path for path in in_java if not path.names[0].startswith(_MARKED)]
    whole = sum(path.seconds for path in with_java)
    assert whole > 0.99 * sum(path.seconds for path in in_java)
    impossible: Counter[tuple[str, str]] = Counter()
    callers: Counter[str] = Counter()
    lines: dict[str, set[int]] = {}
    for path in with_java:
        assert path.methods[0][0] in BEGINS
        assert any(name.startswith("JavaCalls::call_helper(") for name in path.names)
        for (caller, line), (callee, _) in zip(path.methods, path.methods[1:], strict=False):
            if callee not in CALLEES[caller]:
                impossible[caller, callee] += 1
            if callee == "JavaPairs.work":
                callers[caller] += path.seconds
                lines.setdefault(caller, set()).add(line)
    assert impossible == {}
    assert whole > 0.3
    assert lines["JavaPairs.first"] == {line_of("// first's call")}
    assert lines["JavaPairs.second"] == {line_of("// second's call")}
    total = sum(callers.values())
    # Seven calls of work() a turn.
    for caller in CALLEES:
        if "JavaPairs.work" in CALLEES[caller]:
            assert 0.06 < callers[caller] / total < 0.24, (caller, callers)


@pytest.mark.parametrize("mode", ["-Xint", "-XX:TieredStopAtLevel=1", "-Xmixed"])
@pytest.mark.parametrize("version", VERSIONS)
def test_stubs_have_the_methods_that_call_them(
    classes: Path, tmp_path: Path, version: int, mode: str
) -> None:
    """HotSpot's code of Math.sin() and its like keeps no frame pointer."""
    folder = recorded(jvm(version), tmp_path, mode, "-cp", classes, "JavaSines", 1.5)
    with Database(folder, native=True) as db:
        paths = [path for path in sampled_paths(db) if path.names[-1].startswith("[StubRoutines")]
    callers = Counter[str]()
    for path in paths:
        at = -3 if path.names[-2] == "[Interpreter]" else -2
        callers["whole" if not path.names[0].startswith(_MARKED) else "cut"] += path.seconds
        callers[path.names[at]] += path.seconds
    stubs = callers["whole"] + callers["cut"]
    assert stubs > 0.3
    assert callers["JavaSines.sines"] > 0.99 * stubs and callers["whole"] > 0.99 * stubs, callers


def own_methods(thread: dict[str, Any]) -> list[tuple[str, int]]:
    """The program's methods in a thread's path and their lines, innermost first; no lambdas."""
    return [
        (frame["name"], frame["line"])
        for frame in reversed(thread["path"])
        if frame["name"].startswith("JavaRests.") and "lambda" not in frame["name"]
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_present_stacks_have_the_line_each_thread_stands_at(classes: Path, version: int) -> None:
    home = jvm(version)
    prepare_tables(*libraries_of_java(home))
    command = [home / "bin/java", "-cp", classes, "JavaRests"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout and program.stdout.readline() == "ready\n"
            named = standing(program.pid)
            while not named.keys() >= NAMES:
                named = standing(program.pid)
        finally:
            program.kill()
    line = partial(line_of, source=RESTS)
    assert own_methods(named["waiter"]) == [("JavaRests.waits", line("// waits"))]
    assert own_methods(named["parker"]) == [("JavaRests.parks", line("// parks"))]
    assert own_methods(named["sleeper"]) == [("JavaRests.sleeps", line("// sleeps"))]
    assert own_methods(named["a very long nam"]) == [
        ("JavaRests.sleeps", line("// sleeps")),
        ("JavaRests.inside", line("// rests")),
        *[("JavaRests.inside", line("// descends"))] * 5,
        ("JavaRests.compiled", line("// deep")),
    ]
    for name in NAMES:
        assert not named[name]["path"][0]["name"].startswith(_MARKED)


# Of threads; the kernel has 15 bytes of the last.
NAMES = {"waiter", "parker", "sleeper", "a very long nam"}


def standing(pid: int) -> dict[str, dict[str, Any]]:
    """The threads of a process that stay in a method of the program, by name."""
    resting = ("JavaRests.sleeps", "JavaRests.waits", "JavaRests.parks")
    return {
        thread["name"]: thread
        for thread in stacks("--pid", pid)["threads"]
        if thread["wait"] and any(frame["name"] in resting for frame in thread["path"])
    }
