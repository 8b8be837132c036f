"""What numba compiles does what numpy does, to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcd.analysis.arrays.sparse_sums import CellSum
from hpcd.analysis.merge import context_statistics
from hpcd.analysis.merge import ingest as merge_ingest
from hpcd.analysis.merge.ingest import IngestTask, ingest
from hpcd.analysis.merge.part_groups import unite
from hpcd.analysis.merge.record_batches import RecordColumns
from hpcd.analysis.trace import blocks
from hpcd.analysis.trace.compiled import check_kernels, compiled_module, kernels
from hpcd.analysis.trace.intervals import Intervals
from hpcd.errors import FormatError
from hpcd.measurement.codec import TIME_UNIT_NS, RecordChunk, decode_records, encode_records
from hpcd.measurement.synthetic import Shape, recorded_source, synthesize
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.cct import CCT
from hpcd.model.cct_union import union
from hpcd.model.identity import Event, Host, Process, Thread

RECORDINGS = Path(__file__).parents[1] / "data/recordings"
EVENTS = (Event(0, "cpu-clock", "s", 1e-3, "cpu_time"),
          Event(1, "blocked", "s", 1e-6, "blocked_time", interval=True),
          Event(70, "other", "s", 1e-6, "blocked_time", interval=True))  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def compiled() -> Any:
    module = kernels()
    if module is None:
        pytest.skip("numba is not installed")
    return module


def random_batch(seed: int, lengths: list[int], gap: int) -> RecordChunk:
    random = np.random.default_rng(seed)
    start = np.concatenate(([0], np.cumsum(lengths)))
    total = int(start[-1])
    step = random.integers(1, gap, total)
    event = random.choice([0, 0, 1, 70], total).astype(np.uint16)
    value = np.where(event == 0, random.choice([1, 1, 1, 2, 1 << 40], total), step)
    value[random.random(total) < 0.2] = 7  # too long or too short for what follows
    time = (np.cumsum(step) - step) * TIME_UNIT_NS + 10**12
    node = random.integers(0, random.choice([2, 300, 1 << 20]), total)
    return RecordChunk(np.arange(len(lengths), dtype=np.uint32), start, time.astype(np.uint64),
                       node.astype(np.uint32), event, value.astype(np.uint64))  # fmt: skip


@given(seed=st.integers(0, 1000), damaged=st.booleans())
@settings(deadline=None, max_examples=40)
def test_checking_finds_the_same(seed: int, damaged: bool) -> None:
    """Of a batch of blocks, sound or with bytes that are not what they were."""
    random = np.random.default_rng(seed)
    batch = Intervals(EVENTS).expand(random_batch(seed, [3000, 1, 1100], 300))
    ticks = (batch.time_ns // TIME_UNIT_NS).astype(np.int64)
    cuts = blocks.cut(batch.start, ticks)
    encoded = blocks.encode(cuts, ticks, batch.node, batch.event, batch.value)
    count, nodes, events = np.diff(cuts), int(batch.node.max()) + 1, 71
    contents = [bytearray(zstandard.decompress(frame)) for frame in encoded.data]
    if damaged:
        victim = contents[random.integers(len(contents))]
        victim[random.integers(len(victim))] ^= 1 << random.integers(8)
    places, codes = blocks.Stored(), blocks.Stored()
    for number in range(len(count)):
        for stored, frame, at in ((places, encoded.frame, encoded.at),
                                  (codes, encoded.code_frame, encoded.code_at)):  # fmt: skip
            data = memoryview(zstandard.compress(bytes(contents[frame[number]])))
            stored.add(0, int(frame[number]), int(at[number]), data, 0)
    since, node = blocks.decode_places(places, encoded.width, encoded.least, count)
    ends = np.cumsum([len(content) for content in contents])
    begin = ends - [len(content) for content in contents]
    data = np.frombuffer(b"".join(contents), np.uint8)
    length, bad_node = np.zeros(len(count), np.int64), np.zeros(len(count), bool)
    first = begin[encoded.frame] + encoded.at
    assert check_kernels().check_places(
        data, first, ends[encoded.frame], count, encoded.width, encoded.least, nodes, length,
        bad_node,
    )  # fmt: skip
    assert length.tolist() == since[:, -1].tolist()
    assert bad_node.tolist() == (node.max(axis=1) >= nodes).tolist()
    interval, bad_event = np.isin(np.arange(events), [1, 70]), np.zeros(len(count), bool)
    seen = check_kernels().check_codes(
        data, begin[encoded.code_frame] + encoded.code_at, ends[encoded.code_frame], count,
        encoded.width, interval, bad_event, data, first, encoded.least,
    )  # fmt: skip
    try:
        event, value = blocks.decode_weights(codes, count, encoded.width, since)
    except FormatError:
        assert seen == -1
        return
    real = np.arange(blocks.BLOCK_RECORDS) < count[:, None]
    assert bad_event.tolist() == ((event >= events) & real).any(axis=1).tolist()
    assert seen == int((np.isin(event, [1, 70]) & (value == 0) & real).sum())


@given(
    seed=st.integers(0, 1000),
    lengths=st.lists(st.integers(1, 2500), min_size=1, max_size=6),
    gap=st.sampled_from([3, 300, 70_000, 1 << 33]),
)
@settings(deadline=None, max_examples=40)
def test_entries_and_blocks_are_the_same(seed: int, lengths: list[int], gap: int) -> None:
    batch, intervals = random_batch(seed, lengths, gap), Intervals(EVENTS)
    plain = intervals.expand(batch)
    start, ticks, node, event, value, all_plain = kernels().expand(
        batch.start, batch.time_ns, batch.node, batch.event, batch.value, intervals.length_ns
    )
    assert not all_plain or bool((batch.event == 0).all() and (batch.value == 1).all())
    assert start.tolist() == plain.start.tolist()
    assert np.array_equal(ticks, (plain.time_ns // TIME_UNIT_NS).astype(np.int64))
    for name, column in (("node", node), ("event", event), ("value", value)):
        assert np.array_equal(column, getattr(plain, name))
    cuts = blocks.cut(start, ticks)
    for weights in ((None, None), (event, value)):
        one = blocks.encode(cuts, ticks, node, *weights)
        two = blocks.encode(cuts, ticks, node, *weights, kernels())
        assert one.data == two.data
        for name in ("content", "frame", "at", "code_frame", "code_at", "least", "width"):
            assert np.array_equal(getattr(one, name), getattr(two, name))


@given(seed=st.integers(0, 1000), lengths=st.lists(st.integers(1, 400), min_size=1, max_size=6),
       limit=st.sampled_from([1 << 24, 1 << 14]))  # fmt: skip
@settings(deadline=None, max_examples=40)
def test_sums_are_the_same(seed: int, lengths: list[int], limit: int) -> None:
    batch = random_batch(seed, lengths, 300)
    nodes = int(batch.node.max()) + 1
    answers = []
    for module in (None, kernels()):
        sums = CellSum(len(lengths), nodes, limit=limit, kernels=module)
        for _ in range(2):
            sums.add(batch.line, batch.start, batch.node, batch.event, batch.value)
        answers.append(sums.result())
    for name in ("line", "node", "event", "records", "value"):
        assert np.array_equal(getattr(answers[0], name), getattr(answers[1], name))


def part_of(folder: Path, memory: int, by_numba: bool) -> bytes:
    """The part of the measurement ``folder/m``, made with or without numba."""
    parts = folder / f"compiled-{by_numba}"
    parts.mkdir()
    return ingest(IngestTask(folder / "m", parts, None, memory, by_numba)).part.read_bytes()


@pytest.mark.parametrize(
    ("name", "records"),
    [("mpi", 4000), ("openmp", 4000), ("build", 4000), ("server", 4000), ("mpi", 8000)],
)
def test_parts_are_the_same(name: str, records: int, tmp_path: Path) -> None:
    synthesize(tmp_path / "m", Shape(6, records, ranks_per_node=6),
               recorded_source(RECORDINGS / name), 0)  # fmt: skip
    assert part_of(tmp_path, 1 << 30, False) == part_of(tmp_path, 1 << 30, True)


@given(seed=st.integers(0, 1000), lengths=st.lists(st.integers(1, 400), min_size=1, max_size=6),
       cut=st.integers(0, 60), high=st.booleans())  # fmt: skip
@settings(deadline=None, max_examples=40)
def test_chunks_are_read_the_same(seed: int, lengths: list[int], cut: int, high: bool) -> None:
    batch = random_batch(seed, lengths, 300)
    line = np.repeat(batch.line + np.uint32(4), lengths)
    event = batch.event * np.uint16(900 if high else 1)
    data = encode_records(line, batch.time_ns, batch.node, event, batch.value, lasting=(1, 70))
    data = data[: len(data) - cut] if cut < 30 else data
    answers: list[RecordChunk | None] = []
    for module in (None, kernels().reading):
        try:
            answers.append(decode_records(data, module, RecordColumns(7).room))
        except FormatError:
            answers.append(None)
    plain, compiled = answers
    assert (plain is None) == (compiled is None)
    for name in RecordChunk.__slots__ if plain is not None else ():
        assert np.array_equal(getattr(plain, name), getattr(compiled, name)), name


def unusual(path: Path, *, events: int) -> None:
    """A measurement of several chunks, one line with records that come late, one with waits that
    reach into the next chunk."""
    writer = MeasurementWriter(path, Host("node", "boot", "6.1", "x86_64", 2), options={})
    for number in range(events):
        writer.add_event(Event(number, f"event-{number}", "s", 1e-6, "blocked_time",
                               interval=number % 2 == 1))  # fmt: skip
    writer.add_process(Process(1, 1, 0, "program", "/program", ("program",), 0, 0))
    for line in range(3):
        writer.add_thread(Thread(line, 100 + line, 1, f"thread-{line}", 0))
    writer.add_nodes(np.zeros(9, np.uint32), np.arange(1, 10, dtype=np.uint64) << np.uint64(40))
    random = np.random.default_rng(events)
    for chunk in range(4):
        for line in range(3):
            step = random.integers(1, 2000, 5000)
            time = (np.cumsum(step) + (4 - chunk if line == 1 else chunk) * 10**7) * 1000
            event = random.integers(0, events, 5000)
            value = np.where(event % 2 == 1, np.append(step[1:], 10**7 * (line == 2)), 1)
            writer.add_records(
                np.full(5000, line, np.uint32), time.astype(np.uint64),
                random.integers(0, 10, 5000).astype(np.uint32), event.astype(np.uint16),
                value.astype(np.uint64),
            )  # fmt: skip
        writer.flush()
    writer.close({})


@pytest.mark.parametrize("events", [2, 6, 40])
def test_parts_of_unusual_measurements_are_the_same(
    events: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unusual(tmp_path / "m", events=events)
    monkeypatch.setattr(merge_ingest, "_BATCH_RECORDS", 10_000)
    monkeypatch.setattr(merge_ingest, "_GATHER", 1)
    assert part_of(tmp_path, 1 << 20, False) == part_of(tmp_path, 1 << 20, True)


@pytest.mark.parametrize("lines", [1, 7, 300])
def test_statistics_are_the_same(lines: int) -> None:
    random = np.random.default_rng(lines)
    nodes = 200
    parent = np.concatenate(([0], [random.integers(0, n) for n in range(1, nodes)]))
    tree = union([CCT(parent.astype(np.uint32), np.arange(nodes, dtype=np.uint64) << 3)])[0]
    table = random.random((lines, nodes)) * (random.random((lines, nodes)) < 0.05)
    table[:, 7] = 1.0
    line, node = np.nonzero(table)
    start = np.searchsorted(line, np.arange(lines + 1))
    mean = tree.inclusive(table.sum(axis=0)) / lines
    answers = [
        context_statistics.extremes(
            tree, start, node.astype(np.uint32), table[line, node], mean, compiled
        )
        for compiled in (False, True)
    ]
    for one, other in zip(*answers, strict=True):
        seen = answers[0][0] > 0
        if one.dtype == np.int64:
            assert np.array_equal(one[seen], other[seen])
        else:
            assert np.allclose(one[seen], other[seen], rtol=1e-12, atol=1e-15)


@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(1, 300), min_size=2, max_size=6))
@settings(deadline=None, max_examples=40)
def test_united_trees_are_the_same(seed: int, sizes: list[int]) -> None:
    random = np.random.default_rng(seed)
    trees = []
    for size in sizes:
        parent = np.array([0] + [random.integers(0, n) for n in range(1, size)], np.uint32)
        frames = random.integers(1, 5, size).astype(np.uint64) << np.uint64(40)
        frames[0] = 0
        trees.append(CCT(parent, frames))
    tree, maps = union(trees)
    by_numba, node = unite(trees, kernels())
    assert np.array_equal(tree.parent, by_numba.parent)
    assert np.array_equal(tree.frame, by_numba.frame)
    assert np.array_equal(np.concatenate(maps), node)


def test_numpy_does_it_where_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCD_COMPILED", "0")
    compiled_module.cache_clear()
    assert kernels() is None
    monkeypatch.delenv("HPCD_COMPILED")
    compiled_module.cache_clear()
    assert kernels() is not None
