"""How merging grows: with records, ranks and contexts; and what a second worker gives.

``python -m benchmarks.merge [--records N] [--workers N]``. Seconds depend on the machine and what
else runs on it: the peer of each is reading the same measurements without doing anything with them
(decompressing and decoding), in the same run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.workloads import sized
from hpcd.analysis.merge.stages import merge
from hpcd.measurement.reader import open_measurement
from hpcd.measurement.synthetic import Shape, built_in_source, synthesize


def make(folder: Path, shape: Shape) -> list[Path]:
    """The measurements of ``shape`` in a new directory."""
    source = built_in_source(shape.contexts)
    folder.mkdir()
    paths = [folder / f"node-{number}" for number in range(shape.measurements)]
    for number, path in enumerate(paths):
        synthesize(path, shape, source, number)
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
    """Seconds, bytes a record, and peak memory (MB) of a worker, of one merge."""
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
    return time.perf_counter() - begin, result.bytes / max(result.records, 1), peak >> 20


def run(records: int = sized(10_000_000, 10_000), workers: int = 2) -> Table:
    """The table of all shapes."""
    table = Table("shape", "records", "M records/s, one worker", "against reading alone",
                  f"{workers} workers against one", "bytes a record", "peak MB",
                  title="hpcd merge")  # fmt: skip
    shapes = [
        (f"{count:,} records", Shape(96, count // 96, 4000, ranks_per_node=24))
        for count in (records // 10, records, records * 10)
    ]
    shapes += [
        (
            f"{ranks:,} ranks",
            Shape(ranks, records // ranks, 4000, ranks_per_node=max(ranks // 4, 1)),
        )
        for ranks in sized((8, 1000, 10_000), (8,))
    ]
    shapes += [
        (f"{contexts:,} contexts", Shape(96, records // 96, contexts, ranks_per_node=24))
        for contexts in sized((400, 40_000), (400,))
    ]
    for name, shape in shapes:
        with tempfile.TemporaryDirectory() as folder:
            paths = make(Path(folder) / "m", shape)
            total = shape.ranks * shape.records
            read(paths)
            alone = read(paths)
            one, size, peak = timed(paths, Path(folder) / "one", 1)
            more, _, _ = timed(paths, Path(folder) / "more", workers)
            table.add_row(name, f"{total:,}", f"{total / one / 1e6:.1f}", f"{one / alone:.2f} x",
                          f"{one / more:.2f} x", f"{size:.2f}", f"{peak}")  # fmt: skip
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=sized(10_000_000, 10_000))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    Console(width=140).print(run(options.records, options.workers))


if __name__ == "__main__":
    main()
