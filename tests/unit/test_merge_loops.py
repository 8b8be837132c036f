"""What compiled loops do is what numpy does, to the byte, for each level of processors."""

from __future__ import annotations

import ctypes
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcd.analysis.arrays.cell_store import by_line, pack_cells
from hpcd.analysis.arrays.sparse_sums import Cells, CellSum
from hpcd.analysis.merge import context_statistics
from hpcd.analysis.merge import ingest as merge_ingest
from hpcd.analysis.merge.canonical_modules import translate
from hpcd.analysis.merge.ingest import IngestTask, ingest
from hpcd.analysis.merge.metric_cells import _totals
from hpcd.analysis.merge.part_groups import unite
from hpcd.analysis.merge.record_batches import RecordColumns
from hpcd.analysis.merge.short_measurements import _bare
from hpcd.analysis.trace import blocks, overview, part_writer
from hpcd.analysis.trace.check_loops import CheckLoops
from hpcd.analysis.trace.intervals import Intervals
from hpcd.analysis.trace.merge_loops import MergeLoops, merge_loops
from hpcd.errors import FormatError
from hpcd.measurement.codec import TIME_UNIT_NS, RecordChunk, decode_records, encode_records
from hpcd.measurement.record_loops import RecordLoops
from hpcd.measurement.synthetic import Shape, recorded_source, synthesize
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.cct import CCT
from hpcd.model.cct_union import union
from hpcd.model.identity import Event, Host, Process, Thread
from hpcd.native.native_library import library_of, native_library

RECORDINGS = Path(__file__).parents[1] / "data/recordings"
EVENTS = (Event(0, "cpu-clock", "s", 1e-3, "cpu_time"),
          Event(1, "blocked", "s", 1e-6, "blocked_time", interval=True),
          Event(70, "other", "s", 1e-6, "blocked_time", interval=True))  # fmt: skip


LIBRARIES = [
    library
    for library in map(library_of, ("", "_v3"))
    if library is not None and (library is library_of("") or native_library() is library)
]
"""Those that this processor runs."""


@pytest.fixture(scope="module", params=LIBRARIES, ids=lambda library: Path(library._name).stem)
def library(request: pytest.FixtureRequest) -> ctypes.CDLL:
    found: ctypes.CDLL = request.param
    return found


@pytest.fixture(scope="module")
def loops(library: ctypes.CDLL) -> MergeLoops:
    return MergeLoops(library)


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
def test_checking_finds_the_same(library: ctypes.CDLL, seed: int, damaged: bool) -> None:
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
    check = CheckLoops(library)
    assert check.check_places(
        data, first, ends[encoded.frame], count, encoded.width, encoded.least, nodes, length,
        bad_node,
    )  # fmt: skip
    assert length.tolist() == since[:, -1].tolist()
    assert bad_node.tolist() == (node.max(axis=1) >= nodes).tolist()
    interval, bad_event = np.isin(np.arange(events), [1, 70]), np.zeros(len(count), bool)
    seen = check.check_codes(
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
def test_entries_and_blocks_are_the_same(
    loops: MergeLoops, seed: int, lengths: list[int], gap: int
) -> None:
    batch, intervals = random_batch(seed, lengths, gap), Intervals(EVENTS)
    plain = intervals.expand(batch)
    start, ticks, node, event, value, all_plain = loops.expand(
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
        two = blocks.encode(cuts, ticks, node, *weights, loops)
        assert one.data == two.data
        for name in ("content", "frame", "at", "code_frame", "code_at", "least", "width"):
            assert np.array_equal(getattr(one, name), getattr(two, name))


@given(seed=st.integers(0, 1000), lengths=st.lists(st.integers(1, 400), min_size=1, max_size=6),
       limit=st.sampled_from([1 << 24, 1 << 14]))  # fmt: skip
@settings(deadline=None, max_examples=40)
def test_sums_are_the_same(loops: MergeLoops, seed: int, lengths: list[int], limit: int) -> None:
    batch = random_batch(seed, lengths, 300)
    nodes = int(batch.node.max()) + 1
    answers = []
    for module in (None, loops):
        sums = CellSum(len(lengths), nodes, limit=limit, loops=module)
        for _ in range(2):
            sums.add(batch.line, batch.start, batch.node, batch.event, batch.value)
        answers.append(sums.result())
    for name in ("line", "node", "event", "records", "value"):
        assert np.array_equal(getattr(answers[0], name), getattr(answers[1], name))


def parts_of(folder: Path, memory: int, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The part of the measurement ``folder/m``, made by numpy and by each library."""
    parts = []
    for number, module in enumerate((None, *map(MergeLoops, LIBRARIES))):
        for user in (merge_ingest, overview, part_writer):
            monkeypatch.setattr(user, "merge_loops", lambda module=module: module)
        made = folder / f"parts-{number}"
        made.mkdir()
        parts.append(ingest(IngestTask(folder / "m", made, None, memory)).part.read_bytes())
    return parts


@pytest.mark.parametrize(
    ("name", "records"),
    [("mpi", 4000), ("openmp", 4000), ("build", 4000), ("server", 4000), ("mpi", 8000)],
)
def test_parts_are_the_same(
    name: str, records: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthesize(tmp_path / "m", Shape(6, records, ranks_per_node=6),
               recorded_source(RECORDINGS / name), 0)  # fmt: skip
    assert len(set(parts_of(tmp_path, 1 << 30, monkeypatch))) == 1


@given(seed=st.integers(0, 1000), lengths=st.lists(st.integers(1, 400), min_size=1, max_size=6),
       cut=st.integers(0, 60), flipped=st.integers(0, 1 << 16), high=st.booleans())  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_chunks_are_read_the_same(
    library: ctypes.CDLL, seed: int, lengths: list[int], cut: int, flipped: int, high: bool
) -> None:
    """Also where bytes are missing, or are not what they were."""
    batch = random_batch(seed, lengths, 300)
    line = np.repeat(batch.line + np.uint32(4), lengths)
    event = batch.event * np.uint16(900 if high else 1)
    data = encode_records(line, batch.time_ns, batch.node, event, batch.value, lasting=(1, 70))
    data = data[: len(data) - cut] if cut < 30 else data
    if flipped & 1:
        changed = bytearray(data)
        changed[flipped * 31 % min(len(data), 400 if flipped & 2 else len(data))] ^= (
            1 << flipped % 8
        )
        data = bytes(changed)
    answers: list[RecordChunk | None] = []
    for module in (None, RecordLoops(library)):
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
    writer.close()


@pytest.mark.parametrize("events", [2, 6, 40])
def test_parts_of_unusual_measurements_are_the_same(
    events: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unusual(tmp_path / "m", events=events)
    monkeypatch.setattr(merge_ingest, "_BATCH_RECORDS", 10_000)
    monkeypatch.setattr(merge_ingest, "_GATHER", 1)
    assert len(set(parts_of(tmp_path, 1 << 20, monkeypatch))) == 1


@pytest.mark.parametrize("lines", [1, 7, 300])
def test_statistics_are_the_same(loops: MergeLoops, lines: int) -> None:
    random = np.random.default_rng(lines)
    nodes = 200
    parent = np.concatenate(([0], [random.integers(0, n) for n in range(1, nodes)]))
    tree = union([CCT(parent.astype(np.uint32), np.arange(nodes, dtype=np.uint64) << 3)])[0]
    table = random.random((lines, nodes)) * (random.random((lines, nodes)) < 0.05)
    table[:, 7] = 1.0
    line, node = np.nonzero(table)
    begin, end = (np.searchsorted(line, np.arange(lines), side) for side in ("left", "right"))
    order = random.permutation(lines)
    amount, scale = np.ceil(table[line, node] * 1e6).astype(np.uint64), np.array([0.0, 1e-6])
    event = random.integers(0, 2, len(node)).astype(np.uint16)
    cells = Cells(line.astype(np.uint32), node.astype(np.uint32), event, amount, amount)
    mean = tree.inclusive(table.sum(axis=0)) / lines
    answers = [
        context_statistics.extremes(
            tree, begin[order], end[order], cells, amount, scale, mean, module
        )
        for module in (None, loops)
    ]
    for one, other in zip(*answers, strict=True):
        seen = answers[0][0] > 0
        if one.dtype == np.int64:
            assert np.array_equal(one[seen], other[seen])
        else:
            assert np.allclose(one[seen], other[seen], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("nodes", [1, 50, 1 << 20])
def test_sums_are_put_in_order_alike(loops: MergeLoops, nodes: int) -> None:
    random = np.random.default_rng(nodes)
    key = np.unique(random.integers(0, 40 * nodes * 3, 5000))
    line, node, event = key // (3 * nodes), key // 3 % nodes, np.array([0, 5, 70])[key % 3]
    records = random.integers(1, 1 << 40, len(key)).astype(np.uint64)
    cells = Cells(line.astype(np.uint32), node.astype(np.uint32), event.astype(np.uint16), records,
                  random.integers(0, 9, len(key)).astype(np.uint64))  # fmt: skip
    one, other = pack_cells(cells), pack_cells(cells, loops)
    assert one.frames == other.frames
    assert one.event.tolist() == other.event.tolist()
    assert one.cells.tolist() == other.cells.tolist()
    backwards = Cells(*(getattr(cells, name)[::-1].copy() for name in Cells.__slots__))
    assert pack_cells(backwards, loops).frames == one.frames
    mixed = np.lexsort((cells.line, cells.node, cells.event))
    by_event = Cells(*(getattr(cells, name)[mixed] for name in Cells.__slots__))
    for module in (None, loops):
        ordered, start = by_line(by_event, 40, nodes, module)
        assert all(np.array_equal(getattr(ordered, name), getattr(cells, name))
                   for name in Cells.__slots__)  # fmt: skip
        assert start.tolist() == np.searchsorted(line, np.arange(41)).tolist()


@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(1, 300), min_size=2, max_size=6))
@settings(deadline=None, max_examples=40)
def test_united_trees_are_the_same(loops: MergeLoops, seed: int, sizes: list[int]) -> None:
    random = np.random.default_rng(seed)
    trees = []
    for size in sizes:
        parent = np.array([0] + [random.integers(0, n) for n in range(1, size)], np.uint32)
        frames = random.integers(1, 5, size).astype(np.uint64) << np.uint64(40)
        frames[0] = 0
        trees.append(CCT(parent, frames))
    tree, maps = union(trees)
    by_loops, node = unite(trees, loops)
    assert np.array_equal(tree.parent, by_loops.parent)
    assert np.array_equal(tree.frame, by_loops.frame)
    assert np.array_equal(np.concatenate(maps), node)


def test_numpy_does_it_where_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCD_COMPILED", "0")
    assert merge_loops() is None
    monkeypatch.delenv("HPCD_COMPILED")
    assert merge_loops() is not None


def test_what_there_is_not_is_refused(library: ctypes.CDLL, loops: MergeLoops) -> None:
    """Nodes, lines, blocks and parents out of range: no loop looks where they would be."""
    batch = random_batch(0, [50, 60], 300)
    start, time = batch.start, (batch.time_ns // TIME_UNIT_NS).astype(np.int64)
    event, value = batch.event, batch.value
    node = batch.node % np.uint32(7)
    far = np.full_like(node, (1 << 32) - 1)
    slot_of = np.full(1 << 16, -1, np.int16)
    used = loops.slots(event, slot_of, 0, 8)
    tables = np.zeros((used, 2 * 7), np.uint32), np.zeros((used, 2 * 7), np.uint64)
    for line, bad in ((batch.line, far), (batch.line + np.uint32(9), node)):
        with pytest.raises(IndexError):
            loops.count(line, start, bad, event, value, slot_of, 7, *tables)
    assert loops.slots(event, np.full(1 << 16, -1, np.int16), 0, 1) == -1
    with pytest.raises(ValueError, match="65536"):
        loops.slots(event, slot_of[:70], 0, 8)
    places = slot_of.astype(np.int64)
    with pytest.raises(IndexError):
        loops.line_cells(start, far, event, value, places, 7)
    row = np.repeat(batch.line, np.diff(start))
    for line, bad in ((row, far), (row + np.uint32(2), node)):
        with pytest.raises(IndexError):
            loops.united_sums(line, bad, event, value, value, 2, places, np.zeros(used, np.uint16),
                              np.zeros((7 * used, 2), np.uint64))  # fmt: skip
    for cuts in ([0, 0, 110], [0, 111], [-1, 110], [50, 20]):
        with pytest.raises(IndexError):
            loops.place_planes(np.array(cuts), time, node)
        with pytest.raises(IndexError):
            loops.code_planes(np.array(cuts), time, event, value)
    for parent in (2, 3, (1 << 32) - 1):
        parents = np.array([0, 0, parent], np.uint32)
        with pytest.raises(IndexError):
            loops.unite(parents, np.arange(3, dtype=np.uint64), np.array([0, 3]), 1)
        with pytest.raises(IndexError):
            loops.inclusive_extremes(
                parents, np.zeros(1, int), np.ones(1, int), np.array([2], np.uint32),
                np.zeros(1, np.uint16), np.ones(1, np.uint64), np.ones(1), np.zeros(3),
            )  # fmt: skip
    for first, last, lost, kind in ((0, 1, 3, 0), (0, 1, 0, 1), (-1, 1, 0, 0), (0, 2, 0, 0)):
        with pytest.raises(IndexError):
            loops.inclusive_extremes(
                np.zeros(3, np.uint32), np.array([first]), np.array([last]),
                np.array([lost], np.uint32), np.array([kind], np.uint16), np.ones(1, np.uint64),
                np.ones(1), np.zeros(3),
            )  # fmt: skip
    for where, what in ((3, 0), (0, 3)):
        with pytest.raises(IndexError):
            loops.order_by_line(np.array([where], np.uint32), np.array([what], np.uint32), 3, 3)
    # Times out of order, and an array of another type.
    known = [np.full(2, -1), *(np.zeros(2, np.int64) for _ in range(3))]
    ends = (np.zeros(2, np.int64), np.zeros(2, np.uint32))
    pieces, entries = loops.overview(
        np.arange(2), start, time[::-1].copy(), node, known, ends, ends
    )
    assert pieces[:, 3].sum() == len(entries)
    for piece in ([0, 0, 0, 9, 2], [0, 0, 0, 11, 0], [0, 0, 0, 1, -1], [0, 3, 0, 1, 0],
                  [0, -1, 0, 1, 0], [0, 0, -1, 1, 0]):  # fmt: skip
        with pytest.raises(IndexError):
            loops.thin(np.array([piece]), np.zeros(10, np.uint32), 4, 0, 0, (1, 2), ends[1])
    loops.thin(
        np.array([[0, 0, 3, 7, 3]]), np.arange(10, dtype=np.uint32), 1, 9, 0, (1, 2), ends[1]
    )
    assert ends[1].tolist() == [9, 2]  # the pieces reach beyond both ends
    with pytest.raises(ctypes.ArgumentError):
        loops.place_planes(np.array([0, 110]), time, node.astype(np.int64))
    check = CheckLoops(library)
    data, one = np.zeros(100, np.uint8), np.ones(1, np.int64)
    length, wrong, least = np.zeros(1, np.int64), np.zeros(1, bool), np.zeros(1, np.uint32)
    width = np.array([1 | 1 << 4 | 1 << 8 | 1 << 14], np.uint16)
    huge = 1 << 62
    for begin, end, count in ((-1, 100, 1), (0, 101, 1), (99, 100, 1), (0, 100, 51), (0, 100, 0),
                              (huge, 100, 1), (0, 100, huge), (0, -huge, 1)):  # fmt: skip
        assert not check.check_places(data, begin * one, end * one, count * one, width, least, 9,
                                      length, wrong)  # fmt: skip
    for begin, end, count, place in ((0, 101, 1, 0), (100, 100, 1, 0), (0, 100, 101, 0),
                                     (0, 100, 1, 100), (0, 100, 1, -1)):  # fmt: skip
        assert check.check_codes(data, begin * one, end * one, count * one, width, wrong, wrong,
                                 data, place * one, least) == -1  # fmt: skip
    data[:50] = 3  # so many values that there is no room for
    assert check.check_codes(data, 0 * one, 100 * one, 50 * one, width | 2 << 10, wrong, wrong,
                             data, 0 * one, least) == -1  # fmt: skip


@given(seed=st.integers(0, 1000), distinct=st.sampled_from([1, 250, 256, 257, 3000]))
@settings(deadline=None, max_examples=20)
def test_dictionaries_of_lines_are_the_same(loops: MergeLoops, seed: int, distinct: int) -> None:
    random = np.random.default_rng(seed)
    chosen = random.choice(1 << 16, distinct, replace=False).astype(np.uint16)
    nodes = np.concatenate((chosen, random.choice(chosen, 5000)))
    found = loops.few_nodes(nodes)
    unique, place = np.unique(nodes, return_inverse=True)
    assert (found is None) == (distinct > 256)
    if found is not None:
        assert found[0].tolist() == unique.tolist()
        assert found[1].tolist() == place.tolist()


@given(st.lists(st.integers(0, 1 << 40), unique=True, max_size=300), st.booleans())
@settings(deadline=None, max_examples=40)
def test_sums_of_a_line_are_in_order(loops: MergeLoops, chosen: list[int], wide: bool) -> None:
    """However many there are, whatever their order."""
    node = np.array(chosen, np.int64) % (1 << 20 if wide else 200)
    ones = np.ones(len(node), np.uint64)
    first, key, records, value = loops.line_cells(
        np.array([0, len(node)]), node.astype(np.uint32), ones.astype(np.uint16), ones,
        np.array([-1, 0]), 1 << 20,
    )  # fmt: skip
    distinct, counts = np.unique(node, return_counts=True)
    assert first.tolist() == [0, len(distinct)]
    assert key.tolist() == distinct.tolist()
    assert records.tolist() == value.tolist() == counts.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_short_parts_are_numbered_and_their_sums_added_up_alike(
    library: ctypes.CDLL, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)
    loops = MergeLoops(library)
    frames = random.integers(0, 1 << 63, 500, dtype=np.uint64)
    frames[::3] = (frames[::3] % np.uint64(9)) << np.uint64(40) | np.uint64(77)
    modules = random.integers(0, 3, 6).astype(np.uint32)
    tree = CCT(np.zeros(500, np.uint32), frames)
    monkeypatch.setenv("HPCD_COMPILED", "0")
    assert (loops.translate(frames, modules) == translate(tree, modules).frame).all()
    start = np.array([0, 40, 41, 300])
    node = np.concatenate([random.integers(a, b, 60 * (b - a > 1) + 1)
                           for a, b in pairwise(start.tolist())])  # fmt: skip
    seen, bounds, number = loops.number_nodes(node, start)
    for part, (first, last) in enumerate(pairwise(start.tolist())):
        counts = np.bincount(node[(node >= first) & (node < last)] - first)
        own = np.flatnonzero(counts)
        expected = own[np.argsort(-counts[own], kind="stable")] + first
        assert seen[bounds[part] : bounds[part + 1]].tolist() == expected.tolist()
        mine = (node >= first) & (node < last)
        assert (seen[bounds[part] + number[mine]] == node[mine]).all()
    for strange in (-1, 300):
        with pytest.raises(IndexError):
            loops.number_nodes(np.array([5, strange]), start)
    above = np.array([0, 0, 1, 1, 0], np.uint32)
    grown = CCT(above, np.arange(5, dtype=np.uint64))
    for known in (np.zeros(0, np.uint32), np.array([2, 4], np.uint32)):
        assert _bare(grown, known, loops).tolist() == _bare(grown, known, None).tolist()
    for parents, known in ((above, above + 5), (above + 5, above)):
        with pytest.raises(IndexError):
            loops.bare_nodes(parents.astype(np.uint32), known.astype(np.uint32))
    event = random.choice([0, 3], 400).astype(np.uint16)
    records, value = (random.integers(0, 1 << 60, 400, dtype=np.uint64) for _ in range(2))
    cells = Cells(random.integers(0, 9, 400).astype(np.uint32), np.zeros(400, np.uint32), event,
                  records, value)  # fmt: skip
    scale = random.random((3, 4))
    assert (_totals(cells.line, 9, cells, scale, loops)
            == _totals(cells.line, 9, cells, scale, None)).all()  # fmt: skip
    with pytest.raises(IndexError):
        loops.cell_totals(cells.line, event, records, value, np.zeros(4, np.int64), 1, 8)
    one = np.arange(5)
    place = np.array([[1]])
    assert loops.part_tables([one], np.array([2]), place, np.array([[3]]), place) == [
        bytes([0, 1, 2, 0, 0, 0])
    ]
    for begin, count in ((-1, 1), (0, 6), (6, 0), (3, 3)):
        with pytest.raises(IndexError):
            loops.part_tables([one], np.array([2]), np.array([[begin]]), np.array([[count]]), place)
