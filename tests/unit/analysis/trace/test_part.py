"""Parts: blocks, overviews, and what is drawn from them."""

from __future__ import annotations

import contextlib
import tempfile
import zlib
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import hpcd.analysis
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.merge.unite.scratch import Scratch
from hpcd.analysis.trace import blocks
from hpcd.analysis.trace.overview import FEWEST_RECORDS, OverviewBuilder, OverviewSource
from hpcd.analysis.trace.part import Part
from hpcd.analysis.trace.part_contents import read_contents
from hpcd.analysis.trace.part_format import HEADER
from hpcd.analysis.trace.pixel_samples import pixel_times
from hpcd.array_types import I64, U8
from hpcd.errors import FormatError
from hpcd.measurement.synthetic import Shape, Synthesizer
from hpcd.measurement.synthetic_source import built_in_source
from tests.support.ingested import ingest_one
from tests.support.random_measurements import long_measurement, write_measurement


def stored(encoded: blocks.Encoded, frame: I64, at: I64, count: I64) -> blocks.StoredBlocks:
    """The blocks of ``encoded`` that begin ``at`` in frames, ready to be decoded."""
    size = np.array([len(data) for data in encoded.data])
    frames = blocks.StoredFrames(
        memoryview(b"".join(encoded.data)), np.cumsum(size) - size, size, encoded.content
    )
    return frames.blocks(frame, at, count, encoded.width)


def single(content: bytes, count: int, width: int, at: int = 0, size: int = -1) -> Any:
    """A block in a frame of its own, whose table says it has ``size`` bytes."""
    data = zstandard.ZstdCompressor().compress(content)
    sizes = np.array([len(content) if size < 0 else size])
    frames = blocks.StoredFrames(memoryview(data), np.zeros(1, int), np.array([len(data)]), sizes)
    return frames.blocks(
        np.zeros(1, int), np.array([at]), np.array([count]), np.array([width], np.uint16)
    )


@given(
    lengths=st.lists(st.integers(1, 5000), min_size=1, max_size=4),
    seed=st.integers(0, 99),
    gap=st.sampled_from([1, 300, 1 << 20, 1 << 31, 1 << 34]),
    weighted=st.booleans(),
)
@settings(max_examples=60)
def test_blocks_come_back(lengths: list[int], seed: int, gap: int, weighted: bool) -> None:
    random = np.random.default_rng(seed)
    start = np.concatenate(([0], np.cumsum(lengths)))
    total = int(start[-1])
    time = np.cumsum(random.integers(0, gap, total))
    node = random.choice(random.integers(0, (1 << 32) - 1, 9, dtype=np.uint32), total)
    event = random.integers(0, 1 << 16, total).astype(np.uint16) if weighted else None
    value = random.integers(0, 1 << 63, total).astype(np.uint64) if weighted else None
    if value is not None:
        # Samples, ends of intervals, intervals that end at the next record, and anything else.
        kind = random.integers(0, 4, total)
        value[kind == 0] = 1
        value[kind == 1] = 0
        steps = np.diff(time, append=time[-1]).astype(np.uint64)
        value[kind == 2] = steps[kind == 2]
    cuts = blocks.cut(start, time)
    assert np.diff(cuts).max() <= blocks.BLOCK_RECORDS
    assert set(start.tolist()) <= set(cuts.tolist())
    state = random.integers(0, 4, total).astype(np.uint8) if weighted else None
    if state is not None:
        state[: total // 2] = 0  # blocks without states beside others
    encoded = blocks.encode(cuts, time, node, state, event, value)
    count = np.diff(cuts)
    full = np.arange(blocks.BLOCK_RECORDS) < count[:, None]
    places = stored(encoded, encoded.frame, encoded.at, count)
    found_state = np.full(full.shape, 9, np.uint8)
    since, found_node = blocks.decode_places(places, encoded.least, found_state)
    found_time = since.astype(np.int64) + time[cuts[:-1]][:, None]
    assert np.array_equal(found_time[full], time)
    assert np.array_equal(found_node[full], node)
    assert np.array_equal(found_state[full], np.zeros(total) if state is None else state)
    # A block that is not full repeats its last record.
    last = found_time[np.arange(len(count)), count - 1]
    assert np.array_equal(found_time[:, -1], last)
    if weighted:
        codes = stored(encoded, encoded.code_frame, encoded.code_at, count)
        found_event, found_value = blocks.decode_codes(codes, since)
        assert np.array_equal(found_event[full], event)
        assert np.array_equal(found_value[full], value)


def test_blocks_without_codes_are_of_event_0_and_value_1() -> None:
    codes = bytes([0, 7, 3, 1, 2, 3])
    rest = np.array([5, 1 << 60, 300], "<u8")
    ticks = np.zeros((2, blocks.BLOCK_RECORDS), np.uint32)
    ticks[0, 5:] = 40
    content = codes + rest.view(np.uint8).reshape(-1, 8).T.tobytes()  # byte planes
    data = zstandard.ZstdCompressor().compress(content)
    size = np.array([len(data)])
    frames = blocks.StoredFrames(memoryview(data), np.zeros(1, int), size, np.array([len(content)]))
    event, value = blocks.decode_codes(
        frames.blocks(np.array([0, -1]), np.zeros(2, int), np.array([6, 9]),
                      np.array([0x2111, 0x11], np.uint16)), ticks,
    )  # fmt: skip
    assert event[0, :6].tolist() == [0, 1, 0, 0, 0, 0]
    assert value[0, :6].tolist() == [1, 5, 1 << 60, 0, 40, 300]
    assert not event[1].any() and (value[1] == 1).all()


def test_parts_of_other_versions_are_refused(tmp_path: Path) -> None:
    long_measurement(tmp_path / "m", records=3000)
    content = ingest_one(tmp_path / "m", tmp_path).path.read_bytes()
    head = content[:8] + (9).to_bytes(4, "little") + content[12 : HEADER.size - 8]
    crc = zlib.crc32(head).to_bytes(4, "little")
    (tmp_path / "other.part").write_bytes(head + crc + content[HEADER.size - 4 :])
    with pytest.raises(FormatError, match="part format 9, this hpcd reads format 3: merge"):
        Part(tmp_path / "other.part")


def test_codes_that_do_not_fit_are_refused() -> None:
    ticks = np.zeros((1, blocks.BLOCK_RECORDS), np.uint32)
    for content in (b"\x03" * 5, b"\x00" * 4, b"\x00"):
        with pytest.raises(FormatError, match="another"):
            blocks.decode_codes(single(content, 5, 0x2111), ticks)


def test_a_block_that_lies_about_its_size_is_refused() -> None:
    def decode(width: int, at: int = 0, size: int = 10) -> None:
        blocks.decode_places(single(bytes(10), 6, width, at, size), np.zeros(1, np.uint32))

    for arguments in ((0x11, 0, 12), (0x11,), (0x11, -1), (0x05,)):
        with pytest.raises(FormatError, match="another length"):
            decode(*arguments)
    nothing = np.zeros(1, int)
    frames = blocks.StoredFrames(memoryview(b"nothing"), nothing, np.array([7]), np.array([12]))
    with pytest.raises(FormatError, match="decompress"):
        frames.blocks(nothing, nothing, np.array([6]), np.array([0x11], np.uint16))


def owners(time: I64, state: U8, moments: I64) -> list[int]:
    """Return the index of the record whose time each moment is in, the earlier of two."""
    answer = []
    at = 0
    for moment in moments.tolist():
        while at + 1 < len(time):
            before, after = int(time[at]), int(time[at + 1])
            if not state[at] and not state[at + 1]:
                border = (before + after) / 2
            else:
                border = before if (state[at], state[at + 1]) == (3, 0) else after
            if moment <= border:
                break
            at += 1
        answer.append(at)
    return answer


def check_overview(time: I64, cuts: list[int], handed_over: set[int], state: U8) -> None:
    """Check that an overview of these records, which come in batches, shows at every step the one
    whose time it is. Another worker goes on where a batch that begins at ``handed_over`` comes."""
    count = len(time)
    node = np.arange(count, dtype=np.uint32)
    with contextlib.ExitStack() as stack:
        builder = OverviewBuilder(3, stack.enter_context(tempfile.TemporaryFile()))
        stretches = []
        builder.add(np.array([0]), np.array([0, 1]), time[:1] * 0 + 5, node[:1])
        for low, high in zip([0, *cuts], [*cuts, count], strict=True):
            # Another line beside it, to be kept apart.
            both = np.concatenate([time[low:high], time[low:high] * 0 + 7])
            nodes = np.concatenate([node[low:high], node[low:high] * 0 + 9])
            states = np.concatenate([state[low:high], state[low:high] * 0])
            start = np.array([0, high - low, 2 * (high - low)])
            if low in handed_over:
                stretches.append(builder.finish())
                builder = OverviewBuilder(3, stack.enter_context(tempfile.TemporaryFile()))
            builder.add(np.array([1, 2]), start, both, nodes, states if state.any() else None)
        overview = OverviewSource([*stretches, builder.finish()])
        step, first, entries = overview.line(1)
        assert len(overview.line(0)[2]) == 0
    moments = (first + np.arange(len(entries))) * step
    assert moments[0] <= time[0]
    assert moments[-1] >= time[-1]
    expected = owners(time, state, moments)
    shown = (entries >> 2).astype(np.int64)
    # Of records at one moment any may be shown.
    assert np.array_equal(time[shown], time[expected])
    assert (entries & 3).tolist() == [0 if kind == 3 else kind for kind in state[shown].tolist()]
    assert len(entries) <= 2 * count + 2


@given(data=st.data())
@settings(max_examples=40)
def test_an_overview_shows_the_closest_record_at_every_step(data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 1000)))
    count = data.draw(st.integers(FEWEST_RECORDS, FEWEST_RECORDS + 3000))
    gap = data.draw(st.sampled_from([1, 3, 1000, 70_000]))
    time = data.draw(st.integers(0, 10**9)) + np.cumsum(random.integers(0, gap + 1, count))
    if data.draw(st.booleans()):
        time[count // 3 :] += gap * 1000 * data.draw(st.integers(0, 50))
    cuts = sorted(data.draw(st.lists(st.integers(1, count - 1), max_size=5, unique=True)))
    handed_over = set(data.draw(st.lists(st.sampled_from([0, *cuts]), max_size=2)))
    # Bytes that are kept in memory before they are put into the spool.
    with patch("hpcd.analysis.trace.overview._MOST_KEPT", data.draw(st.sampled_from([0, 1 << 20]))):
        check_overview(time, cuts, handed_over, states(random, count) * data.draw(st.booleans()))


def states(random: np.random.Generator, count: int) -> U8:
    """Return the states of records that may follow one another: no wait is without an end."""
    state = random.choice(np.array([0, 0, 1, 2, 3], np.uint8), count)
    state[1:][(state[:-1] == 1) | (state[:-1] == 2)] = 3
    return state


def test_a_stretch_of_two_records_begins_with_the_first() -> None:
    """Its only entry falls away when it is thinned; what was before it was shown as the last."""
    time = np.cumsum(np.random.default_rng(0).integers(0, 2, 2048))
    time[2048 // 3 :] += 1000
    check_overview(time, [2], {2}, np.zeros(2048, np.uint8))


@pytest.mark.parametrize(("pauses", "nodes"), [(False, 50), (True, 50), (False, 70_000)])
def test_every_zoom_shows_what_was_there_within_the_pixel(
    tmp_path: Path, pauses: bool, nodes: int
) -> None:
    long_measurement(tmp_path / "m", records=300_000, pauses=pauses, nodes=nodes)
    merge([tmp_path / "m"], tmp_path / "db")
    random = np.random.default_rng(1)
    with hpcd.analysis.open(tmp_path / "db") as db:
        records = [db.records(line) for line in (0, 1)]
        assert [len(record) for record in records] == [300_000, 300_000]
        for _ in range(60):
            span = int(10 ** random.uniform(3, np.log10(db.duration_ns)))
            t0 = int(random.integers(0, db.duration_ns - span + 1))
            width = int(random.integers(1, 900))
            grid = db.sample_grid(None, t0, t0 + span, 2, width)
            times = pixel_times(t0, t0 + span, width)
            half = span / width / 2
            for line in (0, 1):
                time, node = records[line].time, records[line].node
                alive = (times >= db.lines.start[line]) & (times <= db.lines.end[line])
                # The records that are closest to some moment inside the pixel.
                middle = time[:-1] + (time[1:] - time[:-1]) / 2
                low = np.searchsorted(middle, times - half - 1)
                high = np.searchsorted(middle, times + half + 1)
                for column in np.flatnonzero(alive).tolist():
                    shown = node[low[column] : high[column] + 1]
                    assert grid[line, column] in shown


def test_a_part_has_all_a_merge_needs(tmp_path: Path) -> None:
    write_measurement(tmp_path / "m", threads=2, events=2, weighted=True, close=False)
    part = ingest_one(tmp_path / "m", tmp_path)
    again = read_contents(Part(part.path))
    (one,), (other,) = part.measurements, again.measurements
    assert again.events == part.events
    for name in ("id", "host", "modules", "closed", "damage", "number", "first_row"):
        assert getattr(other, name) == getattr(one, name), name
    for name in ("processes", "threads"):
        assert dict(getattr(other, name).items()) == dict(getattr(one, name).items())
    assert other.counts.tolist() == one.counts.tolist() == [200] * 4
    assert np.array_equal(other.first_ns, one.first_ns)
    scratch = Scratch(part.path)
    # Siblings with equal frames are one node.
    assert len(scratch.tree()[0]) <= one.nodes
    assert int(scratch.sums().records.sum()) == 800
    # What was read is not read again.
    before = part.path.stat().st_ino
    assert ingest_one(tmp_path / "m", tmp_path).path == part.path
    assert part.path.stat().st_ino == before


@pytest.mark.parametrize("kind", ["samples", "waits"])
@given(data=st.data())
@settings(max_examples=100)
def test_no_bytes_make_reading_a_part_fail_otherwise(
    kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"hostile-{kind}"
    if not folder.exists():
        folder.mkdir()
        if kind == "waits":
            Synthesizer(Shape(2, 3000), built_in_source(300)).write(folder / "m", 0)
        else:
            long_measurement(folder / "m", records=6000)
        merge([folder / "m"], folder / "db")
    (good,) = (folder / "db" / "trace").glob("*.part")
    content = bytearray(good.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        # Everything but the blocks is small: aim at it as often as at them.
        where = data.draw(st.sampled_from([(0, 72), (0, len(content) - 1), (-9000, -1)]))
        at = data.draw(st.integers(*where))
        content[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    path = tmp_path_factory.mktemp("part") / good.name
    path.write_bytes(content)
    try:
        part = Part(path)
        read_contents(part)
        for row in range(len(part)):
            selected = slice(*part.lines.block[row : row + 2].tolist())
            part.weights(selected, part.places(selected)[0])
    except FormatError:
        pass
