"""Programs recorded from their start: how many call paths are whole, on a machine that hpcd has
never run on (cold) and on one where it has (warm), beside perf.

Rows of one kind alone: HPCD_BENCH_ONLY=stress python -m benchmarks from_start
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.whole import PerfResult, perf_whole
from benchmarks.workloads import HPCD, ROOT, Workload, build, hpcc, lammps, scratch, sized
from tests.support.lammps import ENVIRONMENT

_ONLY = "HPCD_BENCH_ONLY"
_TOOLS = ("mpirun", "lmp", "hpcc")
_STRESS = ("cpu", "vfork", "clone", "fork", "context", "futex", "io")
_STRESS_SECONDS = 3
_IMPORTS = "import json, decimal, asyncio, sqlite3, xml.dom.minidom, email, http.server, ctypes"
_PAGE = ["--dump-dom", "data:text/html,<h1>chromium</h1>"]
_FORKING = """
import hashlib, os, socket, socketserver
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        for _ in range(200):
            hashlib.sha256(self.request.recv(9, socket.MSG_PEEK) * 1000).digest()
        self.request.sendall(b"done")
with socketserver.ForkingTCPServer(("127.0.0.1", 0), Handler) as server:
    if not os.fork():
        for _ in range(500):
            with socket.create_connection(server.server_address) as connection:
                connection.sendall(b"some text")
                connection.recv(9)
        os._exit(0)
    for _ in range(500):
        server.handle_request()
"""
_MAKEFILE = """
.PHONY: all
all: {targets}
Makefile: ;
%.o: {source}
\tg++ -O2 -c -o $@ $<
"""


def workloads(folder: Path) -> list[Workload]:
    """Programs that start, fork, load code and end; of some the tools may be missing."""
    imports = ["/usr/bin/python3", "-c", _IMPORTS]
    if sized(False, True):
        return [Workload("python with imports", imports, folder)]
    (folder / "Makefile").write_text(
        _MAKEFILE.format(
            targets=" ".join(f"{number}.o" for number in range(4)),
            source=ROOT / "tests/programs/templates.cpp",
        )
    )
    go = folder / "goroutines"
    source = str(ROOT / "tests/programs/goroutines.go")
    subprocess.run(["go", "build", "-o", str(go), source], check=True)
    one_ms = [build(folder, "short.c"), "spawn", "5000", "300", "300"]
    commands = {
        "python with imports": imports,
        "make -j2 of C++": ["make", "-B", "-j2"],
        "5,000 programs of 1 ms": one_ms,
        "forking server": ["/usr/bin/python3", "-c", _FORKING],
        "coroutines of makecontext": [build(folder, "children.c"), "context", "2"],
        "dlopen loop": [build(folder, "loading.c"), "3"],
        "goroutines": [str(go), "2"],
        "chromium headless": ["chromium", "--headless", "--no-sandbox", "--disable-gpu", *_PAGE],
    }
    for name in _STRESS:
        words = [f"--{name}", "2", "-t", str(_STRESS_SECONDS), "--quiet"]
        commands[f"stress-ng --{name}"] = ["stress-ng", *words]
    return [
        lammps(folder, steps=300),
        hpcc(folder, size=1000),
        *(Workload(name, command, folder) for name, command in commands.items()),
    ]


def by_hpcd(workload: Workload, cache: Path) -> tuple[dict[str, Any], int]:
    """(summary, bytes on disk) of a recording from the start."""
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        output = Path(name) / "m"
        done = subprocess.run(
            [*HPCD, "run", "--json", "-o", str(output), "--", *workload.command],
            cwd=workload.folder,
            env={**ENVIRONMENT, "HPCD_CACHE": str(cache)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        summary = json.loads(done.stdout.splitlines()[-1])
        return summary, sum(file.stat().st_size for file in output.iterdir())


def share(summary: dict[str, Any]) -> str:
    """Format the share of call paths that are whole."""
    return f"{100 * summary['unwind']['complete'] / max(summary['unwind']['paths'], 1):.2f} %"


def run() -> Table:
    """The table."""
    table = Table(title="call paths that are whole, recorded from the start, 997 Hz")
    perf = ("perf -g", "CPU s", "bytes", "perf dwarf 8k", "CPU s", "bytes")
    for heading in ("program", "hpcd cold", "warm", "paths", "CPU s", "bytes", *perf,
                    "hpcd's truncated (cold; warm)"):  # fmt: skip
        table.add_column(heading, justify="left" if heading == "program" else "right")
    missing = []
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        folder = Path(name)
        for number, workload in enumerate(workloads(folder)):
            if os.environ.get(_ONLY, "") not in workload.name:
                continue
            if not all(map(shutil.which, _tools(workload))):
                missing.append(workload.name)
                continue
            cache = folder / f"cache-{number}"
            cold, _ = by_hpcd(workload, cache)
            warm, size = by_hpcd(workload, cache)
            pointers = perf_whole(workload, folder, "-g")
            copied = perf_whole(workload, folder, "--call-graph", "dwarf,8192")
            table.add_row(
                workload.name,
                share(cold),
                share(warm),
                f"{warm['unwind']['paths']:,}",
                f"{warm['overhead']['collector_cpu_s'] + warm['overhead']['bpf_s']:.1f}",
                f"{size / max(warm['samples']['recorded'], 1):.0f}",
                *_shown(pointers),
                *_shown(copied),
                "; ".join(
                    ", ".join(f"{n} {why}" for why, n in summary["unwind"]["truncated"].items())
                    for summary in (cold, warm)
                ),
            )
    if missing:
        table.caption = f"not installed: {', '.join(missing)}"
    return table


def _tools(workload: Workload) -> list[str]:
    """The programs that the command names."""
    return [word for word in workload.command if word in _TOOLS] or workload.command[:1]


def _shown(perf: PerfResult) -> tuple[str, str, str]:
    return f"{100 * perf.whole:.1f} %", f"{perf.cpu_s:.1f}", f"{perf.sample_bytes:.0f}"
