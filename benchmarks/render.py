"""Duration of drawing a picture, at any zoom of a trace of any length.

``python -m benchmarks.render [DB ...]``: 100 random windows of 2560 x 1600 pixels, whole trace to
0.1 ms. Without a database, of lines with 10^4, 10^5, 10^6 records each, grown
from a recording of an MPI program (see :mod:`benchmarks.shapes`). The peer is the plain way
in the same run: binary search of every pixel in uncompressed columns held in memory.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import hpcd.analysis
from benchmarks.merge import make
from benchmarks.workloads import sized
from hpcd.analysis.database import Database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.trace.pixel_samples import choose_lines, pixel_times
from hpcd.measurement.synthetic import Shape

HEIGHT, WIDTH = sized((1600, 2560), (160, 256))
WINDOWS = sized(100, 10)
# Lines the peer holds in memory, 12 bytes a record; all rows are drawn from these.
_PEER_LINES = 16


def windows(duration: int) -> list[tuple[int, int]]:
    """Random windows, their lengths evenly spread over all magnitudes."""
    random = np.random.default_rng(0)
    durations = []
    for _ in range(WINDOWS):
        span = int(10 ** random.uniform(5, np.log10(duration)))
        begin = int(random.integers(0, duration - span + 1))
        durations.append((begin, begin + span))
    return durations


def plain(
    columns: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]], t0: int, t1: int
) -> None:
    """A picture by binary search in plain columns."""
    times = pixel_times(t0, t1, WIDTH)
    for row in range(HEIGHT):
        time_column, node = columns[row % len(columns)]
        after = np.minimum(np.searchsorted(time_column, times), len(time_column) - 1)
        before = np.maximum(after - 1, 0)
        closer = times - time_column[before] <= time_column[after] - times
        node[np.where(closer, before, after)]


def measure(db: Database) -> list[str]:
    """A row: first picture, median, 95th percentile and slowest, and the peer's median."""
    lines = np.arange(HEIGHT) % len(db.lines) if len(db.lines) < HEIGHT else None
    begin = time.perf_counter()
    db.sample_grid(lines, 0, db.duration_ns, HEIGHT, WIDTH)
    first = time.perf_counter() - begin
    taken = []
    for t0, t1 in windows(db.duration_ns):
        begin = time.perf_counter()
        db.sample_grid(lines, t0, t1, HEIGHT, WIDTH)
        taken.append(time.perf_counter() - begin)
    selected = choose_lines(None, _PEER_LINES, len(db.lines)).tolist()
    columns = [(records.time, records.node) for records in map(db.records, selected)]
    peer = []
    for t0, t1 in windows(db.duration_ns)[::10]:
        begin = time.perf_counter()
        plain(columns, t0, t1)
        peer.append(time.perf_counter() - begin)
    middle = float(np.median(taken))
    return [f"{first:.3f}", f"{middle:.3f}", f"{np.percentile(taken, 95):.3f}",
            f"{max(taken):.3f}", f"{np.median(peer):.3f}",
            f"{middle / float(np.median(peer)):.2f} x"]  # fmt: skip


def run(databases: list[Path] | None = None, longest: int = sized(1_000_000, 10_000)) -> Table:
    """The table."""
    table = Table("lines", "records a line", "first", "median", "95 %", "slowest",
                  "plain search, in memory", "median against it",
                  title=f"pictures of {WIDTH} x {HEIGHT} pixels, seconds; shape mpi")  # fmt: skip
    for path in databases or []:
        with hpcd.analysis.open(path) as db:
            per_line = len(db.trace) // max(len(db.lines), 1)
            table.add_row(f"{len(db.lines):,}", f"{per_line:,}", *measure(db))
    records = 10_000
    while not databases and records <= longest:
        with tempfile.TemporaryDirectory() as folder:
            paths = make(Path(folder) / "m", Shape(16, records, ranks_per_node=8))
            merge(paths, Path(folder) / "db")
            with hpcd.analysis.open(Path(folder) / "db") as db:
                table.add_row("16", f"{records:,}", *measure(db))
        records *= 10
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("databases", nargs="*", type=Path)
    parser.add_argument("--longest", type=int, default=1_000_000, help="records of a line")
    options = parser.parse_args()
    Console(width=140).print(run(options.databases, options.longest))


if __name__ == "__main__":
    main()
