"""Checking a database, beside only reading it, and beside decompressing it too.

``python -m benchmarks.check [--ranks N] [--records N] [DATABASE]``. The peers do what no check can
do without: every byte of every file read, and every block of the trace decompressed, by as many
threads. They take turns with ``hpcd check``; all read from memory if the database fits it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import zstandard
from rich.console import Console
from rich.table import Table

from benchmarks.merge import make
from benchmarks.workloads import HPCD, scratch, sized
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.trace.part import Part
from hpcd.analysis.trace.part_format import HEADER
from hpcd.measurement.synthetic import Shape

_THREADS = len(os.sched_getaffinity(0))
_ROUNDS = sized(5, 1)


def read(database: Path) -> None:
    """Read all files, a MiB at a time."""

    def through(path: Path) -> None:
        buffer = bytearray(1 << 20)
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(through, [path for path in database.rglob("*") if path.is_file()]))


def decompress(database: Path) -> None:
    """Decompress all frames, and keep nothing of them."""

    def through(path: Path) -> None:
        frames = Part(path).frames
        data = memoryview(path.read_bytes())[HEADER.size :]
        decompressor = zstandard.ZstdDecompressor()
        for offset, size in zip(frames.offset.tolist(), frames.size.tolist(), strict=True):
            decompressor.decompress(data[offset : offset + size])

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(through, sorted((database / "trace").glob("*.part"))))


def checked(database: Path) -> int:
    """``hpcd check``; its peak memory in MiB, mapped files included."""
    process = subprocess.Popen([*HPCD, "check", str(database)], stdout=subprocess.DEVNULL)
    status = Path(f"/proc/{process.pid}/status")
    peak = 0
    while process.poll() is None:
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                peak = int(line.split()[1])
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit("hpcd check failed")
    return peak >> 10


def seconds(work: Callable[[Path], object], database: Path) -> float:
    """Return the duration of ``work``."""
    begin = time.perf_counter()
    work(database)
    return time.perf_counter() - begin


def measured(database: Path) -> Table:
    """The table of one database: medians of rounds that take turns."""
    size = sum(path.stat().st_size for path in database.rglob("*") if path.is_file())
    ours, reading, decompressing, peaks = [], [], [], []
    for _ in range(_ROUNDS):
        reading.append(seconds(read, database))
        decompressing.append(seconds(decompress, database))
        ours.append(seconds(lambda path: peaks.append(checked(path)), database))
    took, least, more = map(statistics.median, (ours, reading, decompressing))
    table = Table("GB", "seconds", "GB/s", "against reading", "against reading and decompressing",
                  "peak MB", title="hpcd check, shape mpi unless given")  # fmt: skip
    table.add_row(f"{size / 1e9:.2f}", f"{took:.1f}", f"{size / took / 1e9:.2f}",
                  f"{took / least:.1f} x", f"{took / (least + more):.2f} x",
                  f"{max(peaks)}")  # fmt: skip
    return table


def run(ranks: int = sized(256, 4), records: int = sized(300_000, 1000)) -> Table:
    """The table of a database that is made for it."""
    shape = Shape(ranks, records, ranks_per_node=max(ranks // 8, 1))
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        merge(make(Path(folder) / "m", shape), Path(folder) / "db", workers=_THREADS)
        return measured(Path(folder) / "db")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=sized(256, 4))
    parser.add_argument("--records", type=int, default=sized(300_000, 1000))
    parser.add_argument("database", type=Path, nargs="?", help="one that is there already")
    options = parser.parse_args()
    table = measured(options.database) if options.database else run(options.ranks, options.records)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
