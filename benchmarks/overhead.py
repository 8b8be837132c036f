"""What sampling costs the sampled program: paired runs, with and without, beside perf record."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import ENVIRONMENT, HPCD, Workload, lammps

RUNS = 5


def cpu_of(workload: Workload, *prefix: str) -> float:
    """CPU seconds of the workload's own processes, the recorder's left out.

    The workload writes them itself: a shell that waits for it prints what its children used.
    """
    with tempfile.NamedTemporaryFile("r") as result:
        timed = ["bash", "-c", 'TIMEFORMAT="%U %S"; { time "$@" >/dev/null 2>&1; } 2>"$0"',
                 result.name, *workload.command]  # fmt: skip
        subprocess.run(
            [*prefix, *timed], cwd=workload.folder, env=ENVIRONMENT, check=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        return sum(float(part) for part in result.read().split())


def run() -> Table:
    """The table: medians of the ratios of neighbouring runs."""
    table = Table(title=f"CPU time of lammps (2 ranks) while recorded at 997 Hz, {RUNS} pairs each")
    for heading in ("recorder", "median ratio to bare", "least", "most", "bytes written"):
        table.add_column(heading, justify="left" if heading == "recorder" else "right")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        workload = lammps(folder)
        output = folder / "out"
        recorders = {
            "hpcd": [*HPCD, "run", "-o", str(output), "--"],
            "perf record -g": ["perf", "record", "-q", "-e", "cpu-clock", "-F", "997", "-g", "-o",
                               str(output), "--"],
            "perf record dwarf": ["perf", "record", "-q", "-e", "cpu-clock", "-F", "997",
                                  "--call-graph", "dwarf,8192", "-o", str(output), "--"],
        }  # fmt: skip
        cpu_of(workload)
        for label, prefix in recorders.items():
            ratios = []
            size = 0
            for _ in range(RUNS):
                subprocess.run(["rm", "-rf", str(output)], check=True)
                with_it = cpu_of(workload, *prefix)
                files = [output] if output.is_file() else list(output.iterdir())
                size = sum(file.stat().st_size for file in files)
                ratios.append(with_it / cpu_of(workload))
            table.add_row(
                label,
                f"{statistics.median(ratios):.3f}",
                f"{min(ratios):.3f}",
                f"{max(ratios):.3f}",
                f"{size:,}",
            )
    return table
