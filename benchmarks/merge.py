"""Speed of merging shapes of real recordings, and how its cost grows.

``python -m benchmarks.merge [--records N] [--workers N] [--measurements N] [--shape NAME ...]``.

The first table has a row a shape (see :mod:`benchmarks.shapes`). Seconds depend on the machine and
what else runs on it: the peer of each is reading the same measurements without doing anything with
them (decompressing and decoding), in the same run. The second is many short measurements, as of a
build's processes or a node's segments. The third has ten times as many records, lines, contexts and
measurements, and the exponent of what that costs: 1 is linear.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks import shapes
from benchmarks.workloads import sized
from hpcd.analysis.merge.stages import merge
from hpcd.measurement.reader import open_measurement
from hpcd.measurement.segments import measurement_size
from hpcd.measurement.synthetic import Shape, Synthesizer


def make(folder: Path, shape: Shape, name: str = "mpi") -> list[Path]:
    """The measurements of ``shape`` in a new directory, grown from the recording ``name``."""
    synthesizer = Synthesizer(shape, shapes.source(name, shape.contexts))
    folder.mkdir()
    paths = [folder / f"node-{number}" for number in range(shape.measurements)]
    for number, path in enumerate(paths):
        synthesizer.write(path, number)
    return paths


def read(paths: list[Path]) -> float:
    """Seconds to decode all records of ``paths``."""
    begin = time.perf_counter()
    for path in paths:
        with open_measurement(path) as measurement:
            for part in measurement.record_chunks():
                len(part)
    return time.perf_counter() - begin


def timed(paths: list[Path], out: Path, workers: int) -> tuple[float, float, int]:
    """Seconds, bytes of the database, and peak memory (MB) of a worker, of one merge."""
    begin = time.perf_counter()
    peak = 0

    def watch(stage: str, done: int, total: int) -> None:
        nonlocal peak
        me = psutil.Process()
        for process in [me, *me.children(recursive=True)]:
            try:
                peak = max(peak, process.memory_info().rss)
            except psutil.Error:
                continue

    result = merge(paths, out, workers=workers, progress=watch)
    return time.perf_counter() - begin, result.bytes, peak >> 20


def by_shape(records: int, workers: int, names: list[str]) -> Table:
    """A row for each shape."""
    table = Table("shape", "lines", "records", "M records/s, one worker", "against reading alone",
                  f"{workers} workers against one", "bytes a record: measurement", "database",
                  "peak MB", title="hpcd merge")  # fmt: skip
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            shape = shapes.shape(name, records)
            paths = make(Path(folder) / "m", shape, name)
            total = shape.ranks * shape.records
            read(paths)
            alone = read(paths)
            one, size, peak = timed(paths, Path(folder) / "one", 1)
            more, _, _ = timed(paths, Path(folder) / "more", workers)
            recorded = sum(map(measurement_size, paths))
            table.add_row(name, f"{shape.ranks:,}", f"{total:,}", f"{total / one / 1e6:.1f}",
                          f"{one / alone:.2f} x", f"{one / more:.2f} x", f"{recorded / total:.2f}",
                          f"{size / total:.2f}", f"{peak}")  # fmt: skip
    return table


def spent(paths: list[Path], out: Path) -> float:
    """CPU seconds of a merge by one worker: of a busy machine the better measure of growth.

    Workers that are no child processes do not count: their CPU time cannot be read.
    """
    before = sum(os.times()[:4])
    merge(paths, out, workers=1)
    return sum(os.times()[:4]) - before


def many(measurements: int, workers: int) -> Table:
    """Many short measurements: what one costs, and what ten times as many do."""
    table = Table("shape", "lines x records", "measurements", "CPU ms each, one worker",
                  f"wall s, {workers} workers", "bytes a record: measurement", "database",
                  "exponent of ten times as many",
                  title="hpcd merge of short measurements")  # fmt: skip
    for name, lines, records in (("build", 4, 20), ("mpi", 48, 200)):
        few = max(measurements // 10, 1)
        before = 0.0
        for count in (few, measurements):
            with tempfile.TemporaryDirectory() as folder:
                shape = Shape(lines * count, records, ranks_per_node=lines)
                paths = make(Path(folder) / "m", shape, name)
                cpu = spent(paths, Path(folder) / "db")
                wall, merged, _ = timed(paths, Path(folder) / "more", workers)
                total = shape.ranks * shape.records
                recorded = sum(map(measurement_size, paths))
            exponent = (
                f"{math.log(cpu / before, count / few):.2f}" if count > few and before else ""
            )
            before = cpu
            table.add_row(name, f"{lines} x {records}", f"{count:,}", f"{cpu / count * 1e3:.1f}",
                          f"{wall:.1f}", f"{recorded / total:.1f}", f"{merged / total:.1f}",
                          exponent)  # fmt: skip
    return table


def growth(records: int) -> Table:
    """Compare the cost of ten times as much of everything, of the shape mpi."""
    table = Table("ten times as many", "CPU seconds", "ten times", "exponent",
                  title=f"growth, one worker, shape mpi, {records:,} records")  # fmt: skip
    base = Shape(96, records // 96, 10_000, ranks_per_node=24)
    grown = {
        "records": replace(base, records=base.records * 10),
        "lines": replace(base, ranks=base.ranks * 10, ranks_per_node=base.ranks_per_node * 10),
        "contexts": replace(base, contexts=base.contexts * 10),
        "measurements": replace(base, ranks=base.ranks * 10),
    }
    with tempfile.TemporaryDirectory() as folder:
        paths = make(Path(folder) / "m", base)
        # What is loaded once is not counted.
        spent(paths, Path(folder) / "first")
        small = spent(paths, Path(folder) / "db")
    for name, shape in grown.items():
        with tempfile.TemporaryDirectory() as folder:
            big = spent(make(Path(folder) / "m", shape), Path(folder) / "db")
            table.add_row(name, f"{small:.1f}", f"{big:.1f}", f"{math.log10(big / small):.2f}")
    return table


def run(records: int = sized(10_000_000, 20_000), workers: int = 2) -> Table:
    """The table of all shapes."""
    return by_shape(records, workers, list(shapes.NAMES))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=sized(10_000_000, 20_000))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--measurements", type=int, default=sized(2_000, 10))
    parser.add_argument("--shape", action="append", choices=shapes.NAMES)
    options = parser.parse_args()
    names = options.shape or list(shapes.NAMES)
    console = Console(width=140)
    console.print(by_shape(options.records, options.workers, names))
    if not options.shape:
        console.print(many(options.measurements, options.workers))
        console.print(growth(options.records // 10))


if __name__ == "__main__":
    main()
