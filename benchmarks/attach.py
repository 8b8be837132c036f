"""Time from attaching to a big process tree until its call paths are whole."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from rich.table import Table

from benchmarks.workloads import HPCD, sized
from hpcd.measurement.reader import open_measurement
from hpcd.model import frame as frames
from hpcd.model.codes import UnwindStatus
from hpcd.model.unwind_status import was_walked

PROCESSES = sized(64, 2)
# Seconds that two cores take to start the interpreters, and that they are watched.
START_SECONDS, SECONDS = sized((20, 6), (1, 1))
LOADERS = sized(("object", "bcc"), ("object",))
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
    parent = tree()
    try:
        time.sleep(START_SECONDS)
        figures = [_attach(parent.pid, loader) for loader in LOADERS]
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
    table = Table(title=f"attaching to {PROCESSES} processes of {figures[0]['modules']} modules")
    table.add_column("what")
    for loader in LOADERS:
        table.add_column(loader, justify="right")
    for what in figures[0]:
        table.add_row(what, *(figure[what] for figure in figures))
    return table


def _attach(pid: int, loader: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "m"
        begun = time.monotonic()
        command = [*HPCD, "attach", "--json", "--loader", loader, "-d", str(SECONDS)]
        with psutil.Popen(
            [*command, "--pid", str(pid), "-o", path], stdout=subprocess.PIPE
        ) as recorder:
            memory = {"VmRSS": 0, "VmHWM": 0}
            while recorder.poll() is None:
                memory = _memory(recorder.pid) or memory
                time.sleep(0.1)
            summary = json.loads(recorder.stdout.read())
        first, last, whole, total = timeline(path)
        with open_measurement(path) as measurement:
            elf = [m for m in measurement.modules.values() if m.kind == "elf"]
    reasons = summary["unwind"]["truncated"]
    until = "none is truncated" if not last else f"{last - first:.2f} s"
    return {
        "modules": f"{len(elf)}",
        "first sample, after the command's start": f"{first - begun:.2f} s",
        "last truncated path, after the first sample": until,
        "whole": f"{whole / total:.2%} of {total:,}",
        "truncated": "\n".join(f"{number} {why}" for why, number in reasons.items()),
        "hpcd's CPU": f"{summary['overhead']['collector_cpu_s']} s",
        "hpcd's resident memory": f"{memory['VmRSS'] / 1024:.0f} MB",
        "at most, as it starts": f"{memory['VmHWM'] / 1024:.0f} MB",
    }


def _memory(pid: int) -> dict[str, int]:
    """Return a process's resident memory and its peak, KiB; empty when it has ended."""
    status = Path(f"/proc/{pid}/status").read_text()
    return {name: int(size) for name, size in re.findall(r"(VmRSS|VmHWM):\s+(\d+)", status)}


def timeline(path: Path) -> tuple[float, float, int, int]:
    """(time of the first record, of the last truncated one, whole records, records), seconds."""
    with open_measurement(path) as measurement:
        top = measurement.cct.ancestor_at(1)
        frame = measurement.cct.frame
        unseen = [status for status in UnwindStatus if not was_walked(status)]
        marked = frames.is_marker(frame) & ~np.isin(frames.offset_of(frame), unseen)
        marked = marked[top]
        first, last, whole, total = float("inf"), 0.0, 0, 0
        for part in measurement.record_chunks():
            bad = marked[part.node]
            first = min(first, float(part.time_ns.min()) / 1e9)
            if bad.any():
                last = max(last, float(part.time_ns[bad].max()) / 1e9)
            whole += int((~bad).sum())
            total += len(np.asarray(bad))
    return first, last, whole, total
