"""Exporting a database in each format: time beside a plain copy of the files written, and memory as
the trace grows.

``python -m benchmarks.exports [--ranks N] [--records N] [--format F ...] [DATABASE]``. The peer is
``cp`` of the exported files: what no export can do without is writing them. Memory is compared with
that of a database with a tenth of the records, and must be the same.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.merge import make
from benchmarks.workloads import HPCD, scratch, sized
from hpcd.analysis.merge.stages import merge
from hpcd.interchange.formats import FORMATS
from hpcd.measurement.synthetic import Shape

_THREADS = len(os.sched_getaffinity(0))
# Bytes copied of larger files; the time for all of it is extrapolated.
_COPIED_BYTES = 8 << 30
_CHUNK = 16 << 20


@dataclass(frozen=True)
class Export:
    """Cost of an export: elapsed and CPU seconds, and memory in MiB."""

    elapsed: float
    cpu: float
    peak: int


def exported(database: Path, kind: str, output: Path) -> Export:
    """Export ``database`` to ``output``."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [*HPCD, "export", str(database), "--format", kind, "-o", str(output)],
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"hpcd export --format {kind} failed")
    elapsed = time.perf_counter() - begin
    return Export(elapsed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss >> 10)


def copied(path: Path, folder: Path) -> float:
    """Seconds to copy what was exported."""
    size = path.stat().st_size
    begin = time.perf_counter()
    if path.is_dir() or size <= _COPIED_BYTES:
        subprocess.run(["cp", "-r", str(path), str(folder / "copy")], check=True)
        scale = 1.0
    else:
        with path.open("rb") as source, (folder / "copy").open("wb") as target:
            for _ in range(_COPIED_BYTES // _CHUNK):
                target.write(source.read(_CHUNK))
        scale = size / _COPIED_BYTES
    took = (time.perf_counter() - begin) * scale
    _remove(folder / "copy")
    return took


def measured(database: Path, small: Path | None, kinds: Sequence[str], folder: Path) -> Table:
    """The table of a database, and of ``small``, which has a tenth of its records."""
    table = Table("format", "MB", "seconds", "of CPU", "seconds to copy it", "peak MB",
                  "peak MB, a tenth of the records", title="hpcd export")  # fmt: skip
    for kind in kinds:
        before = ""
        if small:
            before = str(exported(small, kind, folder / "small").peak)
            _remove(folder / "small")
        export = exported(database, kind, folder / "out")
        copy = copied(folder / "out", folder)
        files = [folder / "out", *(folder / "out").rglob("*")]
        size = sum(path.stat().st_size for path in files if path.is_file())
        table.add_row(
            kind, f"{size / 1e6:.1f}", f"{export.elapsed:.1f}", f"{export.cpu:.1f}",
            f"{copy:.2f}", str(export.peak), before,
        )  # fmt: skip
        _remove(folder / "out")
    return table


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def run(
    ranks: int = sized(100, 2),
    records: int = sized(100_000, 1000),
    kinds: Sequence[str] = (),
    database: Path | None = None,
) -> Table:
    """The table of ``database``, or of one that is made for it."""
    kinds = kinds or [
        kind
        for kind, entry in FORMATS.items()
        if not entry.library or importlib.util.find_spec(entry.library)
    ]
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        folder = Path(name)
        if database:
            return measured(database, None, kinds, folder)
        for part, share in (("small", 10), ("whole", 1)):
            shape = Shape(ranks, max(records // share, 10), 4000, ranks_per_node=ranks)
            measurements = make(folder / f"{part}-m", shape)
            merge(measurements, folder / f"{part}-db", workers=_THREADS)
        return measured(folder / "whole-db", folder / "small-db", kinds, folder)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=sized(100, 2))
    parser.add_argument("--records", type=int, default=sized(100_000, 1000))
    parser.add_argument("--format", action="append", choices=FORMATS, default=[])
    parser.add_argument("database", type=Path, nargs="?", help="one that is there already")
    options = parser.parse_args()
    table = run(options.ranks, options.records, options.format, options.database)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
