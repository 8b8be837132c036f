"""Random measurements and call path trees whose contents are known, and what databases hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from hpcd.measurement.summary import SampleCounts, Summary
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame
from hpcd.model.cct import CCT
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread

REALTIME = 1_700_000_000 * 10**9
START = 5 * 10**12

Path_ = tuple[int, ...]


def write_measurement(
    path: Path,
    *,
    seed: int = 0,
    host: str = "node0",
    boot: str = "",
    ranks: Sequence[int] = (0, 1),
    threads: int = 1,
    records: int = 200,
    shift_ns: int = 0,
    modules: Sequence[str] = ("/lib/a.so", "/lib/b.so"),
    events: int = 1,
    weighted: bool = False,
    backwards: bool = False,
    close: bool = True,
) -> list[tuple[str, list[tuple[int, Path_]]]]:
    """A small random measurement; returns, per line, its label and its (time, path) records.

    Paths are of (module path, offset) pairs flattened to frames of 1-based positions in the sorted
    module list, so that they mean the same in every measurement.
    """
    random = np.random.default_rng(seed)
    writer = MeasurementWriter(path, Host(host, boot or host, "6.1", "x86_64", 2), options={})
    for number in range(events):
        unit, metric = (("ns", "cpu_time"), ("", "misses"))[number]
        writer.add_event(Event(number, f"event{number}", unit, 1e6, metric, 997))
    order = random.permutation(len(modules)) + 1
    for name, number in zip(modules, order.tolist(), strict=True):
        writer.add_module(Module(number, ModuleKind.ELF, name, build_id=f"{hash_of(name):040x}"))
    writer.add_clock_pair(START, START + REALTIME + shift_ns)
    count = 60
    parent = np.array([random.integers(0, i + 1) for i in range(count)], np.uint32)
    which = random.integers(0, len(modules), count)
    offset = random.integers(0, 4, count)
    own = [frame.module_frame(int(order[m]), int(o)) for m, o in zip(which, offset, strict=True)]
    # Siblings with equal frames are one node in a real collector; here they exercise the union.
    writer.add_nodes(parent, np.array(own, np.uint64))
    shared = sorted(modules, key=hash_of)
    paths: list[Path_] = [()]
    for node in range(count):
        place = frame.module_frame(shared.index(modules[which[node]]) + 1, int(offset[node]))
        paths.append((*paths[parent[node]], place))
    expected = []
    line = 0
    for rank in ranks:
        pid = 100 + rank
        writer.add_process(
            Process(rank, pid, 1, "prog", "/prog", ("prog",), 0, START, "job", rank, len(ranks))
        )
        for thread in range(threads):
            writer.add_thread(Thread(line, rank, pid + 1000 * thread, f"t{thread}", START))
            time = START + np.cumsum(random.integers(1, 2000, records)) * 1000
            nodes = random.integers(1, count + 1, records).astype(np.uint32)
            event = random.integers(0, events, records).astype(np.uint16)
            value = random.integers(0, 4, records).astype(np.uint64) if weighted else None
            halves = [slice(0, records // 2), slice(records // 2, records)]
            for part in reversed(halves) if backwards else halves:
                writer.add_records(
                    np.full(len(nodes[part]), line, np.uint32),
                    time[part].astype(np.uint64),
                    nodes[part],
                    event[part],
                    None if value is None else value[part],
                )
                writer.flush()
            rows = [
                (int(t) + shift_ns, paths[n]) for t, n in zip(time, nodes.tolist(), strict=True)
            ]
            expected.append((f"{rank}.{thread}", rows))
            line += 1
    if close:
        writer.close(Summary(samples=SampleCounts(taken=line * records)))
    return expected


def hash_of(name: str) -> int:
    """A build id's worth of a name, the same in every process."""
    return int.from_bytes(name.encode()[-8:], "big")


def long_measurement(path: Path, *, records: int, pauses: bool = False, nodes: int = 50) -> None:
    """Two lines with ``records`` records each."""
    random = np.random.default_rng(records)
    writer = MeasurementWriter(path, Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "ns", 1e6, "cpu_time", 997))
    writer.add_module(Module(1, ModuleKind.ELF, "/lib/a.so"))
    writer.add_clock_pair(START, START)
    places = np.uint64(frame.module_frame(1, 0)) + np.arange(nodes, dtype=np.uint64)
    writer.add_nodes(np.zeros(nodes, np.uint32), places)
    for line in range(2):
        writer.add_process(Process(line, 10 + line, 1, "p", "/p", (), 0, START, "j", line, 2))
        writer.add_thread(Thread(line, line, 10 + line, "p", START))
        gaps = random.integers(900, 1100, records) * 1000
        if pauses:
            gaps[:: records // 7] += 3 * 10**9
        time = START + np.cumsum(gaps)
        for at in range(0, records, 3000):
            part = slice(at, at + 3000)
            node = random.integers(1, nodes + 1, len(time[part])).astype(np.uint32)
            writer.add_records(
                np.full(len(node), line, np.uint32), time[part].astype(np.uint64), node, 0
            )
            writer.flush()
    writer.close()


@st.composite
def trees(draw: st.DrawFn, size: int = 25) -> CCT:
    count = draw(st.integers(0, size))
    parent = [0] + [draw(st.integers(0, i)) for i in range(count)]
    frames = [0] + [draw(st.integers(1, 5)) for _ in range(count)]
    return CCT(np.array(parent, np.uint32), np.array(frames, np.uint64))


def paths_of(tree: CCT) -> list[Path_]:
    """The call path of every node, as frames."""
    paths: list[Path_] = [()]
    for node in range(1, len(tree)):
        paths.append((*paths[tree.parent[node]], int(tree.frame[node])))
    return paths


def contents(path: Path) -> dict[str, bytes]:
    """All files of a directory."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }
