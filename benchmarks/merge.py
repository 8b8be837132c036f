"""Merge throughput and render time on synthetic measurements.

``python -m benchmarks.merge [--records N]`` prints a table; :func:`measure` returns the figures.
Seconds depend on the machine and what else runs on it: compare them only with each other.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import hpcd.analysis
from hpcd.analysis.merge import merge
from hpcd.analysis.report import Outline
from hpcd.analysis.views import VIEWS, make_view
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame
from hpcd.model.identity import Event, Module, ModuleKind, Node, Process, Thread

_START = 10**12
_PERIOD = 1_003_009
_BATCH = 1 << 16


def write_synthetic(
    path: Path, *, records: int, lines: int, nodes: int = 20_000, first_rank: int = 0, seed: int = 0
) -> None:
    """One measurement of ``lines`` ranks with ``records`` records together.

    Shaped like real ones: a deep tree of which each second visits a few hundred leaves often and
    many rarely, and timestamps a sampling period apart with jitter.
    """
    random = np.random.default_rng(seed)
    clock = _START + 1_700_000_000 * 10**9
    writer = MeasurementWriter(path, Node(f"node{first_rank}", f"{seed}", "", "x86_64", 2),
                               options={})  # fmt: skip
    writer.add_event(Event(0, "cpu-clock", "ns", float(_PERIOD), "cpu_time", 997))
    writer.add_module(Module(1, ModuleKind.ELF, "/nowhere/program"))
    writer.add_clock_pair(_START, clock)
    ids = np.arange(nodes)
    parent = np.maximum(ids - random.zipf(1.5, nodes) % 30, 0)
    place = random.integers(0, 1 << 20, nodes).astype(np.uint64)
    writer.add_nodes(parent.astype(np.uint32), place + np.uint64(frame.module_frame(1, 0)))
    for line in range(lines):
        rank = first_rank + line
        writer.add_process(Process(line, 1000 + rank, 1, "p", "/p", (), 0, _START, "job", rank))
        writer.add_thread(Thread(line, line, 1000 + rank, "p", _START))
    each = records // lines
    for at in range(0, each, _BATCH):
        count = min(_BATCH, each - at)
        moments = _START + (at + np.arange(count)) * _PERIOD
        for line in range(lines):
            leaf = (random.zipf(1.3, count) + at // 4096 * 97) % nodes + 1
            jitter = random.integers(0, 40_000, count)
            writer.add_records(
                np.full(count, line, np.uint32),
                (moments + jitter).astype(np.uint64),
                leaf.astype(np.uint32),
                0,
            )
        writer.flush()
    writer.add_clock_pair(_START + each * _PERIOD, clock + each * _PERIOD)
    writer.close({})


def measure(folder: Path, *, records: int = 20_000_000, lines: int = 64) -> dict[str, float]:
    """The figures by name; ``folder`` is empty and has room for 15 bytes a record, twice."""
    halves = [folder / "m0", folder / "m1"]
    for number, half in enumerate(halves):
        write_synthetic(half, records=records // 2, lines=lines // 2,
                        first_rank=number * lines // 2, seed=number)  # fmt: skip
    figures: dict[str, float] = {}
    stored = sum(file.stat().st_size for half in halves for file in half.iterdir())
    figures["measurement: bytes a record"] = stored / records
    seconds = {}
    for workers in (1, 2):
        begin = time.perf_counter()
        result = merge(halves, folder / f"db{workers}", workers=workers)
        seconds[workers] = time.perf_counter() - begin
        name = f"merge, {workers} worker{'s' if workers > 1 else ''}: million records/s"
        figures[name] = result.records / seconds[workers] / 1e6
    figures["merge: two workers against one"] = seconds[1] / seconds[2]
    figures["database: bytes a record"] = result.bytes / result.records
    figures["merge: peak memory, MB"] = (
        max(resource.getrusage(who).ru_maxrss
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024
    )  # fmt: skip
    with hpcd.analysis.open(folder / "db1") as db:
        for name, (low, high) in {"all": (0.0, 1.0), "1 % of": (0.5, 0.51)}.items():
            window = int(low * db.duration_ns), int(high * db.duration_ns)
            # 1600 rows need 1600 lines: the same ones again cost the same.
            wanted = np.arange(1600) % len(db.lines)
            begin = time.perf_counter()
            db.sample_grid(wanted, *window, height=1600, width=2560)
            figures[f"grid 2560 x 1600, {name} the time: s"] = time.perf_counter() - begin
        for kind in VIEWS:
            begin = time.perf_counter()
            view = make_view(db, kind, metric=1, share=0.005)
            rows = sum(1 for _ in Outline(view, 1, share=0.005))
            figures[f"view {kind}, {rows} rows: s"] = time.perf_counter() - begin
    return figures


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--lines", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), records=options.records, lines=options.lines)
    for name, value in figures.items():
        print(f"{name:40} {value:12.3f}")


if __name__ == "__main__":
    main()
