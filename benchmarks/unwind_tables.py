"""Time, memory and rows of unwind tables, beside readelf, and pyelftools where it can manage.

    python -m benchmarks.unwind_tables [FILE...]

Each file is decoded in a process of its own, three times; the median and the extremes are shown,
and the CPU time beside them: where that is well below the time, others kept the machine busy.
Peak memory is that of the whole process, interpreter and numpy included. Before each of them
``readelf --debug-dump=frames-interp`` writes the rows of the same file's call frame information;
the ratio is hpcd's CPU time to its, the median of the rounds. readelf has nothing to say of code
without such information: of a file with much of that (OpenBLAS, Chromium) it is no comparison.
"""

from __future__ import annotations

import json
import mmap
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.workloads import sized
from hpcd.daemon.unwind.packed_table import packed
from hpcd.daemon.unwind.table_builder import build_table
from hpcd.daemon.unwind.table_cache import TableCache

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
DEFAULT = sized(
    (
        "libc.so.6",
        "libstdc++.so.6",
        "libpython3.11.so.1.0",
        "liblammps.so.0",
        "libLLVM-14.so.1",
        "openblas-pthread/libopenblas.so.0",
        "/usr/lib/chromium/chromium",
    ),
    ("libz.so.1",),
)
RUNS = sized(3, 1)


def measure(path: Path) -> dict[str, float]:
    """Decode one file in this process, then store and load its table."""
    start, cpu = time.perf_counter(), time.process_time()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as image:
        view = memoryview(image)
        table = packed(build_table(view))
        view.release()
    build, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with tempfile.TemporaryDirectory() as directory:
        cache = TableCache(Path(directory))
        cache.store(0, table)
        size = sum(file.stat().st_size for file in Path(directory).rglob("*.rows"))
        loads = []
        for _ in range(5):
            start = time.perf_counter()
            cache.load(0, table.build_id)
            loads.append(time.perf_counter() - start)
    return {
        "build": build,
        "cpu": cpu,
        "peak": peak,
        "load": statistics.median(loads),
        "file": size,
        "rows": len(table.rows.words),
        "rules": len(table.rules),
        "functions": table.functions,
        "bad": table.bad,
    }


def measure_pyelftools(path: Path) -> dict[str, float]:
    """Measure pyelftools' decoder; what it raises on is counted, not hidden."""
    from elftools.elf.elffile import ELFFile

    start, cpu = time.perf_counter(), time.process_time()
    rows = functions = failed = 0
    with path.open("rb") as file:
        dwarf = ELFFile(file).get_dwarf_info(relocate_dwarf_sections=False)
        for entry in dwarf.EH_CFI_entries():
            if type(entry).__name__ == "FDE":
                functions += 1
                try:
                    rows += len(entry.get_decoded().table)
                except (KeyError, IndexError, AttributeError, ValueError):
                    failed += 1
    build, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "build": build,
        "cpu": cpu,
        "peak": peak,
        "rows": rows,
        "functions": functions,
        "bad": failed,
    }


def readelf_seconds(path: Path) -> float:
    """CPU seconds in which readelf interprets a file's call frame information."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["readelf", "--debug-dump=frames-interp", str(path)]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def in_child(kind: str, path: Path) -> list[dict[str, float]]:
    """Results of :data:`RUNS` fresh processes, readelf taking turns with them."""
    command = [sys.executable, "-m", "benchmarks.unwind_tables", kind, str(path)]
    runs = []
    for _ in range(RUNS):
        peer = readelf_seconds(path)
        runs.append(json.loads(subprocess.check_output(command)) | {"peer": peer})
    return runs


def show(name: str, runs: list[dict[str, float]]) -> None:
    """One line of the table."""
    times = sorted(run["build"] for run in runs)
    last = runs[-1]
    ratios = [run["cpu"] / max(run["peer"], 0.001) for run in runs]
    extra = ""
    if "load" in last:
        load = statistics.median(run["load"] for run in runs) * 1000
        extra = f"{last['rules']:7.0f} {last['file'] / 1024:9.0f} {load:8.2f}"
    print(
        f"{name:28} {statistics.median(times):7.3f} {times[0]:6.3f}..{times[-1]:<6.3f}"
        f"{statistics.median(run['cpu'] for run in runs):6.3f}"
        f"{max(run['peak'] for run in runs):7.0f} {last['functions']:8.0f} {last['bad']:5.0f}"
        f" {last['rows']:9.0f} {statistics.median(ratios):7.2f} {extra}"
    )


def main() -> None:
    """Print the table."""
    if len(sys.argv) == 3 and sys.argv[1] in ("hpcd", "pyelftools"):
        kind = measure if sys.argv[1] == "hpcd" else measure_pyelftools
        print(json.dumps(kind(Path(sys.argv[2]))))
        return
    paths = [Path(name) for name in sys.argv[1:]] or [LIBRARIES / name for name in DEFAULT]
    print(
        f"{'':28} {'build s':>7} {'min..max':>13} {'CPU s':>6} {'peak MB':>8} {'FDEs':>8}"
        f" {'bad':>5} {'rows':>9} {'ratio':>7} {'rules':>7} {'cache kB':>9} {'load ms':>8}"
    )
    for path in paths:
        if path.exists():
            show(path.name, in_child("hpcd", path))
    if paths[0].exists():
        show(f"{paths[0].name} (pyelftools)", in_child("pyelftools", paths[0]))


if __name__ == "__main__":
    main()
