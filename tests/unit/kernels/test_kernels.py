"""Kernels do what simple oracles do, for each level of processors, and refuse what cannot be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcd.analysis.arrays import cell_store, sparse_sums
from hpcd.analysis.arrays.cell_store import order_by_line, pack_cells
from hpcd.analysis.arrays.sparse_sums import Cells, CellSum, sum_records
from hpcd.analysis.merge.publish import context_statistics
from hpcd.analysis.merge.read import part_making
from hpcd.analysis.merge.read.record_batches import RecordColumns
from hpcd.analysis.merge.unite.canonical_modules import translate
from hpcd.analysis.merge.unite.metric_cells import _totals
from hpcd.analysis.merge.unite.part_groups import unite
from hpcd.analysis.merge.unite.scratch import Scratch
from hpcd.analysis.trace import blocks
from hpcd.analysis.trace.intervals import Intervals
from hpcd.analysis.trace.part import Part
from hpcd.analysis.trace.part_writer import _dictionary
from hpcd.errors import FormatError, PlatformError
from hpcd.kernels import library
from hpcd.kernels.library import Kernels, kernels, library_path, structure, structure_dtype
from hpcd.measurement.codec import TIME_UNIT_NS, RecordChunk, decode_records, encode_records
from hpcd.measurement.reader import open_measurement
from hpcd.measurement.record_columns import by_line_and_time, in_order
from hpcd.measurement.synthetic import Shape, Synthesizer
from hpcd.measurement.synthetic_source import recorded_source
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame
from hpcd.model.cct import CCT
from hpcd.model.cct_union import union
from hpcd.model.codes import State
from hpcd.model.identity import KERNEL_KINDS, Event, Host, Module, ModuleKind, Process, Thread
from tests.support.chunk_oracle import read_records
from tests.support.ingested import ingest_one
from tests.support.paths import ROOT

RECORDINGS = ROOT / "tests/data/recordings"
EVENTS = (Event(0, "cpu-clock", "s", 1e-3, "cpu_time"),
          Event(1, "blocked", "s", 1e-6, "blocked_time", interval=True),
          Event(70, "other", "s", 1e-6, "blocked_time", interval=True))  # fmt: skip
LEVELS = ["", *({library._level()} - {""})]
"""Those that this processor runs."""


@pytest.fixture(scope="module", params=LEVELS, autouse=True)
def level(request: pytest.FixtureRequest) -> Iterator[None]:
    """All kernels are of one level."""
    saved = dict(vars(kernels))
    vars(kernels).clear()
    vars(kernels)["_level"] = request.param
    yield
    vars(kernels).clear()
    vars(kernels).update(saved)


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


Row = tuple[int, int, int, int]


def entries_of(
    rows: list[Row], intervals: Intervals, resumed: list[int | None] | None = None
) -> list[Row]:
    """The entries of one line's records (ns, node, event, value): ticks in place of times, and one
    more at the end of each interval, at the node that ``resumed`` has of it if it has any. Sums of
    short waits inside of another record are put before it, at its time."""
    # Of what is not a sum inside of another record: its entry, and its end.
    pieces: list[tuple[Row, Row | None]] = []
    inside: list[list[Row]] = []
    until = 0
    for at, (time, node, event, value) in enumerate(rows):
        tick = time // TIME_UNIT_NS
        is_sum = intervals.states.state[event] == State.RESUMED
        if is_sum and pieces and (time < until or tick <= pieces[-1][0][0]):
            inside[-1].append((pieces[-1][0][0], node, event, value))
            continue
        if pieces and pieces[-1][1] is not None:
            ((began, *rest), (ends, *others)) = pieces[-1]
            pieces[-1] = ((began, *rest), (min(ends, max(tick, began)), *others))
        length = float(intervals.length_ns[event]) * value
        until = time + int(min(length, float(1 << 60))) if length > 0 else time
        after = resumed[at] if resumed is not None else None
        end = (until // TIME_UNIT_NS, node if after is None else after, event, 0)
        pieces.append(((tick, node, event, value), end if length > 0 else None))
        inside.append([])
    entries: list[Row] = []
    for sums, (entry, ended) in zip(inside, pieces, strict=True):
        entries += [*sums, entry] + ([ended] if ended else [])
    return entries


def user_nodes(path: Path) -> list[int]:
    """The innermost node outside of the kernel on the path of each node of a measurement."""
    user = [0]
    with open_measurement(path) as measurement:
        tree, modules = measurement.cct, measurement.modules
        for node, (parent, module) in enumerate(
            zip(tree.parent.tolist(), frame.module_of(tree.frame).tolist(), strict=True)
        ):
            in_kernel = module in modules and modules[module].kind in KERNEL_KINDS
            if node:
                user.append(user[parent] if in_kernel else node)
    return user


def resumed_nodes(rows: list[Row], intervals: Intervals, user: list[int]) -> list[int | None]:
    """Return the node that a thread runs in behind each record where no sample shows it.

    ``rows`` are the records of one line in one chunk. For comparison with ``resumed_paths.c``.
    """
    state = [State(int(intervals.states.state[row[2]])) for row in rows]
    waits = [at for at, kind in enumerate(state) if kind in (State.BLOCKED, State.READY)]
    # Between each two waits: their user frames, and the first and the last sample.
    gaps = []
    for wait, following in pairwise([*waits, len(rows)]):
        seen = [at for at in range(wait, following) if state[at] == State.SAMPLED]
        behind = user[rows[following][1]] if following < len(rows) else None
        gaps.append(((user[rows[wait][1]], behind), seen))
    answer: list[int | None] = [None] * len(rows)
    until = 0
    for number, at in enumerate(waits):
        time, leaf, event, value = rows[at]
        follows = number > 0 and time // TIME_UNIT_NS <= until
        preempted = state[at] == State.READY and not follows
        end = time + int(float(intervals.length_ns[event]) * value)
        until = end // TIME_UNIT_NS
        pair, seen = gaps[number]
        at_once = number + 1 < len(waits) and rows[waits[number + 1]][0] // TIME_UNIT_NS <= until
        if seen or at_once:
            continue
        answer[at] = user[leaf] if preempted else 0
        if pair[1] is None:
            continue
        before = [some[-1] for other, some in gaps[:number] if other == pair and some]
        after = [some[0] for other, some in gaps[number:] if other == pair and some]
        closest = before[-1] if before else None
        if after and (closest is None or rows[after[0]][0] - end < end - rows[closest][0]):
            closest = after[0]
        if closest is not None:
            answer[at] = rows[closest][1]
    return answer


def rows_of(start: Any, *columns: Any) -> list[list[Row]]:
    """Line by line what columns have."""
    rows: list[Any] = list(zip(*(column.tolist() for column in columns), strict=True))
    return [rows[a:b] for a, b in pairwise(start.tolist())]


def test_kernels_that_are_not_compiled_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "OBJECTS", Path("/nowhere"))
    # What is open stays open: functions do not keep their library.
    monkeypatch.setattr(library, "_library", library._library.__wrapped__)
    with pytest.raises(PlatformError, match="make objects"):
        getattr(Kernels(""), "count_odd")  # noqa: B009
    assert library_path("_v3").name.startswith("kernels-")


def test_threads_that_are_first_share_one_declaration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_new_ffi", cache(library._new_ffi.__wrapped__))
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: id(library._ffi()), range(64)))) == 1


def test_arrays_of_another_type_are_refused() -> None:
    numbers = np.zeros(9, np.uint32)
    for wrong in (np.zeros(9, np.int64), numbers[::2], 5, [1, 2]):
        with pytest.raises(TypeError):
            kernels.count_odd(wrong, 3)
    with pytest.raises(TypeError):
        structure("pixels", times=numbers, columns=9, spacing=1.0)
    with pytest.raises(ValueError):
        kernels.count_odd(numbers)
    with pytest.raises(AttributeError, match="no kernel"):
        kernels.no_such_thing  # noqa: B018


@given(seed=st.integers(0, 1 << 30), n=st.one_of(st.integers(0, 300), st.just(2000)),
       nodes=st.sampled_from([1, 9, 1 << 24]))  # fmt: skip
@settings(max_examples=60)
def test_records_are_put_in_order_and_encoded(seed: int, n: int, nodes: int) -> None:
    random = np.random.default_rng(seed)
    time = random.integers(0, 20_000 * max(n, 1), n) + 10**15
    event = random.choice([0, 0, 1, 2, 65_535], n)
    value = random.choice([1, 1, 2, 15, 3000, 1 << 43], n)
    line = random.integers(0, random.choice([1, 3, 4000, 70_000]), n)
    records: Any = (line.astype(np.uint32), time.astype(np.uint64),
                    random.integers(0, nodes, n).astype(np.uint32), event.astype(np.uint16),
                    value.astype(np.uint64))  # fmt: skip
    order = np.lexsort((time, line))
    assert by_line_and_time(*records[:2]).tolist() == order.tolist()
    expected = [column[order] for column in records]
    ordered = in_order(records)
    assert all(np.array_equal(a, b) for a, b in zip(expected, ordered, strict=True))
    lines, start, times, *rest = read_records(encode_records(ordered, [1, 65_535]))
    assert np.repeat(lines, np.diff(start)).tolist() == expected[0].tolist()
    assert times.tolist() == (expected[1] // 1000 * 1000).tolist()
    for mine, other in zip(rest, expected[2:], strict=True):
        assert mine.tolist() == other.tolist()


def test_an_order_that_is_hostile_is_sorted_in_passes() -> None:
    n = 200_000  # 20,000,000,000 steps, if they were quadratic
    line = np.zeros(n, np.uint32)
    time = np.arange(n, 0, -1).astype(np.uint64)
    assert (by_line_and_time(line, time) == np.arange(n)[::-1]).all()


@given(seed=st.integers(0, 1000), lengths=st.lists(st.integers(1, 400), min_size=1, max_size=6),
       cut=st.integers(0, 60), flipped=st.integers(0, 1 << 16), high=st.booleans())  # fmt: skip
@settings(max_examples=100)
def test_chunks_are_read_as_the_format_says(
    seed: int, lengths: list[int], cut: int, flipped: int, high: bool
) -> None:
    """Also where bytes are missing, or are not what they were."""
    batch = random_batch(seed, lengths, 300)
    line = np.repeat(batch.line + np.uint32(4), lengths)
    event = batch.event * np.uint16(900 if high else 1)
    data = encode_records((line, batch.time_ns, batch.node, event, batch.value), lasting=(1, 70))
    data = data[: len(data) - cut] if cut < 30 else data
    if flipped & 1:
        changed = bytearray(data)
        changed[flipped * 31 % min(len(data), 400 if flipped & 2 else len(data))] ^= (
            1 << flipped % 8
        )
        data = bytes(changed)
    try:
        expected = read_records(data)
    except FormatError:
        with pytest.raises(FormatError):
            decode_records(data, RecordColumns(7).room)
        return
    read = decode_records(data, RecordColumns(7).room)
    for name, column in zip(RecordChunk.__slots__, expected, strict=True):
        assert np.array_equal(getattr(read, name), column), name


@given(
    seed=st.integers(0, 1000),
    lengths=st.lists(st.integers(1, 2500), min_size=1, max_size=6),
    gap=st.sampled_from([3, 300, 70_000, 1 << 33]),
)
@settings(max_examples=20)
def test_entries_have_the_ends_of_intervals(seed: int, lengths: list[int], gap: int) -> None:
    batch, intervals = random_batch(seed, lengths, gap), Intervals(EVENTS)
    lines = rows_of(batch.start, batch.time_ns, batch.node, batch.event, batch.value)
    entries = intervals.expand(batch)
    expected = [entries_of(rows, intervals) for rows in lines]
    assert entries.start.tolist() == np.cumsum([0, *map(len, expected)]).tolist()
    if entries.event is None or entries.value is None:
        assert all(row[2:] == (0, 1) for rows in lines for row in rows)
        return
    plain = (entries.time, entries.node, entries.event, entries.value)
    assert rows_of(entries.start, *plain) == expected
    states = [0] * len(entries.time) if entries.state is None else entries.state.tolist()
    events, values = entries.event.tolist(), entries.value.tolist()
    for state, event, value in zip(states, events, values, strict=True):
        own = int(intervals.states.state[event])
        ends = value == 0 and own in (State.BLOCKED, State.READY)
        # A wait of no length has no end.
        assert state == own or (ends and state == State.RESUMED)


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
    for number in range(1, 10):
        writer.add_module(Module(number, ModuleKind.ELF, f"/lib/{number}.so"))
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


def records_by_line(path: Path) -> dict[int, list[list[Row]]]:
    """The records of a measurement, line by line, chunk by chunk."""
    lines = defaultdict(list)
    with open_measurement(path) as measurement:
        for chunk in measurement.record_chunks():
            columns = (chunk.time_ns, chunk.node, chunk.event, chunk.value)
            for line, rows in zip(chunk.line.tolist(), rows_of(chunk.start, *columns), strict=True):
                lines[line].append(rows)
    return lines


def check_part(path: Path, folder: Path, memory: int = 1 << 30, *, by_chunk: bool = False) -> None:
    """That the part of a measurement has its records, in order, and their sums. Intervals end where
    the next record begins that was read together with them: in the same chunk, ``by_chunk``."""
    folder.mkdir()
    contents = ingest_one(path, folder, memory)
    part = Part(contents.path)
    with open_measurement(path) as measurement:
        codes = {event.name: event.id for event in measurement.events.values()}
        intervals, nodes = Intervals(measurement.events.values()), len(measurement.cct)
    user = user_nodes(path)
    tree, order = Scratch(part.path).tree()
    # Siblings differ: the tree of one measurement is its own.
    assert len(tree) == nodes
    code_of = np.array([codes[event.name] for event in contents.events], np.uint16)
    cells = Scratch(part.path).sums()
    sums: dict[Row, list[int]] = defaultdict(lambda: [0, 0])
    for row, (line, chunks) in enumerate(sorted(records_by_line(path).items())):
        assert part.lines.source[row] == line
        selected = slice(*part.lines.block[row : row + 2].tolist())
        since, node = part.places(selected)
        event, value = part.weights(selected, since)
        time = since.astype(np.int64) + part.blocks.base[selected][:, None]
        real = np.arange(blocks.BLOCK_RECORDS) < part.blocks.records[selected][:, None]
        rows = [record for chunk in chunks for record in chunk]
        times = [record[0] for record in rows]
        resumed = [resumed_nodes(chunk, intervals, user) for chunk in chunks]
        together = list(zip(chunks, resumed, strict=True))
        if not by_chunk:
            together = [(rows, [node for some in resumed for node in some])]
        expected = [
            entry for some, nodes in together for entry in entries_of(some, intervals, nodes)
        ]
        assert time[real].tolist() == sorted(entry[0] for entry in expected)
        if times == sorted(times):
            codes_met = code_of[event[real]].tolist()
            entries = zip(time[real].tolist(), order[node[real]].tolist(), codes_met,
                          value[real].tolist(), strict=True)  # fmt: skip
            # The end of an interval may be after what begins at that moment.
            assert sorted(entries) == sorted(expected)
        for _, of, kind, amount in rows:
            sums[row, of, kind, 0][0] += 1
            sums[row, of, kind, 0][1] += amount
    found_sums = zip(cells.line.tolist(), order[cells.node].tolist(), code_of[cells.event].tolist(),
                     cells.records.tolist(), cells.value.tolist(), strict=True)  # fmt: skip
    assert {(a, b, c, 0): [d, e] for a, b, c, d, e in found_sums} == sums


@pytest.mark.parametrize(
    ("name", "records"),
    [("mpi", 4000), ("openmp", 4000), ("build", 4000), ("server", 4000), ("mpi", 8000)],
)
def test_a_part_has_the_records_of_its_measurement(name: str, records: int, tmp_path: Path) -> None:
    source = recorded_source(RECORDINGS / name)
    Synthesizer(Shape(6, records, ranks_per_node=6), source).write(tmp_path / "m", 0)
    check_part(tmp_path / "m", tmp_path / "parts")


@pytest.mark.parametrize("events", [2, 6, 40])
def test_a_part_has_the_records_of_an_unusual_measurement(
    events: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unusual(tmp_path / "m", events=events)
    monkeypatch.setattr(part_making, "_BATCH_RECORDS", 10_000)
    monkeypatch.setattr(part_making, "_GATHER", 1)
    check_part(tmp_path / "m", tmp_path / "parts", memory=1 << 20, by_chunk=True)


@given(seed=st.integers(0, 1000), damaged=st.booleans())
@settings(max_examples=40)
def test_checking_finds_what_decoding_shows(seed: int, damaged: bool) -> None:
    """Blocks of a batch, sound or with changed bytes."""
    random = np.random.default_rng(seed)
    start, ticks, nodes_of, states, event, value = Intervals(EVENTS).expand(
        random_batch(seed, [3000, 1, 1100], 300)
    )
    cuts = blocks.cut(start, ticks)
    encoded = blocks.encode(cuts, ticks, nodes_of, states, event, value)
    count, nodes, events = np.diff(cuts), int(nodes_of.max()) + 1, 71
    contents = [bytearray(zstandard.decompress(frame)) for frame in encoded.data]
    if damaged:
        victim = contents[random.integers(len(contents))]
        victim[random.integers(len(victim))] ^= 1 << random.integers(8)
    ends = np.cumsum([len(content) for content in contents])
    begin = ends - [len(content) for content in contents]
    data = np.frombuffer(b"".join(contents), np.uint8)
    places, codes = (
        blocks.StoredBlocks(data, begin[frame] + at, ends[frame], count, encoded.width)
        for frame, at in ((encoded.frame, encoded.at), (encoded.code_frame, encoded.code_at))
    )
    since, node = blocks.decode_places(places, encoded.least)
    length, bad_node = np.zeros(len(count), np.int64), np.zeros(len(count), bool)
    stored = places.as_structure()
    assert kernels.check_places(stored, encoded.least, nodes, length, bad_node)
    assert length.tolist() == since[:, -1].tolist()
    assert bad_node.tolist() == (node.max(axis=1) >= nodes).tolist()
    interval, bad_event = np.isin(np.arange(events), [1, 70]), np.zeros(len(count), bool)
    seen = kernels.check_codes(codes.as_structure(), interval, events, bad_event)
    try:
        found_event, found_value = blocks.decode_codes(codes, since)
    except FormatError:
        assert seen == -1
        return
    real = np.arange(blocks.BLOCK_RECORDS) < count[:, None]
    assert bad_event.tolist() == ((found_event >= events) & real).any(axis=1).tolist()
    lasting = int((np.isin(found_event, [1, 70]) & (found_value != 0) & real).sum())
    # A value of 0 is encoded in one way; damaged bytes of other codes may decode to 0, too.
    assert seen >= lasting if damaged else seen == lasting


@given(seed=st.integers(0, 1000), lengths=st.lists(st.integers(1, 400), min_size=1, max_size=6))
@settings(max_examples=40)
def test_sums_in_a_table_are_those_by_sorting(seed: int, lengths: list[int]) -> None:
    batch = random_batch(seed, lengths, 300)
    nodes = int(batch.node.max()) + 1
    answers = []
    for limit in (sparse_sums._LINE_LIMIT, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sparse_sums, "_LINE_LIMIT", limit)
            sums = CellSum(len(lengths), nodes)
            for _ in range(2):
                sums.add(batch.line, batch.start, batch.node, batch.event, batch.value)
            answers.append(sums.result())
    for name in ("line", "node", "event", "records", "value"):
        assert np.array_equal(getattr(answers[0], name), getattr(answers[1], name))


@pytest.mark.parametrize("lines", [1, 7, 300])
def test_statistics_are_those_of_a_table(lines: int) -> None:
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
    counts, squares, least, most, least_line, most_line, whole = context_statistics.extremes(
        tree, begin[order], end[order], cells, amount, scale, mean
    )
    exact = np.zeros((lines, nodes))
    exact[line, node] = amount * scale[event]
    values = np.stack([tree.inclusive(row) for row in exact[order]])
    some = values != 0
    seen = some.any(axis=0)
    assert counts.tolist() == some.sum(axis=0).tolist()
    assert np.allclose(squares, (((values - mean) * some) ** 2).sum(axis=0), rtol=1e-12, atol=1e-15)
    low, high = np.where(some, values, np.inf), np.where(some, values, -np.inf)
    assert np.allclose(least[seen], low.min(axis=0)[seen], rtol=1e-12)
    assert np.allclose(most[seen], high.max(axis=0)[seen], rtol=1e-12)
    assert least_line[seen].tolist() == low.argmin(axis=0)[seen].tolist()
    assert most_line[seen].tolist() == high.argmax(axis=0)[seen].tolist()
    first_none = np.where(some.all(axis=0), lines, some.argmin(axis=0))
    assert whole[seen].tolist() == first_none[seen].tolist()


@pytest.mark.parametrize("nodes", [1, 50, 1 << 20])
def test_sums_are_put_in_order_alike(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(nodes)
    key = np.unique(random.integers(0, 40 * nodes * 3, 5000))
    line, node, event = key // (3 * nodes), key // 3 % nodes, np.array([0, 5, 70])[key % 3]
    records = random.integers(1, 1 << 40, len(key)).astype(np.uint64)
    cells = Cells(line.astype(np.uint32), node.astype(np.uint32), event.astype(np.uint16), records,
                  random.integers(0, 9, len(key)).astype(np.uint64))  # fmt: skip
    one = pack_cells(cells)
    backwards = Cells(*(getattr(cells, name)[::-1].copy() for name in Cells.__slots__))
    assert pack_cells(backwards).frames == one.frames
    with monkeypatch.context() as patch:
        patch.setattr(cell_store, "_pack_by_table", lambda _: None)
        other = pack_cells(cells)
    assert one.frames == other.frames
    assert one.event.tolist() == other.event.tolist()
    assert one.cells.tolist() == other.cells.tolist()
    mixed = np.lexsort((cells.line, cells.node, cells.event))
    by_event = Cells(*(getattr(cells, name)[mixed] for name in Cells.__slots__))
    order, start = order_by_line(by_event, 40, nodes)
    for name in Cells.__slots__:
        assert np.array_equal(getattr(by_event, name)[order], getattr(cells, name))
    assert start.tolist() == np.searchsorted(line, np.arange(41)).tolist()


@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(1, 300), min_size=2, max_size=6))
@settings(max_examples=40)
def test_trees_united_as_met_are_those_united_level_by_level(seed: int, sizes: list[int]) -> None:
    random = np.random.default_rng(seed)
    trees = []
    for size in sizes:
        parent = np.array([0] + [random.integers(0, n) for n in range(1, size)], np.uint32)
        frames = random.integers(1, 5, size).astype(np.uint64) << np.uint64(40)
        frames[0] = 0
        trees.append(CCT(parent, frames))
    tree, maps = union(trees)
    united, node = unite(trees)
    assert np.array_equal(tree.parent, united.parent)
    assert np.array_equal(tree.frame, united.frame)
    assert np.array_equal(np.concatenate(maps), node)


def test_sums_of_what_does_not_exist_are_refused() -> None:
    """Nodes and lines out of range: no kernel looks where they would be."""
    batch = random_batch(0, [50, 60], 300)
    node = batch.node % np.uint32(7)
    far = np.full_like(node, (1 << 32) - 1)
    with pytest.raises(IndexError):
        sum_records(batch.line, batch.start, far, batch.event, batch.value, 7)
    row = np.repeat(batch.line, np.diff(batch.start))
    for line, bad in ((row, far), (row + np.uint32(2), node)):
        sums = CellSum(2, 7)
        sums.add_sums(Cells(line, bad, batch.event, batch.value, batch.value))
        with pytest.raises(IndexError):
            sums.result()
    for where, what in ((3, 0), (0, 3)):
        one = Cells(np.array([where], np.uint32), np.array([what], np.uint32),
                    np.zeros(1, np.uint16), *np.ones((2, 1), np.uint64))  # fmt: skip
        with pytest.raises(IndexError):
            order_by_line(one, 3, 3)


def test_blocks_that_do_not_exist_are_refused() -> None:
    batch = random_batch(0, [50, 60], 300)
    time = (batch.time_ns // TIME_UNIT_NS).astype(np.int64)
    for cuts in ([0, 0, 110], [0, 111], [-1, 110], [50, 20]):
        with pytest.raises(IndexError):
            blocks.encode(np.array(cuts), time, batch.node, None, None, None)
        with pytest.raises(IndexError):
            blocks.encode(np.array(cuts), time, batch.node, None, batch.event, batch.value)
    data, one = np.zeros(100, np.uint8), np.ones(1, np.int64)
    length, wrong, least = np.zeros(1, np.int64), np.zeros(1, bool), np.zeros(1, np.uint32)
    width = np.array([1 | 1 << 4 | 1 << 8], np.uint16)
    step, node = np.zeros(1024, np.uint32), np.zeros(1024, np.uint32)

    def stored(begin: int, end: int, count: int, width: Any = width) -> Any:
        block = blocks.StoredBlocks(data, begin * one, end * one, count * one, width)
        return block.as_structure()

    huge = 1 << 62
    for begin, end, count in ((-1, 100, 1), (0, 101, 1), (99, 100, 1), (0, 100, 51), (0, 100, 0),
                              (huge, 100, 1), (0, 100, huge), (0, -huge, 1)):  # fmt: skip
        assert not kernels.check_places(stored(begin, end, count), least, 9, length, wrong)
        assert kernels.decode_places(stored(begin, end, count), least, step, node, None) == -1
    value = np.zeros(1024, np.uint64)
    for begin, end, count in ((0, 101, 1), (100, 100, 1), (0, 100, 101), (0, 100, huge)):
        codes = stored(begin, end, count)
        assert kernels.check_codes(codes, wrong, 1, wrong) == -1
        assert not kernels.decode_codes(codes, step, None, step.astype(np.uint16), value)
    data[:50] = 3  # so many values that there is no room for
    codes = stored(0, 100, 50, width | 2 << 10)
    assert kernels.check_codes(codes, wrong, 1, wrong) == -1
    assert not kernels.decode_codes(codes, step, None, step.astype(np.uint16), value)


def test_trees_whose_parents_do_not_precede_their_children_are_refused() -> None:
    values = (np.zeros(1, int), np.ones(1, int))
    for parent in (2, 3, (1 << 32) - 1):
        tree = CCT(np.array([0, 0, parent], np.uint32), np.arange(3, dtype=np.uint64))
        with pytest.raises(IndexError):
            unite([tree])
        cells = Cells(np.zeros(1, np.uint32), np.array([2], np.uint32), np.zeros(1, np.uint16),
                      *np.ones((2, 1), np.uint64))  # fmt: skip
        with pytest.raises(IndexError):
            context_statistics.extremes(tree, *values, cells, cells.value, np.ones(1), np.zeros(3))
    tree = CCT(np.zeros(3, np.uint32), np.arange(3, dtype=np.uint64))
    for first, last, lost, kind in ((0, 1, 3, 0), (0, 1, 0, 1), (-1, 1, 0, 0), (0, 2, 0, 0)):
        cells = Cells(np.zeros(1, np.uint32), np.array([lost], np.uint32),
                      np.array([kind], np.uint16), *np.ones((2, 1), np.uint64))  # fmt: skip
        with pytest.raises(IndexError):
            context_statistics.extremes(
                tree, np.array([first]), np.array([last]), cells, cells.value, np.ones(1),
                np.zeros(3),
            )  # fmt: skip


def test_overviews_stay_within_their_entries() -> None:
    batch = random_batch(0, [50, 60], 300)
    time = (batch.time_ns // TIME_UNIT_NS).astype(np.int64)
    # Times out of order.
    known = structure(
        "overviews", shift=np.full(2, -1), first_word=np.zeros(2, np.uint32),
        last_word=np.zeros(2, np.uint32),
        **{name: np.zeros(2, np.int64)
           for name in ("seen", "entries", "following", "first_time", "last_time")},
    )  # fmt: skip
    pieces = np.empty((2, 4), np.int64)
    arguments = (batch.start, time[::-1].copy(), batch.node, None, known, pieces)
    total = kernels.overview_pieces(np.arange(2), 2, *arguments)
    assert pieces[:, 3].sum() == total
    kernels.overview_entries(2, *arguments, np.empty(total + 2, np.uint32))
    nodes = np.zeros(2, np.uint32)
    thinned = structure("thinned", step=4, first_word=1, last_word=2, n=2)
    for piece in ([0, 0, 0, 9, 2], [0, 0, 0, 11, 0], [0, 0, 0, 1, -1], [0, 3, 0, 1, 0],
                  [0, -1, 0, 1, 0], [0, 0, -1, 1, 0]):  # fmt: skip
        entries = np.zeros(10, np.uint32)
        assert not kernels.thin_entries32(np.array([piece]), 1, entries, 10, thinned, nodes)
    reaching = structure("thinned", step=1, begin=9, first_word=1, last_word=2, n=2)
    entries = np.arange(10, dtype=np.uint32)
    assert kernels.thin_entries32(np.array([[0, 0, 3, 7, 3]]), 1, entries, 10, reaching, nodes)
    assert nodes.tolist() == [9, 2]  # the pieces reach beyond both ends


@given(seed=st.integers(0, 1000), distinct=st.sampled_from([1, 250, 256, 257, 3000]))
@settings(max_examples=20)
def test_dictionaries_of_lines_have_up_to_256_nodes(seed: int, distinct: int) -> None:
    random = np.random.default_rng(seed)
    selected = random.choice(1 << 16, distinct, replace=False).astype(np.uint16)
    selected[0] = (1 << 16) - 1
    nodes = np.concatenate((selected, random.choice(selected, 5000)))
    words, places = _dictionary(nodes)
    unique, place = np.unique(nodes, return_inverse=True)
    if len(unique) > 256:
        assert not len(words) and places is nodes
    else:
        assert words.tolist() == unique.tolist()
        assert places.tolist() == place.tolist()


@given(st.lists(st.integers(0, 1 << 40), unique=True, max_size=300), st.booleans())
@settings(max_examples=40)
def test_sums_of_a_line_are_in_order(chosen: list[int], wide: bool) -> None:
    """However many there are, whatever their order."""
    node = np.array(chosen, np.int64) % (1 << 20 if wide else 200)
    ones = np.ones(len(node), np.uint64)
    cells, first = sum_records(
        np.zeros(1, np.uint32), np.array([0, len(node)]), node.astype(np.uint32),
        ones.astype(np.uint16), ones, 1 << 20,
    )  # fmt: skip
    distinct, counts = np.unique(node, return_counts=True)
    assert first.tolist() == [0, len(distinct)]
    assert cells.node.tolist() == distinct.tolist()
    assert cells.records.tolist() == cells.value.tolist() == counts.tolist()


def test_frames_of_modules_nobody_announced_become_addresses() -> None:
    special, shift = 1 << 62, 40
    frames = [0, 1 << shift | 77, 2 << shift | 77, 9 << shift | 5, special | 3, 3 << 62 | 4]
    tree = CCT(np.zeros(6, np.uint32), np.array(frames, np.uint64))
    translated = translate(tree, np.array([0, 5, 0], np.uint32)).frame.tolist()
    assert translated == [0, 5 << shift | 77, special | 77, special | 5, special | 3, 3 << 62 | 4]


def test_sums_are_totalled_by_metric() -> None:
    random = np.random.default_rng(0)
    event = random.choice([0, 3], 400).astype(np.uint16)
    records, value = (random.integers(0, 1 << 50, 400, dtype=np.uint64) for _ in range(2))
    place = random.integers(0, 9, 400).astype(np.uint32)
    cells = Cells(place, np.zeros(400, np.uint32), event, records, value)
    scale = random.random((3, 4))
    scale[0] = 0
    expected = np.zeros((3, 9))
    np.add.at(expected[0], place, records.astype(float))
    for metric in (1, 2):
        np.add.at(expected[metric], place, value * scale[metric, event])
    assert np.allclose(_totals(place, 9, cells, scale), expected, rtol=1e-12)
    with pytest.raises(IndexError):
        _totals(place, 8, cells, scale)


def test_structures_are_filled_in_by_name() -> None:
    times = np.arange(3)
    pixels = structure("pixels", columns=3, times=times).pointer
    assert (pixels.columns, pixels.spacing) == (3, 0.0)
    with pytest.raises(KeyError, match="nodes"):
        structure("pixels", nodes=times)
    with pytest.raises(TypeError, match="int32 in place of an array of int64"):
        structure("pixels", times=times.astype(np.int32))
    assert structure_dtype("row").names == ("part", "place", "line", "begin", "end")
    assert structure_dtype("ring").itemsize == 24  # an address and two numbers
