"""Cost of a recorded system call, and of a recorded request to io_uring, beside other tools."""

from __future__ import annotations

import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import HPCD, build, scratch, sized

CALLS = sized(1_000_000, 2_000)
# strace takes 50 times as long.
FEWER = sized(50_000, 500)

_BPFTRACE = """
tracepoint:syscalls:sys_enter_pread64 /comm == "reads"/ { @began[tid] = nsecs; }
tracepoint:syscalls:sys_exit_pread64 /@began[tid]/ {
    @bytes[ustack] = sum(args->ret); @ns[ustack] = hist(nsecs - @began[tid]); delete(@began[tid]);
}
"""


# Of io_uring: a request's end is told on the thread that asked, of reads from the page cache.
_BPFTRACE_REQUESTS = """
tracepoint:io_uring:io_uring_submit_req /comm == "uring_reads"/ { @began[args->req] = nsecs; }
tracepoint:io_uring:io_uring_complete /@began[args->req]/ {
    @bytes[ustack] = sum(args->res); @ns[ustack] = hist(nsecs - @began[args->req]);
    delete(@began[args->req]);
}
"""


def run() -> Table:
    """The table: CPU time a call of pread(2), and a request to io_uring, of the program and of
    program and tool together."""
    table = Table(title=f"{CALLS:,} reads of 64 bytes each: CPU time a call, or a request")
    table.add_column("tool")
    for heading in ("program", "with the tool", "times as long"):
        table.add_column(heading, justify="right")
    table.add_column("what it keeps")
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        folder = Path(name)
        rest: list[tuple[str, list[str], int, str]] = [
            ("perf trace", ["perf", "trace", "-o", str(folder / "perf"), "-e", "pread64"], FEWER,
             "every call as text, without paths"),
            ("strace", ["strace", "-y", "-o", str(folder / "strace"), "-e", "trace=pread64"], FEWER,
             "every call as text, without paths"),
        ]  # fmt: skip
        for what, source, script, more in (
            ("pread", "reads.c", _BPFTRACE, rest),
            ("io_uring", "uring_reads.c", _BPFTRACE_REQUESTS, []),
        ):
            _add_rows(table, what, [build(folder, source), "/etc/passwd"], script, more, folder)
            table.add_section()
    return table


def _add_rows(
    table: Table, what: str, program: list[str], script: str,
    others: list[tuple[str, list[str], int, str]], folder: Path,
) -> None:  # fmt: skip
    record = [*HPCD, "run", "-o"]
    tools: list[tuple[str, list[str], int, str]] = [
        ("none", [], CALLS, ""),
        ("hpcd run", [*record, str(folder / f"{what}-plain"), "--"], CALLS, "samples, waits"),
        ("hpcd run --io", [*record, str(folder / f"{what}-io"), "--io", "--"], CALLS,
         "every call: file, bytes, time, call path"),
        ("bpftrace", ["bpftrace", "-q", "-e", script, "-c"], CALLS,
         "bytes and a histogram by call path"),
        *others,
    ]  # fmt: skip
    alone = 0.0
    for tool, prefix, calls, kept in tools:
        if prefix and not shutil.which(prefix[0]):
            continue
        command = [*program, str(calls)]
        if tool == "bpftrace":
            command = [" ".join(command)]
        measured = _measure([*prefix, *command], calls)
        if measured is None:
            table.add_row(f"{what}: {tool}", "-", "-", "-", "does not work here")
            continue
        own, together = measured
        alone = alone or own
        table.add_row(
            f"{what}: {tool}", f"{own:,.0f} ns", f"{together:,.0f} ns", f"{own / alone:.1f}", kept
        )


def _measure(command: list[str], calls: int) -> tuple[float, float] | None:
    """CPU ns a call, as the program says and of all that ran; None: the tool failed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    numbers = [line for line in done.stdout.splitlines() if line.replace(".", "", 1).isdigit()]
    if done.returncode or not numbers:
        return None
    own, together = float(numbers[0]), used / calls * 1e9
    # perf does not wait for the program: its time is not among the children's.
    return own, together if together > own else together + own
