"""Time until the call paths of a new process are whole, if its program has run before."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.table import Table

from benchmarks.workloads import HPCD, build, sized
from hpcd.measurement.reader import Measurement, open_measurement
from hpcd.model import frame as frames

Floats = npt.NDArray[np.float64]

PROCESSES = sized(100, 2)
FREQUENCY = 9973
# One after another, the machine idle in between; the first ones make the program known.
_PARENT = """
import subprocess, sys, time
for _ in range(int(sys.argv[2])):
    subprocess.run([sys.argv[1], "0.1", "1"], stdout=subprocess.DEVNULL, check=True)
    time.sleep(0.1)
"""
_KNOWN_AFTER = 5


def run() -> Table:
    """The table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build(folder, "paths.c")
        output = folder / "m"
        subprocess.run(
            [*HPCD, "run", "--frequency", str(FREQUENCY), "-o", str(output), "--",
             sys.executable, "-c", _PARENT, program, str(PROCESSES + _KNOWN_AFTER)],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        with open_measurement(output) as measurement:
            ready, lost = latencies(measurement, program)
    ready, lost = ready[_KNOWN_AFTER:], lost[_KNOWN_AFTER:]
    table = Table(title=f"{len(ready)} new processes of a known program, one at a time")
    table.add_column("")
    for heading in ("median", "95 %", "most"):
        table.add_column(heading, justify="right")
    for what, values, unit in (
        ("first whole path, after the fork", ready * 1e3, "ms"),
        (f"truncated paths until then, at {FREQUENCY} Hz", lost, ""),
    ):
        percentiles = np.percentile(values, (50, 95, 100)).tolist()
        table.add_row(what, *(f"{percentile:.1f} {unit}" for percentile in percentiles))
    return table


def latencies(measurement: Measurement, program: str) -> tuple[Floats, Floats]:
    """For each process of ``program`` in order: seconds from its fork to the first sample of its
    main thread in it that is whole and followed by no truncated one; how many are truncated."""
    cct = measurement.cct
    truncated = frames.is_marker(cct.frame)[cct.ancestor_at(1)]
    own = [number for number, module in measurement.modules.items() if module.path == program]
    inside = np.isin(frames.module_of(cct.frame), own)
    for node in range(1, len(cct)):
        inside[node] |= inside[cct.parent[node]]
    ours = {number: p.pid for number, p in measurement.processes.items() if p.exe == program}
    records = [
        (np.repeat(part.line, np.diff(part.start))[sampled], part.time_ns[sampled],
         part.node[sampled])
        for part in measurement.record_chunks()
        for sampled in [part.event == 0]
    ]  # fmt: skip
    line, time, node = (np.concatenate(columns) for columns in zip(*records, strict=True))
    ready, lost = [], []
    for number, thread in sorted(measurement.threads.items()):
        if ours.get(thread.process) != thread.tid:
            continue
        at, path = time[line == number], node[line == number]
        cut = at[truncated[path]]
        good = at[inside[path] & ~truncated[path] & (at > cut.max(initial=0))]
        ready.append((int(good.min()) - thread.start_ns) / 1e9 if len(good) else np.inf)
        lost.append(len(cut))
    return np.array(ready), np.array(lost, float)
