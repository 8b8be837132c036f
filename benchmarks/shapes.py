"""Shapes of real recordings, for benchmarks to grow their measurements from.

``python -m benchmarks.shapes [NAME ...]`` (as root) records the programs below anew and keeps a
small part of each in tests/data/recordings: some thousand records of each of the busiest lines, the
calling contexts these reach, and nothing that identifies the machine. :func:`source` reads them.

========== =========================================================================================
mpi        LAMMPS, 2 ranks on 2 cores: computes, waits for messages and, now and then, a CPU
openmp     parallel loops of every schedule, 4 threads on 2 cores: waits at barriers
build      make -j 2 of small C files: thousands of processes that live for milliseconds
server     500 threads that answer requests from a queue: sleeps, locks, waits for a disk
========== =========================================================================================
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from benchmarks.workloads import HPCD, ROOT, build
from hpcd.array_types import I64, U32
from hpcd.measurement.reader import Measurement, open_measurement
from hpcd.measurement.summary import SampleCounts, Summary
from hpcd.measurement.synthetic import Shape
from hpcd.measurement.synthetic_source import SyntheticSource, built_in_source, recorded_source
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.identity import Host, Module, Process
from tests.support.lammps import ENVIRONMENT, melt
from tests.support.report_streams import RECORDINGS, columns

BUILT_IN = "built-in"
_SECONDS = "10"
_UNITS = 500


@dataclass(frozen=True, slots=True)
class Recording:
    """The command of a recording, and the part that is kept: ``records`` of ``lines`` at most."""

    command: Callable[[Path], list[str]]
    records: int
    lines: int


def _mpi(folder: Path) -> list[str]:
    return melt(folder, steps=9000)


def _openmp(folder: Path) -> list[str]:
    program = str(folder / "openmp")
    source = str(ROOT / "tests/programs/openmp.c")
    subprocess.run(["gcc", "-O2", "-fopenmp", "-o", program, source, "-lm"], check=True)
    return ["env", "OMP_NUM_THREADS=4", "OMP_WAIT_POLICY=passive", program, _SECONDS]


def _build(folder: Path) -> list[str]:
    for number in range(_UNITS):
        (folder / f"unit{number}.c").write_text(
            f"int f{number}(int a) {{ int s = 0; for (int i = 0; i < a; i++) s += i * {number};"
            " return s; }\n"
        )
    objects = " ".join(f"unit{number}.o" for number in range(_UNITS))
    (folder / "Makefile").write_text(
        f"all: {objects}\n%.o: %.c\n\t@test -f $< && gcc -O1 -c $< -o $@\n"
    )
    return ["make", "-j2"]


def _server(folder: Path) -> list[str]:
    return [build(folder, "server.c"), _SECONDS, "500"]


RECORDED = {
    "mpi": Recording(_mpi, 40_000, 8),
    "openmp": Recording(_openmp, 40_000, 8),
    "build": Recording(_build, 15_000, 1500),
    "server": Recording(_server, 40_000, 600),
}

NAMES = (BUILT_IN, *RECORDED)


def source(name: str, contexts: int = 0) -> SyntheticSource:
    """Return the source that measurements of the shape ``name`` are grown from; ``contexts``
    applies to the built-in one."""
    if name == BUILT_IN:
        return built_in_source(contexts or 4000)
    return recorded_source(RECORDINGS / name)


def shape(name: str, records: int, contexts: int = 0) -> Shape:
    """About ``records`` records in as many lines and measurements as the shape has by nature."""
    if name == "build":
        lines = max(records // 20, 1)
        return Shape(lines, 20, contexts, ranks_per_node=62_551)
    lines = 500 if name == "server" else 96
    lines = min(lines, max(records // 1000, 1))
    return Shape(lines, records // lines, contexts, ranks_per_node=500 if name == "server" else 24)


# --- recording anew ---


def keep(recorded: Path, kept: Path, records: int, lines: int) -> None:
    """Copy ``records`` records of the ``lines`` busiest lines, and what they refer to."""
    with open_measurement(recorded) as measurement:
        all_columns = columns(measurement)
        selected = _chosen(all_columns[0], records, lines)
        line, time, node, event, value = (column[selected] for column in all_columns)
        new_node, parent, frame = _pruned(measurement, node)
        used = set(np.unique(frame[frame >> np.uint64(62) == 0] >> np.uint64(40)).tolist())
        writer = MeasurementWriter(
            kept, Host("recorded", f"recorded-{kept.name}", "", "x86_64", 2),
            options={"recorded": kept.name},
        )  # fmt: skip
        for row in measurement.events.values():
            writer.add_event(row)
        for module in measurement.modules.values():
            if module.id in used:
                writer.add_module(replace(module, path=_public(module)))
                writer.add_symbols(module.id, measurement.symbols.get(module.id, []))
        threads = [measurement.threads[number] for number in np.unique(line).tolist()]
        for number in sorted({thread.process for thread in threads}):
            writer.add_process(_anonymous(measurement.processes[number]))
        for thread in threads:
            writer.add_thread(thread)
        for pair in (measurement.clock_pairs[0], measurement.clock_pairs[-1]):
            writer.add_clock_pair(int(pair[0]), int(pair[1]))
        writer.add_nodes(parent, frame)
        writer.add_records(line, time, new_node, event, value)
        writer.close(Summary(samples=SampleCounts(taken=len(line))))


def _chosen(line: npt.NDArray[np.unsignedinteger], records: int, lines: int) -> I64:
    """The middle records of the busiest lines, as many of each as there is room for."""
    _, first, count = np.unique(line, return_index=True, return_counts=True)
    busiest = np.sort(np.argsort(-count, kind="stable")[:lines])
    most = int(count.max())
    while int(np.minimum(count[busiest], most).sum()) > records:
        most = most * 7 // 8
    begin = first[busiest] + np.maximum(count[busiest] - most, 0) // 2
    spans = zip(begin.tolist(), np.minimum(count[busiest], most).tolist(), strict=True)
    return np.concatenate([np.arange(a, a + n) for a, n in spans])


def _pruned(
    measurement: Measurement, node: npt.NDArray[np.unsignedinteger]
) -> tuple[U32, U32, npt.NDArray[np.uint64]]:
    """The nodes' new numbers, and parents and frames of the nodes they reach, without the root."""
    tree = measurement.cct
    used = np.zeros(len(tree), bool)
    reached = np.unique(node)
    while len(reached):
        used[reached] = True
        reached = np.unique(tree.parent[reached])
        reached = reached[~used[reached]]
    used[0] = True
    number = (np.cumsum(used) - 1).astype(np.uint32)
    inner = np.flatnonzero(used)[1:]
    return number[node], number[tree.parent[inner]], tree.frame[inner]


def _public(module: Module) -> str:
    place = PurePosixPath(module.path)
    shared = place.parts[:2] in (("/", "usr"), ("/", "lib")) or not place.is_absolute()
    return module.path if shared else f"/opt/{place.name}"


def _anonymous(process: Process) -> Process:
    name = PurePosixPath(process.exe).name or process.name
    return replace(process, exe=f"/opt/{name}", command=(name,), uid=1000)


def record(name: str) -> None:
    """Record a shape anew and keep a small part of it."""
    recording = RECORDED[name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "work"
        folder.mkdir()
        done = subprocess.run(
            [*HPCD, "run", "--json", "-F", "997", "-o", f"{place}/m", "--",
             *recording.command(folder)],
            cwd=folder, env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)}, check=True,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        taken = json.loads(done.stdout.splitlines()[-1])["samples"]
        kept = RECORDINGS / name
        RECORDINGS.mkdir(exist_ok=True)
        for old in kept.glob("*"):
            old.unlink()
        if kept.exists():
            kept.rmdir()
        keep(Path(place) / "m", kept, recording.records, recording.lines)
        size = sum(file.stat().st_size for file in kept.iterdir())
        print(f"{name}: {taken}, kept {size:,} bytes")


def main() -> None:
    """Record the shapes that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*RECORDED, []], default=[])
    for name in parser.parse_args().names or RECORDED:
        record(name)


if __name__ == "__main__":
    main()
