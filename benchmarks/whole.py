"""Share of call paths that are whole: hpcd, and perf with frame pointers and with copied stacks."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import Workload, hpcd_attach, real_programs
from tests.support.lammps import ENVIRONMENT

# Frames a whole user call path begins with.
_ROOTS = ("_start", "clone", "clone3", "__clone", "__clone3", "__libc_start_main",
          "__libc_start_main@@GLIBC_2.34", "__libc_start_main_impl")  # fmt: skip


# Runs a command and leaves its CPU time, and that of what it started, in the file it is given.
_TIMED = 'file="$1"; shift; "$@"; times > "$file"'


@dataclass(frozen=True)
class PerfResult:
    """The outcome of a recording by perf."""

    whole: float
    """Share of the user samples whose path reaches the thread's start."""
    sample_bytes: float
    """Bytes a sample."""
    cpu_s: float
    """CPU seconds of perf itself while it recorded."""


def perf_whole(workload: Workload, folder: Path, *graph: str) -> PerfResult:
    """Record ``workload`` with perf from its start, stacks by ``graph``."""
    data, times = folder / "perf.data", folder / "times"
    perf = subprocess.Popen(
        ["perf", "record", "-q", "-e", "cpu-clock:u", "-F", "997", *graph, "-o", str(data), "--",
         "sh", "-c", _TIMED, "sh", str(times), *workload.command],
        cwd=workload.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _, status, used = os.wait4(perf.pid, 0)
    perf.returncode = os.waitstatus_to_exitcode(status)
    if perf.returncode:
        raise subprocess.CalledProcessError(perf.returncode, perf.args)
    # What perf has waited for counts as its own.
    cpu_s = used.ru_utime + used.ru_stime - _seconds(times.read_text())
    script = subprocess.Popen(
        ["perf", "script", "-i", str(data), "-F", "ip,sym", "--no-inline"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    total = whole = 0
    path: list[str] = []
    assert script.stdout
    for line in script.stdout:
        if line.strip():
            path.append(line)
        elif path:
            total += 1
            # A stripped program's _start has no name, but its caller-to-be in libc has.
            whole += any(line_symbol(address) in _ROOTS for address in path[-3:])
            path = []
    script.wait()
    size = data.stat().st_size
    data.unlink()
    return PerfResult(whole / total if total else 0.0, size / max(total, 1), cpu_s)


def _seconds(times: str) -> float:
    """The sum of what a shell's ``times`` printed, as in ``0m1.250s``."""
    parts = re.findall(r"(\d+)m([\d.]+)s", times)
    return sum(60 * int(minutes) + float(seconds) for minutes, seconds in parts)


def line_symbol(line: str) -> str:
    """The symbol of a line of ``perf script``."""
    parts = line.split()
    return parts[1].split("+")[0] if len(parts) > 1 else ""


def run() -> Table:
    """The table."""
    table = Table(title="user call paths that reach the thread's start, 997 Hz")
    for heading in ("program", "hpcd", "samples", "bytes", "perf -g", "bytes",
                    "perf dwarf 8k", "bytes", "hpcd's truncated"):  # fmt: skip
        table.add_column(heading, justify="left" if heading == "program" else "right")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for workload in real_programs(folder):
            summary, size = hpcd_attach(workload)
            taken = summary["samples"]["recorded"]
            unwind = summary["unwind"]
            pointers = perf_whole(workload, folder, "-g")
            copied = perf_whole(workload, folder, "--call-graph", "dwarf,8192")
            table.add_row(
                workload.name,
                f"{100 * unwind['complete'] / unwind['paths']:.2f} %",
                f"{taken:,}",
                f"{size / taken:.1f}",
                f"{100 * pointers.whole:.1f} %",
                f"{pointers.sample_bytes:.0f}",
                f"{100 * copied.whole:.1f} %",
                f"{copied.sample_bytes:.0f}",
                ", ".join(f"{n} {why}" for why, n in unwind["truncated"].items()),
            )
    return table
