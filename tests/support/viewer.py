"""A database of eight ranks, and a viewer that serves one."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import zstandard

from hpcd.analysis.merge.stages import merge
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from hpcd.model.python_place import FUNCTION_BYTES, python_offset
from tests.support.made import Step, make

NAMES = ["main", "solve", "exchange", "assemble", "kernel"]


def eight_ranks(folder: Path) -> Path:
    """Eight ranks that solve and exchange in turn for a second; rank 7 solves longer."""
    events = [
        Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000),
        Event(1, "blocked", "s", 1e-6, "blocked_time", interval=True),
    ]
    paths = []
    for rank in range(8):
        path = folder / f"rank{rank}"
        writer = MeasurementWriter(path, Host("host", "b", "6", "x86_64", 2), options={})
        for event in events:
            writer.add_event(event)
        writer.add_module(Module(1, ModuleKind.JIT, "[jit]", process=1))
        writer.add_symbols(1, [(16 * i, 16, name) for i, name in enumerate(NAMES)])
        writer.add_process(Process(1, 100 + rank, 1, "app", "/app", (), 0, 0, "job", rank, 8))
        writer.add_thread(Thread(0, 1, 100 + rank, "app", 0, 1_000_000_000))
        # main > solve > assemble > kernel; main > exchange
        frames = [module_frame(1, 16 * i + 4) for i in (0, 1, 3, 4, 2)]
        first = writer.add_nodes(np.array([0, 1, 2, 3, 1], np.uint32), np.array(frames, np.uint64))
        time, end = 0, 1_000_000_000
        while time < end:
            busy = 60 if rank == 7 else 20 + 4 * rank
            count = min(busy, (end - time) // 1_000_000)
            times = np.arange(count, dtype=np.uint64) * np.uint64(1_000_000) + np.uint64(time)
            leaf = np.where(np.arange(count) % 3, first + 3, first + 2).astype(np.uint32)
            writer.add_records(np.zeros(count, np.uint32), times, leaf, 0)
            time += count * 1_000_000
            wait = min((70 - busy) * 1_000_000, end - time)
            if wait > 0:
                writer.add_records(
                    np.zeros(1, np.uint32), np.array([time], np.uint64),
                    np.array([first + 4], np.uint32), 1, np.array([wait // 1000], np.uint64),
                )  # fmt: skip
                time += wait
        writer.add_clock_pair(0, 10**18)
        writer.close()
        paths.append(path)
    merge(paths, folder / "run.db")
    return folder / "run.db"


def python_program(folder: Path) -> Path:
    """A thread in ``app.py``: main() in line 5 or 6, and what it calls through the interpreter's
    frames, ``solve`` of the same file and code of a library."""
    (folder / "app.py").write_text(
        "def solve():\n    pass\ndef main():\n    pass\n    a()\n    b()\n"
    )
    writer = MeasurementWriter(folder / "m", Host("node7", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    source = str(folder / "app.py")
    for module in (
        Module(1, ModuleKind.ELF, "/usr/bin/python3"),
        Module(2, ModuleKind.PYTHON, source),
        Module(3, ModuleKind.ELF, "/lib/libblas.so"),
    ):
        writer.add_module(module)
    functions = {"<module>": 1, "solve": 1, "main": 3}
    start = {name: python_offset(line, len(name), 0) for name, line in functions.items()}
    writer.add_symbols(2, [(at, FUNCTION_BYTES, name) for name, at in start.items()])
    writer.add_process(Process(1, 100, 1, "python3", "/usr/bin/python3", (), 0, 0))
    writer.add_thread(Thread(0, 1, 100, "python3", 0, 1_000_000_000))
    loop = module_frame(1, 40)
    main = [module_frame(2, start["main"] + line) for line in (5, 6)]
    frames = [
        module_frame(1, 20), module_frame(2, start["<module>"] + 6), *main, loop, loop,
        module_frame(2, start["solve"] + 2), loop, module_frame(3, 20),
    ]  # fmt: skip
    # start > <module> > main:5 > loop > solve > loop; main:6 > loop > a library's
    parents = np.array([0, 1, 2, 2, 3, 4, 5, 7, 6], np.uint32)
    first = writer.add_nodes(parents, np.array(frames, np.uint64))
    count = 1000
    node = np.where(np.arange(count) % 4, first + 7, first + 8).astype(np.uint32)
    times = np.arange(count, dtype=np.uint64) * np.uint64(1_000_000)
    writer.add_records(np.zeros(count, np.uint32), times, node, 0)
    writer.add_clock_pair(0, 10**18)
    writer.close()
    merge([folder / "m"], folder / "python.db")
    return folder / "python.db"


def ranks_with_helpers(folder: Path, *, helpers: int) -> Path:
    """Two ranks of a thread that works for a second and ``helpers`` that sleep."""
    writer = MeasurementWriter(folder / "m", Host("host", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_module(Module(1, ModuleKind.JIT, "[jit]", process=1))
    writer.add_symbols(1, [(0, 16, "main")])
    node = writer.add_nodes(np.zeros(1, np.uint32), np.array([module_frame(1, 4)], np.uint64))
    line = 0
    for rank in range(2):
        writer.add_process(Process(rank, 100 + rank, 1, "app", "/app", (), 0, 0, "job", rank, 2))
        for thread in range(1 + helpers):
            tid = 100 + rank + 1000 * thread
            name = "helper" if thread else "app"
            writer.add_thread(Thread(line, rank, tid, name, 0, 10**9))
            count = 1000 if thread == 0 else 1
            times = np.arange(count, dtype=np.uint64) * np.uint64(10**6)
            lines = np.full(count, line, np.uint32)
            writer.add_records(lines, times, np.full(count, node, np.uint32), 0)
            line += 1
    writer.add_clock_pair(0, 10**18)
    writer.close()
    merge([folder / "m"], folder / "db")
    return folder / "db"


def two_runs(folder: Path) -> list[Path]:
    """A run of two ranks, and one of four of a rebuilt program: each rank's turn to write makes
    the others wait, the solver takes longer, a checkpoint is new and the check is gone."""

    def steps(rank: int, ranks: int) -> list[Step]:
        rebuilt = ranks == 4
        result: list[Step] = [("main/setup", "cpu", 0.05)]
        for _ in range(3):
            result.append(("main/solve/sweep/kernel", "cpu", 0.15 if rebuilt else 0.1))
            result.append(("main/solve/sweep/norm", "cpu", 0.03))
            result.append(("main/solve/MPI_Allreduce/k_sleep", "blocked", 0.01))
            result.append((f"main/{'checkpoint' if rebuilt else 'check'}", "cpu", 0.04))
        for turn in range(ranks):
            name = "write/k_write" if turn == rank else "MPI_Barrier/k_sleep"
            result.append((f"main/output/{name}", "cpu" if turn == rank else "blocked", 0.05))
        return result

    return [
        make(
            folder / f"ranks-{ranks}.db",
            {rank: steps(rank, ranks) for rank in range(ranks)},
            seed=ranks,
        )
        for ranks in (2, 4)
    ]


# Names as a target may choose them: elements, scripts, formulas of spreadsheets, escape sequences
# of terminals, and what JavaScript's own objects have.
HOSTILE_NAMES = (
    "<img src=x onerror=window.reached=1>",
    "</title><script>window.reached=1</script>".replace("/", "\u2215"),
    "\"'><svg onload=window.reached=1>",
    "=cmd|' C calc'!A0",
    "@SUM(1+1)",
    "\t=1+1",
    "\x1b]0;owned\x07",
    "\u202egpj.exe",
    "line\nbreak",
    "__proto__",
    "constructor",
    "${window.reached=1}",
    "[bold]",
    "$\\frac{1}{0}$",
)


def hostile_runs(folder: Path) -> list[Path]:
    """Two runs of which every name is hostile: of procedures, programs, threads and jobs."""

    def steps(rank: int) -> list[Step]:
        chain = "/".join(HOSTILE_NAMES)
        return [
            ("main/" + chain, "cpu", 0.05 + 0.01 * rank),
            *((f"main/{name}", "cpu", 0.02 + 0.01 * rank) for name in HOSTILE_NAMES),
            (f"main/{HOSTILE_NAMES[0]}/k_{HOSTILE_NAMES[0]}", "blocked", 0.03),
        ]

    return [
        make(
            folder / f"hostile-{ranks}.db",
            {rank: steps(rank) for rank in range(ranks)},
            program=f"/opt/{HOSTILE_NAMES[0]}/{HOSTILE_NAMES[6]}",
            name=HOSTILE_NAMES[ranks % 3],
            job=HOSTILE_NAMES[0],
            seed=ranks,
        )
        for ranks in (2, 4)
    ]


@contextmanager
def served(*arguments: Path | str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A viewer's URL, token and all, and its process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hpcd", "view", "--no-browser", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.terminate()
        process.wait()


def ask(url: str, path: str, **headers: str) -> tuple[int, bytes]:
    """Status and body of what the viewer at ``url`` answers."""
    base, _, token = url.partition("#token=")
    request = urllib.request.Request(base + path, headers={"x-hpcd-token": token, **headers})
    try:
        with urllib.request.urlopen(request) as answer:
            body = answer.read()
            coding = answer.headers.get("content-encoding")
            if coding == "deflate":
                body = zlib.decompress(body)
            elif coding == "zstd":
                body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
            return answer.status, body
    except urllib.error.HTTPError as error:
        return error.code, error.read()
