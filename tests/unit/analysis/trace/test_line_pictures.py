"""Pictures of trace lines show the records that are there, whatever a file says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpcd.analysis
from hpcd.analysis.arrays.packed_frames import decompress_into
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.trace import frame_ring
from hpcd.analysis.trace.pixel_samples import pixel_runs, pixel_times
from hpcd.errors import FormatError
from hpcd.measurement.synthetic import Shape, Synthesizer
from hpcd.measurement.synthetic_source import built_in_source
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.identity import Event, Host, Process, Thread
from tests.support.plain_states import pieces_of
from tests.support.random_measurements import long_measurement


def database(folder: Path, kind: str) -> Path:
    """A database of long lines, made once in ``folder``."""
    if not (folder / "db").exists():
        folder.mkdir(parents=True, exist_ok=True)
        if kind == "waits":
            Synthesizer(Shape(4, 9000), built_in_source(300)).write(folder / "m", 0)
        else:
            nodes = {"bytes": 50, "words": 400, "wide": 70_000}[kind]
            long_measurement(folder / "m", records=60_000, pauses=True, nodes=nodes)
        merge([folder / "m"], folder / "db")
    return folder / "db"


def random_windows(duration: int, count: int) -> list[tuple[int, int, int]]:
    """Beginnings, ends and widths of pictures of all zooms."""
    random = np.random.default_rng(3)
    windows = []
    for _ in range(count):
        span = int(10 ** random.uniform(2, np.log10(duration)))
        begin = int(random.integers(0, duration - span + 1))
        windows.append((begin, begin + span, int(random.integers(1, 1200))))
    return windows


def check_pictures(path: Path, windows: list[tuple[int, int, int]]) -> None:
    """Check that every pixel shows what its thread did at some moment in it, and does so again."""
    with hpcd.analysis.open(path) as db:
        lines = [pieces_of(db, line) for line in range(len(db.lines))]
        ends = [np.array([piece.end for piece in pieces]) for pieces in lines]
        shown = [np.array([piece.pixel for piece in pieces]) for pieces in lines]
        for begin, end, width in windows:
            grid = db.sample_grid(None, begin, end, len(db.lines), width)
            again = db.sample_grid(None, begin, end, len(db.lines), width)
            assert np.array_equal(grid, again)
            times, half = pixel_times(begin, end, width), (end - begin) / width / 2 + 1
            for line, end_of in enumerate(ends):
                alive = (times >= db.lines.start[line]) & (times <= db.lines.end[line])
                low = np.searchsorted(end_of, times - half)
                high = np.searchsorted(end_of, times + half, side="right")
                for column in np.flatnonzero(alive).tolist():
                    assert grid[line, column] in shown[line][low[column] : high[column] + 1]


@pytest.mark.parametrize("kind", ["bytes", "words", "wide", "waits"])
def test_pixels_show_records_within_them(kind: str, tmp_path: Path) -> None:
    path = database(tmp_path, kind)
    with hpcd.analysis.open(path) as db:
        windows = random_windows(db.duration_ns, 40)
    check_pictures(path, windows)


def test_rows_of_more_blocks_than_are_held_are_drawn_in_pieces(tmp_path: Path) -> None:
    """Over a million records within a few pixels of a line that is mostly silent."""
    writer = MeasurementWriter(tmp_path / "m", Host("node", "boot", "6.1", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time"))
    writer.add_process(Process(1, 1, 0, "program", "/program", ("program",), 0, 0))
    writer.add_thread(Thread(0, 100, 1, "thread", 0))
    nodes = 300
    frames = np.arange(1, nodes + 1, dtype=np.uint64) << np.uint64(40)
    writer.add_nodes(np.zeros(nodes, np.uint32), frames)
    # A microsecond apart, in three bursts; then one in a thousand seconds.
    burst = np.arange(1_300_000, dtype=np.uint64) * np.uint64(1000)
    burst[400_000:] += np.uint64(3 * 10**8)
    burst[900_000:] += np.uint64(10**9)
    time = np.concatenate((burst, np.arange(1, 9, dtype=np.uint64) * np.uint64(10**12)))
    node = np.random.default_rng(0).integers(1, nodes + 1, len(time)).astype(np.uint32)
    for begin in range(0, len(time), 1 << 17):
        some = slice(begin, begin + (1 << 17))
        writer.add_records(np.zeros(len(time[some]), np.uint32), time[some], node[some], 0)
    writer.close({})
    merge([tmp_path / "m"], tmp_path / "db")
    windows = [(0, 3 * 10**9, width) for width in (1, 7, 300, 2000)]
    windows += [(10**8, 2 * 10**9, 400), (0, 4 * 10**9, 3), (2_590_000_000, 2_610_000_000, 50)]
    check_pictures(tmp_path / "db", windows)


@given(st.integers(1, 5), st.integers(1, 100), st.integers(0, 99), st.sampled_from([2, 50]))
@settings(max_examples=60)
def test_runs_are_those_of_a_picture(rows: int, columns: int, seed: int, run: int) -> None:
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 4, (rows, columns // run + 1)).astype(np.uint32)
    picture = pixels.repeat(run, axis=1)[:, :columns]
    node, end = pixel_runs(picture)
    assert int(np.count_nonzero(end == columns)) == rows
    begin = np.concatenate(([0], end[:-1] % columns))
    lengths = end - begin
    assert (lengths > 0).all()
    assert np.array_equal(np.repeat(node, lengths).reshape(rows, columns), picture)
    same_row = end[:-1] < columns
    assert (node[1:][same_row] != node[:-1][same_row]).all()


@pytest.mark.parametrize("kind", ["bytes", "waits"])
@given(data=st.data())
@settings(max_examples=15)
def test_no_bytes_make_a_picture_fail_otherwise(
    kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    good = database(tmp_path_factory.getbasetemp() / f"hostile-pictures-{kind}", kind)
    folder = tmp_path_factory.mktemp("database")
    shutil.copytree(good, folder / "db")
    (part,) = (folder / "db/trace").glob("*.part")
    content = bytearray(part.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        # Everything but the frames is small: aim at it as often as at them.
        where = data.draw(st.sampled_from([(96, len(content) - 1), (-30_000, -1)]))
        at = data.draw(st.integers(*where))
        size = data.draw(st.sampled_from([1, 4, 8]))
        content[at : at + size] = data.draw(st.binary(min_size=size, max_size=size))
    part.write_bytes(content[: len(part.read_bytes())])
    try:
        with hpcd.analysis.open(folder / "db") as db:
            for begin, end, width in random_windows(db.duration_ns, 12):
                db.sample_grid(None, begin, end, len(db.lines), width)
    except FormatError:
        pass
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind", ["bytes", "words", "waits"])
@given(seed=st.integers(0, 1 << 30), flips=st.integers(1, 2000))
@settings(max_examples=15)
def test_no_contents_of_frames_make_a_picture_fail_otherwise(
    kind: str, tmp_path_factory: pytest.TempPathFactory, seed: int, flips: int
) -> None:
    """Frames that decompress to as many bytes as they should, which are others."""
    path = database(tmp_path_factory.getbasetemp() / f"mutants-{kind}", kind)
    random = np.random.default_rng(seed)

    def decompress(packed: Any, room: memoryview) -> bool:
        whole = decompress_into(packed, room)
        contents = np.frombuffer(room, np.uint8)
        at = random.integers(0, len(contents), min(flips, len(contents)))
        contents[at] = random.integers(0, 256, len(at))
        return whole

    with pytest.MonkeyPatch.context() as patch, hpcd.analysis.open(path) as db:
        patch.setattr(frame_ring, "decompress_into", decompress)
        for begin, end, width in random_windows(db.duration_ns, 12):
            try:
                db.sample_grid(None, begin, end, len(db.lines), width)
            except FormatError:
                continue
