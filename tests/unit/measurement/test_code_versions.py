"""Addresses whose code was replaced: records have the names that held at their time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.analysis.merge.read.measurement_batch import BatchMember
from hpcd.measurement import code_versions
from hpcd.measurement.code_versions import CodeVersions, TimedRow
from hpcd.measurement.reader import open_measurement
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame as frames
from hpcd.model.cct import CCT
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread

JIT, FILE = 3, 5
MODULES = {
    JIT: Module(JIT, ModuleKind.JIT, "[jit]", base=1 << 40, process=1),
    FILE: Module(FILE, ModuleKind.ELF, "/bin/app", "abcd"),
}


def name_at(timed: list[TimedRow], offset: int, time: int) -> str:
    """The name of an offset at a time: the latest that holds by then, or the earliest of all."""
    held = [entry for entry in timed if entry[1][0] <= offset < entry[1][0] + entry[1][1]]
    if not held:
        return ""
    since = max((s for s, _ in held if s <= time), default=min(s for s, _ in held))
    return [row[2] for s, row in held if s == since][-1]


def tree(nodes: list[tuple[int, int, int]]) -> CCT:
    """A tree without equal siblings, of (parent, module, offset)."""
    parent, frame = [0], [0]
    known: set[tuple[int, int]] = set()
    for above, module, offset in nodes:
        key = (above % len(parent), frames.module_frame(module, offset))
        if key not in known:
            known.add(key)
            parent.append(key[0])
            frame.append(key[1])
    return CCT(np.array(parent, np.uint32), np.array(frame, np.uint64))


SYMBOLS = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.tuples(st.integers(0, 7), st.integers(1, 5), st.sampled_from("abc")),
    ),
    max_size=12,
)
NODES = st.lists(
    st.tuples(st.integers(0, 99), st.sampled_from([JIT, JIT, FILE]), st.integers(0, 9)),
    max_size=25,
)


@given(NODES, SYMBOLS, st.lists(st.tuples(st.integers(0, 99), st.integers(0, 14)), max_size=60))
def test_paths_have_the_names_of_their_time(
    nodes: list[tuple[int, int, int]], timed: list[TimedRow], records: list[tuple[int, int]]
) -> None:
    cct = tree(nodes)
    versions = CodeVersions(cct, MODULES, {JIT: timed} if timed else {})
    divided = versions.cct
    divided.validate("divided")
    pairs = list(zip(divided.parent.tolist(), divided.frame.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs) and versions.complete
    node = np.array([number % len(cct) for number, _ in records], np.uint32)
    time = np.array([at for _, at in records], np.uint64)
    for before, after, at in zip(node, versions.nodes(node, time), time.tolist(), strict=True):
        old, new = cct.path(int(before)), divided.path(int(after))
        assert len(old) == len(new)
        for one, other in zip(cct.frame[old].tolist(), divided.frame[new].tolist(), strict=True):
            module, offset = one >> 40, one & frames.OFFSET_MASK
            assert other & frames.OFFSET_MASK == offset
            if module == FILE:
                assert one == other
                continue
            rows = versions.symbols.get(other >> 40, [])
            names = {name for start, size, name in rows if start <= offset < start + size}
            wanted = name_at(timed, offset, at)
            assert names == ({wanted} if wanted else set())
            of = versions.modules[other >> 40]
            assert (of.kind, of.path, of.process) == (ModuleKind.JIT, "[jit]", 1)


@pytest.mark.parametrize("limit", ["_MOST_NODES", "_MOST_MODULES", "_MOST_CHANGES"])
def test_what_is_divided_has_a_limit(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_versions, limit, 4)
    cct = tree([(at, JIT, 4) for at in range(20)])
    timed = [(since, (0, 8, f"f{since}")) for since in range(20)]
    versions = CodeVersions(cct, MODULES, {JIT: timed})
    versions.cct.validate("divided")
    assert not versions.complete
    if limit == "_MOST_NODES":
        assert len(versions.cct) <= len(cct) + 4
    else:
        assert len(versions.modules) <= len(MODULES) + 4
    nodes = np.arange(len(cct), dtype=np.uint32)
    assert int(versions.nodes(nodes, np.full(len(cct), 9, np.uint64)).max()) < len(versions.cct)


def test_a_measurement_is_divided_when_it_is_merged(tmp_path: Path) -> None:
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "ns", 1e6, "cpu_time", 1000))
    writer.add_process(Process(1, 7, 1, "app", "/bin/app", ("app",), 0, 10**9))
    writer.add_thread(Thread(0, 1, 7, "app", 10**9))
    writer.add_module(MODULES[JIT])
    writer.add_clock_pair(10**9, 2 * 10**18)
    writer.add_nodes(np.zeros(1, np.uint32), np.array([frames.module_frame(JIT, 4)], np.uint64))
    times = np.arange(10, 20, dtype=np.uint64) * np.uint64(10**9)
    writer.add_records(np.zeros(10, np.uint32), times, np.ones(10, np.uint32), 0)
    writer.add_symbols(JIT, [(0, 8, "older")], [9 * 10**9])
    writer.flush()
    writer.add_symbols(JIT, [(0, 8, "newer")], [16 * 10**9])
    writer.close()
    with open_measurement(tmp_path / "m") as measurement:
        # Who follows a recording sees the latest.
        assert measurement.symbols == {JIT: [(0, 8, "newer")]}
        assert measurement.named_modules == {JIT}
    member = BatchMember.open(tmp_path / "m", None)
    with member.measurement as measurement:
        (chunk,) = measurement.record_chunks()
        modules = frames.module_of(measurement.cct.frame[chunk.node]).tolist()
        names = [measurement.symbols[number][0][2] for number in modules]
    assert names == ["older"] * 6 + ["newer"] * 4
