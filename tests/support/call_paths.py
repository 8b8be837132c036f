"""Databases of one thread whose samples and their call paths are given, and views of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.profile.report import NodeNames
from hpcd.analysis.profile.views import View
from hpcd.measurement.summary import SampleCounts, Summary
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread

NAMES = ["main", "solve", "dot", "wait", "fib"]
SIZE = 0x100

Calls = tuple[tuple[str, int], ...]


def write(
    path: Path,
    samples: Sequence[tuple[Calls, int]],
    *,
    marker: int | None = None,
    names: Sequence[str] = NAMES,
) -> None:
    """A measurement of one thread with ``count`` samples of each call path.

    A call path is (procedure, line) pairs, outermost first, of procedures ``names``; with
    ``marker`` the last path hangs below the marker of that ending.
    """
    writer = MeasurementWriter(path, Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "ns", 1e6, "cpu_time", 1000))
    writer.add_process(Process(0, 7, 1, "prog", "/prog", ("prog",), 0, 10**9))
    writer.add_thread(Thread(0, 0, 7, "prog", 10**9))
    writer.add_module(Module(1, ModuleKind.JIT, "[jit]", process=0))
    writer.add_module(Module(2, ModuleKind.KERNEL, "[kernel]"))
    writer.add_symbols(1, [(n * SIZE, SIZE, name) for n, name in enumerate(names)])
    writer.add_symbols(2, [(0, SIZE, "schedule")])
    writer.add_clock_pair(10**9, 2 * 10**18)
    numbers: dict[tuple[int, int], int] = {}
    parents: list[int] = []
    frames: list[int] = []

    def node(parent: int, place: int) -> int:
        if (parent, place) not in numbers:
            parents.append(parent)
            frames.append(place)
            numbers[parent, place] = len(parents)
        return numbers[parent, place]

    nodes: list[int] = []
    for number, (calls, count) in enumerate(samples):
        at = 0
        if marker is not None and number == len(samples) - 1:
            at = node(0, frame.marker_frame(marker))
        for name, line in calls:
            module, start = (2, 0) if name == "schedule" else (1, names.index(name) * SIZE)
            at = node(at, frame.module_frame(module, start + line))
        nodes += [at] * count
    writer.add_nodes(np.array(parents, np.uint32), np.array(frames, np.uint64))
    times = 10**9 + 10**6 * np.arange(len(nodes))
    writer.add_records(
        np.zeros(len(nodes), np.uint32), times.astype(np.uint64), np.array(nodes, np.uint32), 0
    )
    samples_taken = SampleCounts(expected=100, taken=99, dropped={"ring full": 3})
    writer.close(Summary(samples=samples_taken))


def database(
    folder: Path,
    samples: Sequence[tuple[Calls, int]],
    marker: int | None = None,
    names: Sequence[str] = NAMES,
) -> Path:
    write(folder / "m", samples, marker=marker, names=names)
    merge([folder / "m"], folder / "db")
    return folder / "db"


def chains(view: View, db: Database) -> dict[tuple[str, ...], tuple[float, float]]:
    """(inclusive, exclusive) samples by the names on the way to each node."""
    labels = NodeNames(db, view)
    result: dict[tuple[str, ...], tuple[float, float]] = {}
    names: list[tuple[str, ...]] = [()]
    for node in range(len(view)):
        if node:
            names.append((*names[view.parent[node]], labels(node)))
        assert names[node] not in result
        result[names[node]] = (float(view.inclusive[0, node]), float(view.exclusive[0, node]))
    return result
