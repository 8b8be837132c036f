"""Call paths with the frames of interpreters folded, on a small tree."""

from __future__ import annotations

import numpy as np

from hpcd.analysis.database.folding import CodePlace, fold, fold_places
from hpcd.analysis.roles.role_table import role_table
from hpcd.model.cct import CCT

# By procedure: the kind and the path of its load module.
PLACES = {
    "[all]": ("", ""),
    "_start": ("elf", "/usr/bin/python3"),
    "loop": ("elf", "/usr/bin/python3"),
    "<module>": ("python", "/home/app.py"),
    "step": ("python", "/home/app.py"),
    "dgemm": ("elf", "/lib/libblas.so"),
    "Thread.run": ("python", "/usr/lib/python3.11/threading.py"),
    "read": ("elf", "/lib/libc.so.6"),
    "take_gil": ("elf", "/usr/bin/python3"),
    "pytest_runtest": ("python", "/usr/lib/python3/dist-packages/_pytest/runner.py"),
    "_multicall": ("python", "/usr/lib/python3/dist-packages/pluggy/_callers.py"),
    "find_spec": ("python", "<frozen importlib._bootstrap>"),
    "enter": ("python", "/usr/lib/python3.11/contextlib.py"),
    "_worker": ("python", "/usr/lib/python3.11/concurrent/futures/thread.py"),
    "_WorkItem.run": ("python", "/usr/lib/python3.11/concurrent/futures/thread.py"),
    "BaseProcess._bootstrap": ("python", "/usr/lib/python3.11/multiprocessing/process.py"),
    "JavaMain": ("elf", "/usr/lib/jvm/java-17/lib/libjli.so"),
    "call_helper": ("elf", "/usr/lib/jvm/java-17/lib/server/libjvm.so"),
    "native": ("elf", "/home/libnative.so"),
    "[StubRoutines (1)]": ("java", "[java]"),
    "[Java method that is gone]": ("java", "[java]"),
    "java.lang.Thread.run": ("java", "java/lang/Thread.java"),
    "java.util.concurrent.FutureTask.run": ("java", "java/util/concurrent/FutureTask.java"),
    "Main.main": ("java", "Main.java"),
    "Main.work": ("java", "Main.java"),
}
NAMES = list(PLACES)
MODULES = list(dict.fromkeys(PLACES.values()))
KINDS, PATHS = [kind for kind, _ in MODULES], [path for _, path in MODULES]
MODULE = np.array([MODULES.index(place) for place in PLACES.values()], np.uint32)
ROLES = role_table().of_procedures(NAMES, [False] * len(NAMES), [PATHS[at] for at in MODULE])


def folded(paths: list[list[str]]) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Each path as it is once the tree of all is folded."""
    nodes: dict[tuple[str, ...], int] = {(): 0}
    parent, procedure = [0], [0]
    for path in sorted({tuple(p[:n]) for p in paths for n in range(1, len(p) + 1)}, key=len):
        nodes[path] = len(parent)
        parent.append(nodes[path[:-1]])
        procedure.append(NAMES.index(path[-1]))
    of_node = np.array(procedure, np.uint32)
    cct = CCT(np.array(parent, np.uint32), of_node.astype(np.uint64))
    tree = fold(cct, of_node, MODULE, KINDS, PATHS, NAMES, ROLES)
    names = [NAMES[at] for at in of_node[tree.shown].tolist()]
    tree.cct.validate("folded")
    return {
        tuple(path): tuple(names[at] for at in tree.cct.path(nodes[tuple(path)])) for path in paths
    }


def test_interpreters_frames_belong_to_the_python_line_above() -> None:
    start = ["_start", "loop"]
    paths = [
        [*start, "<module>", "step", "loop"],
        [*start, "<module>", "step", "loop", "loop", "dgemm"],
        [*start, "<module>", "step", "loop", "read"],
        [*start, "<module>", "step", "loop", "take_gil", "loop", "read"],
        [*start, "<module>", "loop", "loop", "step", "loop"],
        start,
        ["_start", "Thread.run", "loop", "step"],
        ["dgemm", "step", "loop"],
    ]
    result = list(folded(paths).values())
    assert result == [
        ("<module>", "step"),
        ("<module>", "step", "dgemm"),
        ("<module>", "step", "read"),
        ("<module>", "step", "take_gil", "read"),
        ("<module>", "step"),
        ("_start", "loop"),
        ("step",),
        ("dgemm", "step"),
    ]


def test_a_test_is_not_below_what_runs_it() -> None:
    runner = ["_start", "loop", "pytest_runtest", "loop", "_multicall", "loop"]
    paths = [
        [*runner, "step", "loop", "dgemm"],
        [*runner, "enter", "loop", "step", "enter"],
        [*runner, "find_spec", "<module>", "step"],
        [*runner, "enter", "loop", "read"],
        [*runner, "step", "pytest_runtest", "step"],
        ["_start", "<module>", "loop", "pytest_runtest", "step"],
    ]
    own = ("pytest_runtest", "_multicall")
    assert list(folded(paths).values()) == [
        ("step", "dgemm"),
        ("step", "enter"),
        ("<module>", "step"),
        (*own, "enter", "read"),
        ("step", "pytest_runtest", "step"),
        ("<module>", "pytest_runtest", "step"),
    ]


def test_tasks_begin_their_paths_and_idle_workers_theirs() -> None:
    thread = ["_start", "Thread.run", "_worker", "loop"]
    forked = ["_start", "<module>", "step", "loop", "BaseProcess._bootstrap", "loop"]
    paths = [
        [*thread, "_WorkItem.run", "loop", "step"],
        [*thread, "read"],
        [*forked, "step", "loop", "dgemm"],
        [*forked, "read"],
        forked[:3],
    ]
    assert list(folded(paths).values()) == [
        ("step",),
        ("_worker", "read"),
        ("step", "dgemm"),
        ("BaseProcess._bootstrap", "read"),
        ("<module>", "step"),
    ]


def test_a_tree_without_python_stays_as_it_is() -> None:
    paths = [["_start", "loop", "dgemm"], ["_start", "read"]]
    assert list(folded(paths).values()) == [tuple(path) for path in paths]


def test_places_fold_like_the_procedures_of_a_database() -> None:
    places = [
        CodePlace("", "", ""),
        CodePlace("_start", "/usr/bin/python3", "elf"),
        CodePlace("<module>", "/home/app.py", "python"),
        CodePlace("loop", "/usr/bin/python3", "elf"),
        CodePlace("dgemm", "/lib/libblas.so", "elf"),
    ]
    tree = fold_places(np.array([0, 0, 1, 2, 3], np.uint32), places)
    shown = [places[at].name for at in tree.shown.tolist()]
    assert [shown[at] for at in tree.cct.path(4).tolist()] == ["<module>", "dgemm"]
    assert [shown[at] for at in tree.cct.path(3).tolist()] == ["<module>"]


def test_paths_of_java_begin_at_the_programs_method_without_stubs_below() -> None:
    start, stub = ["_start", "JavaMain", "call_helper"], "[StubRoutines (1)]"
    gone, work = "[Java method that is gone]", ["Main.main", "Main.work"]
    library = ["java.lang.Thread.run", "java.util.concurrent.FutureTask.run"]
    paths = [
        [*start, stub, *work],
        [*start, stub, *work, stub, "call_helper"],
        [*start, stub, *work, "native", "call_helper", stub, "Main.work"],
        [*start, stub, *library, "Main.work"],
        [*start, stub, gone, "Main.work"],
        ["_start", "native", "call_helper", stub, "Main.main"],
    ]
    assert list(folded(paths).values()) == [
        (*work,),
        (*work, "call_helper"),
        (*work, "native", "call_helper", "Main.work"),
        ("Main.work",),
        (gone, "Main.work"),
        ("_start", "native", "call_helper", stub, "Main.main"),
    ]
