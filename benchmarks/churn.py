"""Everything that comes and goes at once: threads, forks, execs, load modules; who is missed?

python -m benchmarks churn              60 s of 2,000 threads, 200 forks/s, 500 dlopen/s
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.workloads import HPCD, build, scratch, sized
from hpcd.measurement.reader import Measurement, open_measurement
from hpcd.model import frame as frames
from hpcd.model.codes import UnwindStatus
from hpcd.model.unwind_status import UNWIND_LABELS
from tests.support.waiting import started

SECONDS, THREADS, FORKS, LOADS = sized((60, 2000, 200, 500), (2, 20, 20, 20))
PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "programs"


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of a recorder in MB: its own, and its maps' in the kernel; its descriptors."""

    own: float
    maps: float
    descriptors: int


def footprint(pid: int) -> Footprint:
    """Return what process ``pid`` holds now. The kernel reports the true size of each map (6.4)."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = re.search(r"VmRSS:\s+(\d+) kB", status)
    maps = 0
    names = os.listdir(f"/proc/{pid}/fdinfo")  # noqa: PTH208
    for name in names:
        try:
            info = Path(f"/proc/{pid}/fdinfo/{name}").read_text()
        except OSError:
            continue
        held = re.search(r"^memlock:\s+(\d+)", info, re.MULTILINE)
        if held and "map_type" in info:
            maps += int(held[1])
    return Footprint(int(resident[1]) / 1e3 if resident else 0.0, maps / 1e6, len(names))


def run() -> Table:
    """The table: what was requested, what came of it, what it cost."""
    table = Table(title=f"{SECONDS} s: {THREADS} threads, {FORKS} forks/s, {LOADS} dlopen/s")
    table.add_column("")
    table.add_column("", justify="right")
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        folder = Path(name)
        library = folder / "libloaded.so"
        subprocess.run(
            ["gcc", "-O2", "-shared", "-fPIC", "-o", library, PROGRAMS / "loaded.c"], check=True
        )
        program = build(folder, "churn.c")
        for row in measure(folder / "m", program, library):
            table.add_row(*row)
    return table


def measure(output: Path, program: str, library: Path) -> list[tuple[str, str]]:
    """Record one run of churn; the rows."""
    process = started(program, SECONDS, THREADS, FORKS, LOADS, library)
    recorder = subprocess.Popen(
        [*HPCD, "attach", "--json", "-o", output, "-p", str(process.pid)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert recorder.stderr
    assert process.stdin
    recorder.stderr.readline()
    held = [footprint(recorder.pid)]
    process.stdin.close()
    tick = threading.Event()
    while process.poll() is None:
        tick.wait(SECONDS / 6)
        held.append(footprint(recorder.pid))
    assert process.stdout
    truth = json.loads(process.stdout.read())
    out, error = recorder.communicate()
    assert recorder.returncode == 0, error
    summary = json.loads(out)
    samples = summary["samples"]
    with open_measurement(output) as measurement:
        cut, unknown = truncated(measurement)
        processes = len(measurement.processes)
        threads = len(measurement.threads)
        loaded = [m for m in measurement.modules.values() if m.path == str(library)]
    forks = truth["forks"]
    return [
        ("forked, of them seen", f"{forks + 1:,}, {processes - 1:,}"),
        ("threads started, of them seen", f"{truth['threads'] + forks + 1:,}, {threads:,}"),
        ("dlopen, load modules made of them", f"{truth['loads']:,}, {len(loaded)}"),
        ("samples taken, dropped", f"{samples['taken']:,}, {sum(samples['dropped'].values()):,}"),
        ("samples expected", f"{samples['expected']:,}"),
        *_rows("CPU samples", cut[0], unknown[0]),
        *_rows("waits", cut[1], unknown[1]),
        ("recorder's memory, MB", " → ".join(f"{sizes.own:.0f}" for sizes in held[:-1])),
        ("its maps' in the kernel, MB", " → ".join(f"{sizes.maps:.1f}" for sizes in held[:-1])),
        ("its descriptors", f"{held[0].descriptors} → {held[-2].descriptors}"),
        ("recorder's CPU, in the kernel", "{collector_cpu_s:.1f} s, {bpf_s:.1f} s".format(
            **summary["overhead"])),
        ("churn's own CPU", f"{truth['cpu_s']:.1f} s in {truth['wall_s']:.1f} s"),
    ]  # fmt: skip


def truncated(measurement: Measurement) -> tuple[list[Counter[str]], list[int]]:
    """Records by why their path was cut short ("" for whole ones), and how many ran in code of
    which nothing is known; first of CPU samples, then of waits."""
    cct, size = measurement.cct, len(measurement.cct)
    sampled = np.array([n for n, e in measurement.events.items() if e.metric == "cpu_time"])
    counts = np.zeros((2, size), np.int64)
    for part in measurement.record_chunks():
        waiting = (~np.isin(part.event, sampled)).astype(np.int64)
        counts += np.bincount(waiting * size + part.node, minlength=2 * size).reshape(2, size)
    # The innermost user frame of a path is the last that is not the kernel's.
    raw = ~frames.is_module(cct.frame) & ~frames.is_marker(cct.frame)
    raw[0] = False
    for node in range(1, size):
        raw[node] |= raw[cct.parent[node]]
    root = cct.ancestor_at(1)
    reasons = [Counter[str](), Counter[str]()]
    for kind in (0, 1):
        tops = np.bincount(root, counts[kind], minlength=size).astype(np.int64)
        for node in np.flatnonzero(tops).tolist():
            frame = cct.frame[node : node + 1]
            marked = bool(frames.is_marker(frame)[0])
            reasons[kind][UNWIND_LABELS[UnwindStatus(int(frame[0]) & 0xFF)] if marked else ""] += (
                int(tops[node])
            )
    return reasons, [int(row[raw].sum()) for row in counts]


def _rows(kind: str, reasons: Counter[str], unknown: int) -> list[tuple[str, str]]:
    total = max(sum(reasons.values()), 1)
    return [
        (f"{kind}, of them in unknown modules",
         f"{total:,}, {unknown:,} ({100 * unknown / total:.3f}%)"),
        *(("  " + label, f"{number:,}") for label, number in reasons.most_common() if label),
    ]  # fmt: skip
