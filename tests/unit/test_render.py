"""Pictures: the right procedure's colour at the right place."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.analysis.merge import merge
from hpcd.errors import StorageError, UsageError
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Module, ModuleKind, Node, Process, Thread
from hpcd.viewer import palette
from hpcd.viewer.grid import NO_PROCEDURE, best_depth, procedures_at, shares
from hpcd.viewer.picture import View, draw
from tests.support.recorded import hpcd as command

SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of 10 s: rank 0 computes 5 s then waits; rank 1 waits, and lives for 8 s only."""
    path = tmp_path_factory.mktemp("render")
    writer = MeasurementWriter(path / "m", Node("host", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_module(Module(1, ModuleKind.KERNEL, "[kernel]"))
    writer.add_symbols(1, [(0, 16, "main"), (16, 16, "compute"), (32, 16, "wait")])
    writer.add_clock_pair(0, 10**18)
    for rank in range(2):
        writer.add_process(Process(rank + 1, 10 + rank, 1, "app", "", (), 0, 0, "j", rank, 2))
        end = (10 if rank == 0 else 8) * SECOND
        writer.add_thread(Thread(rank, rank + 1, 10 + rank, "app", 0, end))
    frames = [module_frame(1, 1), module_frame(1, 17), module_frame(1, 33)]
    writer.add_nodes(np.array([0, 1, 1], np.uint32), np.array(frames, np.uint64))
    for rank in range(2):
        times = np.arange(0, (10 if rank == 0 else 8) * SECOND, SECOND // 100, dtype=np.uint64)
        node = np.where((times < 5 * SECOND) & (rank == 0), 2, 3).astype(np.uint32)
        writer.add_records(np.full(len(times), rank, np.uint32), times, node, 0)
    writer.close({"unwind": {"complete": 1800}, "samples": {"dropped": {}}})
    merge([path / "m"], path / "db")
    return path / "db"


def test_procedures_at_known_times(database: Path) -> None:
    with hpcd.analysis.open(database) as db:
        nodes = db.sample_grid(None, 0, 10 * SECOND, 2, 100)
        picture = procedures_at(db, nodes, 2)
        name = {i: each for i, each in enumerate(db.procedure_names)}
        assert {name[int(each)] for each in picture[0, :49]} == {"compute [k]"}
        assert {name[int(each)] for each in picture[0, 51:99]} == {"wait [k]"}
        assert {name[int(each)] for each in picture[1, :79]} == {"wait [k]"}
        assert (picture[1, 81:] == NO_PROCEDURE).all()
        assert {name[int(each)] for each in procedures_at(db, nodes, 1)[0, :99]} == {"main [k]"}


def test_shares_and_depth(database: Path) -> None:
    with hpcd.analysis.open(database) as db:
        nodes = db.sample_grid(None, 0, 10 * SECOND, 2, 1000)
        assert best_depth(db, nodes) == 2
        result = dict(shares(procedures_at(db, nodes, 2)))
        assert sum(result.values()) == pytest.approx(1)
        wait = db.procedure_names.index("wait [k]")
        assert result[wait] == pytest.approx(13 / 18, abs=0.01)


def test_colours_are_stable_and_told_apart() -> None:
    names = [f"procedure_{i}" for i in range(200)]
    first = palette.colours(names)
    assert (palette.colours(names[50:100]) == first[50:100]).all()
    assert len(np.unique(first, axis=0)) > 180
    assert palette.colours(["[truncated: read fault]"])[0].tolist() == list(palette.TRUNCATED)
    assert palette.colours([]).shape == (0, 3)


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_pictures_are_written(database: Path, tmp_path: Path, suffix: str) -> None:
    output = tmp_path / f"trace.{suffix}"
    output.write_text("old")
    done = command("render", database, "-o", output, "--json", "--width", 640, "--height", 400)
    drawn = json.loads(done.stdout)
    assert drawn["depth"] == 2 and len(drawn["lines"]) == 2
    assert output.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")
    assert [each.name for each in tmp_path.iterdir()] == [output.name]


def test_the_picture_shows_the_colours(database: Path, tmp_path: Path) -> None:
    from matplotlib.image import imread

    with hpcd.analysis.open(database) as db:
        drawn = draw(db, tmp_path / "t.png", View(width=800, height=500))
        pixels = (imread(tmp_path / "t.png")[:, :, :3] * 255 + 0.5).astype(np.uint8)
        colours = palette.colours([name for name, _ in drawn.shares])
    for colour in colours:
        assert (pixels == colour).all(axis=2).sum() > 1000


def test_depth_view(database: Path, tmp_path: Path) -> None:
    with hpcd.analysis.open(database) as db:
        drawn = draw(db, tmp_path / "d.png", View(depth_line=0))
    assert drawn.depth == 2 and drawn.lines == [0]


def test_bad_views(database: Path, tmp_path: Path) -> None:
    with hpcd.analysis.open(database) as db:
        for view in (View(start=5, end=5), View(width=10)):
            with pytest.raises(UsageError):
                draw(db, tmp_path / "x.png", view)
        with pytest.raises(UsageError):
            draw(db, tmp_path / "x.jpg", View())
        with pytest.raises(StorageError):
            draw(db, tmp_path / "missing" / "x.png", View())
    assert (
        command("render", database, "-o", tmp_path / "x.png", "--rank", 9, check=False).returncode
        == 2
    )
    assert (
        command("render", database, "-o", tmp_path / "x.png", "--line", 9, check=False).returncode
        == 2
    )
    for wrong in (["--filter", "("], ["--filter", "nobody"], ["--sort", "none"]):
        call = command("render", database, "-o", tmp_path / "x.png", *wrong, check=False)
        assert call.returncode == 2 and call.stderr.count("\n") == 1


def test_lines_filtered_and_sorted(database: Path, tmp_path: Path) -> None:
    def lines(*arguments: str) -> list[int]:
        call = command("render", database, "-o", tmp_path / "x.png", "--json", *arguments)
        found: list[int] = json.loads(call.stdout)["lines"]
        return found

    assert sorted(lines("--sort", "samples")) == lines()
    assert lines("--filter", "host:.") == lines()
