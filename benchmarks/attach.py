"""How soon after attaching to a big process tree its call paths are whole."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.workloads import HPCD
from hpcd.measurement.reader import open_measurement
from hpcd.model import frame as frames

PROCESSES = 64
_CHILD = """
import numpy, ssl, sqlite3, lzma, bz2, decimal, ctypes, curses, readline, time, zlib, json, asyncio
import multiprocessing, xml.parsers.expat, hashlib, array, mmap, uuid, socket, select, random, csv
a = numpy.random.rand(60, 60)
while True:
    numpy.linalg.svd(a)
    time.sleep(0.5)
"""


def tree() -> subprocess.Popen[bytes]:
    """A shell with many children of about 40 modules each."""
    script = f"for i in $(seq {PROCESSES}); do /usr/bin/python3 -c '{_CHILD}' & done; wait"
    return subprocess.Popen(["sh", "-c", script], start_new_session=True)


def run() -> Table:
    """The table."""
    import os
    import signal

    parent = tree()
    try:
        time.sleep(20)  # two cores start 64 interpreters
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "m"
            begun = time.monotonic()
            done = subprocess.run(
                [*HPCD, "attach", "--json", "--pid", str(parent.pid), "-d", "6", "-o", str(path)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            summary = json.loads(done.stdout)
            first, last, whole, total = timeline(path)
            with open_measurement(path) as measurement:
                elf = [m for m in measurement.modules.values() if m.kind == "elf"]
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
    table = Table(title=f"attaching to {PROCESSES} processes of {len(elf)} modules")
    table.add_column("what")
    table.add_column("figure", justify="right")
    table.add_row("first sample, after the command's start", f"{first - begun:.2f} s")
    until = "none is truncated" if not last else f"{last - first:.2f} s"
    table.add_row("last truncated path, after the first sample", until)
    table.add_row("whole", f"{whole:,} of {total:,}")
    table.add_row("hpcd's CPU", f"{summary['overhead']['collector_cpu_s']} s")
    return table


def timeline(path: Path) -> tuple[float, float, int, int]:
    """(time of the first record, of the last truncated one, whole records, records), seconds."""
    with open_measurement(path) as measurement:
        top = measurement.cct.ancestor_at(1)
        marked = frames.is_marker(measurement.cct.frame)[top]
        first, last, whole, total = float("inf"), 0.0, 0, 0
        for part in measurement.record_chunks():
            bad = marked[part.node]
            first = min(first, float(part.time_ns.min()) / 1e9)
            if bad.any():
                last = max(last, float(part.time_ns[bad].max()) / 1e9)
            whole += int((~bad).sum())
            total += len(np.asarray(bad))
    return first, last, whole, total
