"""Cost of recording the heap, a block that is allocated and freed, beside other tools."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import HPCD, build, scratch, sized

BLOCKS, ROUNDS = sized(1_000_000, 2000), sized(3, 1)
SIZES = (64, 4096)
_PRELOADED = "LD_PRELOAD=libjemalloc.so.2"
_TRAPS = "uprobe:libc:malloc { @m = count(); } uprobe:libc:free { @f = count(); }"


def run() -> Table:
    """The table: CPU time of the program, a block; the median of the rounds, which take turns."""
    table = Table(title=f"{BLOCKS:,} blocks allocated and freed: CPU time of the program, a block")
    table.add_column("tool")
    for size in SIZES:
        table.add_column(f"{size:,} bytes", justify="right")
    table.add_column("what it keeps")
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        folder = Path(name)
        program = build(folder, "allocates.c")
        tools = [tool for tool in _tools(folder) if tool[1] is None or shutil.which(tool[1][0])]
        times: dict[tuple[str, int], list[float]] = {}
        for number in range(ROUNDS):
            for tool, prefix, _ in tools:
                for size in SIZES:
                    words = [part.replace("ROUND", f"{number}-{size}") for part in prefix or []]
                    took = _block_ns(words, [program, str(BLOCKS), str(size)])
                    times.setdefault((tool, size), []).append(took)
        for tool, _, kept in tools:
            figures = [f"{statistics.median(times[tool, size]):,.0f} ns" for size in SIZES]
            table.add_row(tool, *figures, kept)
    return table


def _tools(folder: Path) -> list[tuple[str, list[str] | None, str]]:
    jemalloc = ["env", _PRELOADED]
    profile = f"MALLOC_CONF=prof:true,prof_final:true,prof_prefix:{folder}/jeprof"
    record = [*HPCD, "run", "--json-file", "/dev/null", "-o"]
    return [
        ("none", None, ""),
        ("hpcd run", [*record, f"{folder}/plain-ROUND", "--"], "samples, waits"),
        ("hpcd run --heap", [*record, f"{folder}/heap-ROUND", "--heap", "--"],
         "a sample by bytes, from 16 KB, with call paths and frees"),
        ("bpftrace", ["bpftrace", "-q", "-e", _TRAPS, "-c"], "counts: the traps alone"),
        ("heaptrack", ["heaptrack", "-o", f"{folder}/heaptrack-ROUND"],
         "every block with its call path; relaunched, preloaded"),
        ("jemalloc", jemalloc, "nothing"),
        ("jemalloc prof, 16 KB", [*jemalloc, f"{profile},lg_prof_sample:14"],
         "a sample by bytes with call paths; relaunched, another allocator"),
        ("jemalloc prof, 512 KB", [*jemalloc, profile], "the same, its usual rate"),
    ]  # fmt: skip


def _block_ns(prefix: list[str], command: list[str]) -> float:
    """CPU ns a block, as the program says; NaN: the tool failed."""
    if prefix[:1] == ["bpftrace"]:
        command = [" ".join(command)]
    done = subprocess.run([*prefix, *command], capture_output=True, text=True)
    numbers = [line for line in done.stdout.splitlines() if line.isdigit()]
    return float(numbers[0]) if numbers and not done.returncode else float("nan")
