"""Pictures and records by compiled loops: the same as by numpy, whatever a file says."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpcd.analysis
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.trace import blocks
from hpcd.analysis.trace.line_sampler import Sampler
from hpcd.analysis.trace.pixel_runs import pixel_runs
from hpcd.array_types import U32
from hpcd.errors import FormatError
from hpcd.measurement.synthetic import Shape, built_in_source, synthesize
from hpcd.native.native_library import native_library
from tests.support.earlier_part import MEASUREMENT, earlier_part
from tests.support.random_measurements import long_measurement

pytestmark = pytest.mark.skipif(native_library() is None, reason="no compiled loops")


def made(folder: Path, kind: str) -> Path:
    """A database of long lines, the first time it is asked for."""
    if not (folder / "db").exists():
        folder.mkdir(parents=True, exist_ok=True)
        if kind == "waits":
            synthesize(folder / "m", Shape(4, 9000), built_in_source(300), 0)
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


def pictures(path: Path, count: int) -> list[U32]:
    """Pictures of random windows, each drawn twice: what was kept does as well."""
    with hpcd.analysis.open(path) as db:
        found = []
        for begin, end, width in random_windows(db.duration_ns, count):
            found.append(db.sample_grid(None, begin, end, len(db.lines), width))
            again = db.sample_grid(None, begin, end, len(db.lines), width)
            assert np.array_equal(found[-1], again)
        return found


@pytest.mark.parametrize("kind", ["bytes", "words", "wide", "waits"])
def test_pictures_are_those_of_numpy(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path, kind)
    with monkeypatch.context() as asked:
        # Nothing is left to numpy.
        asked.setattr(Sampler, "draw", lambda _, groups: groups == [] or pytest.fail("left"))
        by_loops = pictures(path, 60)
    monkeypatch.setenv("HPCD_COMPILED", "0")
    for ours, numpys in zip(by_loops, pictures(path, 60), strict=True):
        assert np.array_equal(ours, numpys)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_earlier_parts_look_alike(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge([MEASUREMENT], tmp_path / "db")
    shutil.copytree(tmp_path / "db", tmp_path / "earlier")
    (place,) = (tmp_path / "earlier/trace").glob("*.part")
    place.write_bytes(earlier_part(version))
    merge([MEASUREMENT], tmp_path / "earlier", add=True)
    by_loops = pictures(tmp_path / "earlier", 30)
    monkeypatch.setenv("HPCD_COMPILED", "0")
    for ours, numpys in zip(by_loops, pictures(tmp_path / "earlier", 30), strict=True):
        assert np.array_equal(ours, numpys)


@given(
    lengths=st.lists(st.integers(1, 3000), min_size=1, max_size=3),
    seed=st.integers(0, 99),
    gap=st.sampled_from([1, 300, 1 << 20, 1 << 31]),
    nodes=st.sampled_from([3, 300, 70_000, 1 << 31]),
    cut=st.integers(0, 40),
)
@settings(deadline=None, max_examples=60)
def test_blocks_are_read_as_numpy_reads_them(
    lengths: list[int], seed: int, gap: int, nodes: int, cut: int
) -> None:
    random = np.random.default_rng(seed)
    start = np.concatenate(([0], np.cumsum(lengths)))
    total = int(start[-1])
    time = np.cumsum(random.integers(0, gap + 1, total))
    node = random.integers(0, nodes, total).astype(np.uint32)
    node[1::2] = node[: total // 2 * 2 : 2][: len(node[1::2])]
    value = random.choice([0, 1, 7, 1 << 40], total).astype(np.uint64)
    steps = random.random(total) < 0.5
    value[:-1][steps[:-1]] = np.diff(time)[steps[:-1]].astype(np.uint64)
    event = random.integers(0, 40, total).astype(np.uint16)
    cuts = blocks.cut(start, time)
    encoded = blocks.encode(cuts, time, node, event, value)
    count = np.diff(cuts)

    def read() -> list[np.ndarray]:
        found: list[np.ndarray] = []
        for frame, at in ((encoded.frame, encoded.at), (encoded.code_frame, encoded.code_at)):
            stored = blocks.Stored()
            for number, place in zip(frame.tolist(), at.tolist(), strict=True):
                # Some begin elsewhere than they do.
                place += cut if cut > 20 and number % 3 == 1 else 0
                data = memoryview(encoded.data[number])
                stored.add(0, number, place, data, int(encoded.content[number]))
            if not found:
                found += blocks.decode_places(stored, encoded.width, encoded.least, count)
                full = np.arange(blocks.BLOCK_RECORDS) < count[:, None]
            else:
                event, value = blocks.decode_weights(stored, count, encoded.width, found[0])
                # What lies behind the records of a short block means nothing.
                found += [event[full], value[full]]
        return found

    def answer() -> list[np.ndarray] | str:
        try:
            return read()
        except FormatError as error:
            return str(error)

    ours = answer()
    with pytest.MonkeyPatch.context() as asked:
        asked.setenv("HPCD_COMPILED", "0")
        numpys = answer()
    if isinstance(ours, str) or isinstance(numpys, str):
        assert ours == numpys
        return
    for mine, other in zip(ours, numpys, strict=True):
        assert mine.dtype == other.dtype
        assert np.array_equal(mine, other)


@given(st.integers(1, 5), st.integers(1, 100), st.integers(0, 99), st.sampled_from([2, 50]))
@settings(deadline=None, max_examples=60)
def test_runs_are_those_of_numpy(rows: int, columns: int, seed: int, run: int) -> None:
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 4, (rows, columns // run + 1)).astype(np.uint32)
    nodes = np.ascontiguousarray(pixels.repeat(run, axis=1)[:, :columns])
    ours = pixel_runs(nodes)
    with pytest.MonkeyPatch.context() as asked:
        asked.setenv("HPCD_COMPILED", "0")
        numpys = pixel_runs(nodes)
    for mine, other in zip(ours, numpys, strict=True):
        assert mine.dtype == other.dtype
        assert np.array_equal(mine, other)


@pytest.mark.parametrize("kind", ["bytes", "waits"])
@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_no_bytes_make_a_picture_fail_otherwise(
    kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    good = made(tmp_path_factory.getbasetemp() / f"hostile-pictures-{kind}", kind)
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
