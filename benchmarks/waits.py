"""Known waits against what is recorded of them: seconds below each function of waits.c."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import build, scratch, sized
from tests.support.waiting import Recorder, seconds_by_function, started

ROUNDS, MS = sized(40, 2), 25


def run() -> Table:
    """The table. "of all" is the time by the clock that no metric knows of."""
    table = Table(title=f"{ROUNDS} rounds of {MS} ms each way; recorded / truth in seconds")
    for heading in ("function", "on a CPU", "blocked", "runnable", "sum", "off by"):
        table.add_column(heading, justify="left" if heading == "function" else "right")
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        folder = Path(name)
        program = build(folder, "waits.c")
        process = started(program, ROUNDS, MS, folder / "file")
        recorder = Recorder(folder / "m", "-p", process.pid)
        out, _ = process.communicate()
        recorder.wait()
        seconds = seconds_by_function(folder / "m", program)
    for truth in map(json.loads, out.splitlines()):
        measured = seconds[truth["function"]]
        pairs = [
            (measured[f"{metric}_time"], truth[f"{metric}_s"])
            for metric in ("cpu", "blocked", "runnable")
        ]
        total = sum(recorded for recorded, _ in pairs)
        table.add_row(
            truth["function"],
            *(f"{recorded:.4f} / {real:.4f}" for recorded, real in pairs),
            f"{total:.4f} / {truth['wall_s']:.4f}",
            f"{100 * (total / truth['wall_s'] - 1):+.2f}%",
        )
    return table
