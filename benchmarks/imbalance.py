"""Imbalance made on purpose between four MPI ranks, as each rank's time before and in a barrier."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import scratch, sized
from tests.support.waiting import Recorder, seconds_by_process

STEPS, MS = sized(50, 3), 10
WARM_UP_SECONDS = sized(4, 1)
PROGRAM = Path(__file__).resolve().parent.parent / "tests" / "programs" / "imbalance.c"
LAUNCHERS = {
    "openmpi": ["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root"],
    "mpich": ["mpirun.mpich"],
}


def run() -> Table:
    """The table: recorded / truth in seconds. Time in the barrier is all of it, busy or not."""
    table = Table(title=f"4 ranks, {STEPS} steps of {MS}, {2 * MS}, {3 * MS}, {4 * MS} ms of work")
    for heading in ("MPI", "rank", "work on a CPU", "barrier", "of it busy", "blocked", "runnable"):
        table.add_column(heading, justify="left" if heading == "MPI" else "right")
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        for kind, launcher in sized([*LAUNCHERS.items()], [*LAUNCHERS.items()][:1]):
            for row in measure(Path(name), kind, launcher):
                table.add_row(*row)
    return table


def measure(folder: Path, kind: str, launcher: list[str]) -> list[list[str]]:
    """The rows of one MPI."""
    program = folder / f"imbalance-{kind}"
    subprocess.run([f"mpicc.{kind}", "-O2", "-o", program, PROGRAM], check=True)
    process = subprocess.Popen(
        [*launcher, "-n", "4", program, str(STEPS), str(MS)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout
    process.stdout.readline()
    # An MPI's many libraries are analysed once; paths through them end early until they are.
    Recorder(folder / f"{kind}-before", "-p", process.pid, "-d", WARM_UP_SECONDS).wait()
    recorder = Recorder(folder / kind, "-p", process.pid)
    out, _ = process.communicate()
    recorder.wait()
    truths = sorted(
        (json.loads(line) for line in out.splitlines() if line.startswith("{")),
        key=lambda truth: truth["rank"],
    )
    seconds = seconds_by_process(folder / kind, program)
    rows = []
    for truth in truths:
        recorded = seconds[truth["pid"]]
        barrier = recorded["meet"]
        parts = [barrier[f"{metric}_time"] for metric in ("cpu", "blocked", "runnable")]
        rows.append([
            kind,
            str(truth["rank"]),
            f"{recorded['compute']['cpu_time']:.3f} / {truth['cpu_s']:.3f}",
            f"{sum(parts):.3f} / {truth['barrier_s']:.3f}",
            *(f"{part:.3f}" for part in parts),
        ])  # fmt: skip
    return rows
