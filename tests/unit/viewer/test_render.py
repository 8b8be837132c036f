"""Pictures: the right procedure's colour at the right place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import hpcd.analysis
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.symbols.frame_names import marker_name
from hpcd.errors import StorageError, UsageError
from hpcd.measurement.summary import Summary, UnwindCounts
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.codes import UnwindStatus
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from hpcd.viewer import palette
from hpcd.viewer.depth_slice import NO_PROCEDURE, depth_choice, entities_shown, shares
from hpcd.viewer.picture_colours import entity_colours
from hpcd.viewer.picture_tree import RUNNABLE, RUNNING, PictureTree
from hpcd.viewer.pictures import VIEWS, PictureView, draw
from tests.support.called import ranks_that_call
from tests.support.colour_distance import SEEN, least_distance, seen_colours
from tests.support.made import Step, make
from tests.support.paths import ROOT
from tests.support.recorded import hpcd as command
from tests.support.waiting_threads import threads_that_wait

SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of 10 s: rank 0 computes 5 s then waits; rank 1 waits, and lives for 8 s only."""
    path = tmp_path_factory.mktemp("render")
    writer = MeasurementWriter(path / "m", Host("host", "b", "6", "x86_64", 2), options={})
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
    writer.close(Summary(unwind=UnwindCounts(complete=1800)))
    merge([path / "m"], path / "db")
    return path / "db"


def test_procedures_at_known_times(database: Path) -> None:
    with hpcd.analysis.open(database) as db:
        nodes = db.sample_grid(None, 0, 10 * SECOND, 2, 100)
        tree = PictureTree(db)
        picture = entities_shown(tree.at(2), tree.of_pixels(nodes))
        name = dict(enumerate(tree.names))
        assert {name[int(procedure)] for procedure in picture[0, :49]} == {"compute [k]"}
        assert {name[int(procedure)] for procedure in picture[0, 51:99]} == {"wait [k]"}
        assert {name[int(procedure)] for procedure in picture[1, :79]} == {"wait [k]"}
        assert (picture[1, 81:] == NO_PROCEDURE).all()
        outermost = entities_shown(tree.at(1), tree.of_pixels(nodes))
        assert {name[int(procedure)] for procedure in outermost[0, :99]} == {"main [k]"}


def test_phases_are_bands_over_the_lines(tmp_path: Path) -> None:
    """Rank 2 of four works from 20 to 25 ms of each round of 100 ms."""
    output = tmp_path / "phases.png"
    with hpcd.analysis.open(ranks_that_call(tmp_path, rounds=2)) as db:
        view = PictureView(start=0, end=100_000_000, phases="work(n)", width=1000, height=500)
        draw(db, output, view)
        with pytest.raises(UsageError, match="trace view only"):
            draw(db, output, PictureView(kind="flame", phases="work"))
    pixels = np.asarray(Image.open(output).convert("RGB"))
    (colour,) = palette.colours(["work n=3"])
    plot = pixels[: int(0.91 * 500), 130:750]
    rows, columns = np.nonzero((plot == colour).all(axis=2))
    assert columns.min() / 620 == pytest.approx(0.2, abs=0.01)
    assert columns.max() / 620 == pytest.approx(0.25, abs=0.01)
    # The head of the third of four rows.
    top, height = 0.11 * 500, 0.8 * 500 / 4
    assert top + 2 * height <= rows.min() <= rows.max() <= top + 2.2 * height


def test_the_critical_path_is_a_line_along_the_rows(tmp_path: Path) -> None:
    """It is on the second of three rows until 80 ms of 99, waiting for a device from 40 to 60."""
    database, output = threads_that_wait(tmp_path), tmp_path / "path.png"
    with hpcd.analysis.open(database) as db:
        draw(db, output, PictureView(critical_path=True, width=1000, height=500))
        with pytest.raises(UsageError, match="trace view only"):
            draw(db, output, PictureView(kind="flame", critical_path=True))
    pixels = np.asarray(Image.open(output).convert("RGB"))[99:419, 130:750]
    spans = {}
    for name, colour in (("device", (0x1B, 0x9E, 0x77)), ("running", (0x2C, 0x6F, 0xBB))):
        rows, columns = np.nonzero((pixels == colour).all(axis=2))
        spans[name] = [
            (row, *np.round(columns[rows * 3 // 320 == row][[0, -1]] / 620 * 99).tolist())
            for row in np.unique(rows * 3 // 320).tolist()
        ]
        assert np.unique(np.round(rows / 320 * 3 % 1, 1)).tolist() == [0.9]
    assert spans == {"device": [(1, 40, 60)], "running": [(0, 80, 99), (1, 0, 80)]}


def test_without_waits_there_is_no_critical_path(database: Path, tmp_path: Path) -> None:
    output = tmp_path / "x.png"
    call = command("render", database, "-o", output, "--critical-path", check=False)
    assert call.returncode == 2 and "no waits with their wakers" in call.stderr
    assert not output.exists()


def test_a_preempted_thread_is_shown_where_it_stood(tmp_path: Path) -> None:
    """An interrupt that is handled shows itself."""
    writer = MeasurementWriter(tmp_path / "m", Host("host", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_event(Event(1, "preempted", "s", 1e-3, "runnable_time", interval=True))
    writer.add_module(Module(1, ModuleKind.KERNEL, "[kernel]"))
    names = ["work", "asm_sysvec_apic_timer_interrupt", "schedule", "handler"]
    writer.add_symbols(1, [(16 * at, 16, name) for at, name in enumerate(names)])
    writer.add_clock_pair(0, 10**18)
    writer.add_process(Process(1, 10, 1, "app", "", (), 0, 0))
    writer.add_thread(Thread(0, 1, 10, "app", 0, SECOND))
    frames = np.array([module_frame(1, 16 * at + 1) for at in range(4)], np.uint64)
    writer.add_nodes(np.array([0, 1, 2, 2], np.uint32), frames)
    times = np.arange(0, SECOND, SECOND // 100, dtype=np.uint64)
    nodes = np.where(times < SECOND // 2, 3, 4).astype(np.uint32)
    events = np.where(times < SECOND // 2, 1, 0).astype(np.uint16)
    values = np.where(times < SECOND // 2, 10, 1).astype(np.uint64)
    writer.add_records(np.zeros(len(times), np.uint32), times, nodes, events, values)
    writer.close()
    merge([tmp_path / "m"], tmp_path / "db")
    with hpcd.analysis.open(tmp_path / "db") as db:
        tree = PictureTree(db)
        grid = tree.of_pixels(db.sample_grid(None, 0, 10**9, 1, 100))
        innermost = entities_shown(tree.at(9), grid)
        assert {tree.names[int(at)] for at in innermost[0, :49]} == {"work [k]"}
        assert {tree.names[int(at)] for at in innermost[0, 51:90]} == {"handler [k]"}
        assert set(tree.state[grid[0, :49]]) == {RUNNABLE}
        assert set(tree.state[grid[0, 51:90]]) == {RUNNING}


def test_shares_and_depth(database: Path) -> None:
    with hpcd.analysis.open(database) as db:
        tree = PictureTree(db)
        nodes = tree.of_pixels(db.sample_grid(None, 0, 10 * SECOND, 2, 1000))
        assert depth_choice(db, tree)["best"] == 2
        result = dict(shares(entities_shown(tree.at(2), nodes)))
        assert sum(result.values()) == pytest.approx(1)
        wait = tree.names.index("wait [k]")
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
    assert drawn["depth"] == 0 and len(drawn["lines"]) == 2
    assert output.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")
    assert [path.name for path in tmp_path.iterdir()] == [output.name]


def test_the_picture_shows_the_colours(database: Path, tmp_path: Path) -> None:
    from matplotlib.image import imread

    with hpcd.analysis.open(database) as db:
        drawn = draw(db, tmp_path / "t.png", PictureView(width=800, height=500))
        pixels = (imread(tmp_path / "t.png")[:, :, :3] * 255 + 0.5).astype(np.uint8)
        tree = PictureTree(db)
        colours, distinct = entity_colours(tree)
    for name, _ in drawn.shares:
        entity = tree.names.index(name)
        assert distinct[entity]
        assert (pixels == colours[entity]).all(axis=2).sum() > 1000


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_drawn(database: Path, tmp_path: Path, view: str) -> None:
    with hpcd.analysis.open(database) as db:
        red = palette.parse_pattern("comp.* = #ff0000")
        for dark in (False, True):
            drawn = draw(
                db, tmp_path / "v.png", PictureView(view, 640, 400, colours=[red], dark=dark)
            )
            assert drawn.view == view and drawn.lines and (drawn.shares or drawn.metric)
            with Image.open(tmp_path / "v.png") as picture:
                assert picture.size == (640, 400)
                pixels = np.asarray(picture.convert("RGB"))
        if view in ("trace", "depth", "summary", "map", "flame", "inverted"):
            compute = (pixels == (255, 0, 0)).all(axis=2)
            assert compute.sum() > 1000
        if view in ("flame", "inverted"):
            # As wide as its share of the samples, of what is as wide as the picture.
            width = compute.any(axis=0).sum() / (0.96 * 640)
            assert width == pytest.approx(500 / 1800, abs=0.02)
        draw(db, tmp_path / "v.svg", PictureView(view, 640, 400))
        text = (tmp_path / "v.svg").read_text()
    assert text.startswith("<?xml")


def test_a_summary_is_as_high_as_shares(database: Path, tmp_path: Path) -> None:
    with hpcd.analysis.open(database) as db:
        red = palette.parse_pattern("comp.* = #ff0000")
        draw(db, tmp_path / "s.png", PictureView("summary", 1000, 500, colours=[red]))
    with Image.open(tmp_path / "s.png") as picture:
        red_pixels = (np.asarray(picture.convert("RGB")) == (255, 0, 0)).all(axis=2)
    plot = red_pixels[50:455, 130:750]
    # Rank 0 of two computes for the first half.
    assert plot[:, 150].sum() == pytest.approx(160, abs=3)
    assert not plot[:, 400].any()


def test_waiting_for_others_is_tinted_below_a_line(tmp_path: Path) -> None:
    path = make(tmp_path / "db", {0: [("main/MPI_Recv/k_x", "cpu", 1.0), ("main", "cpu", 1.0)],
                                  1: [("main", "cpu", 2.0)]})  # fmt: skip
    with hpcd.analysis.open(path) as db:
        grey = palette.parse_pattern(".* = #c0c0c0")
        draw(db, tmp_path / "t.png", PictureView(width=800, height=400, depth=1, colours=[grey]))
    with Image.open(tmp_path / "t.png") as picture:
        pixels = np.asarray(picture.convert("RGB"))
    tinted = (pixels == (251, 243, 220)).all(axis=2)
    plain = (pixels == 0xC0).all(axis=2)
    # A quarter of the plot: half of the time of one of two ranks.
    assert tinted.sum() / (tinted.sum() + plain.sum()) == pytest.approx(0.25, abs=0.02)
    above = np.flatnonzero(tinted.any(axis=1))[0] - 1
    assert plain[above, tinted.any(axis=0)].all()


def test_threads_that_slept_when_hpcd_attached_are_nearly_blank(tmp_path: Path) -> None:
    slept = marker_name(UnwindStatus.BEFORE_ATTACH)
    path = make(tmp_path / "db", {0: [(f"{slept}/k_futex_wait", "blocked", 2.0)]})
    with hpcd.analysis.open(path) as db:
        grey = palette.parse_pattern(".* = #c0c0c0")
        draw(db, tmp_path / "t.png", PictureView(width=800, height=400, depth=1, colours=[grey]))
    with Image.open(tmp_path / "t.png") as picture:
        pixels = np.asarray(picture.convert("RGB"))
    line, blank = [(pixels == value).all(axis=2).sum() for value in (0xC0, (244, 245, 247))]
    assert 0 < line < 0.02 * blank


def test_colours_by_pattern() -> None:
    patterns = palette.parse_patterns(["MPI_.* = #d55e00", "", "solve=#0072B2", ".* = #000000"])
    names = ["MPI_Send", "PMPI_Send", "solve(int)", "solve"]
    colours = palette.colours(names, patterns)
    assert colours.tolist() == [[213, 94, 0], [0, 0, 0], [0, 114, 178], [0, 114, 178]]
    for wrong in (
        "",
        "x",
        "x = red",
        "x = #12345",
        "( = #000000",
        "= #000000",
        "x" * 999 + "=#000000",
    ):
        with pytest.raises(UsageError):
            palette.parse_pattern(wrong)
    with pytest.raises(UsageError):
        palette.parse_patterns(["x = #000000"] * 51)


@pytest.mark.parametrize("eyes", SEEN)
def test_few_pairs_of_procedures_look_alike_to_any_eyes(eyes: str) -> None:
    seen = seen_colours(palette.colours([f"procedure_{i}" for i in range(600)]), eyes)
    cones = np.cbrt(seen @ np.array([[0.4122214708, 0.5363325363, 0.0514459929],
                                     [0.2119034982, 0.6806995451, 0.1073969566],
                                     [0.0883024619, 0.2817188376, 0.6299787005]]).T)  # fmt: skip
    lab = cones @ np.array([[0.2104542553, 0.7936177850, -0.0040720468],
                            [1.9779984951, -2.4285922050, 0.4505937099],
                            [0.0259040371, 0.7827717662, -0.8086757660]]).T  # fmt: skip
    distance = np.linalg.norm(lab[:, None] - lab[None], axis=2)
    pairs = distance[np.triu_indices(len(lab), 1)]
    # Twice what can just be told apart.
    assert (pairs < 0.04).mean() < 0.05


@pytest.mark.parametrize("eyes", ["all", "no red", "no green"])
def test_colours_of_pictures_are_far_apart_to_any_eyes(eyes: str) -> None:
    """The colours and the one of the rest, also from the page's grounds, in light and dark."""
    style = (ROOT / "viewer/web/style.css").read_text()
    grounds = [
        tuple(bytes.fromhex(colour))
        for colour in re.findall("--(?:blank|asleep|waiting): #(.{6});", style)
    ]
    assert {palette.BLANK_LIGHT, palette.BLANK_DARK} < {*grounds}
    rgb = np.array([*palette.DISTINCT, palette.REST])
    assert least_distance(rgb, eyes, grounds) >= 25


def test_depth_view(database: Path, tmp_path: Path) -> None:
    with hpcd.analysis.open(database) as db:
        drawn = draw(db, tmp_path / "d.png", PictureView("depth"))
    assert drawn.depth == 2 and drawn.lines == [0]


def test_bad_views(database: Path, tmp_path: Path) -> None:
    with hpcd.analysis.open(database) as db:
        for view in (PictureView(start=5, end=5), PictureView(width=10)):
            with pytest.raises(UsageError):
                draw(db, tmp_path / "x.png", view)
        with pytest.raises(UsageError):
            draw(db, tmp_path / "x.jpg", PictureView())
        with pytest.raises(StorageError):
            draw(db, tmp_path / "missing" / "x.png", PictureView())
    assert (
        command("render", database, "-o", tmp_path / "x.png", "--rank", 9, check=False).returncode
        == 2
    )
    assert (
        command("render", database, "-o", tmp_path / "x.png", "--line", 9, check=False).returncode
        == 2
    )
    for wrong in (["--lines", "("], ["--lines", "nobody"], ["--sort", "none"]):
        call = command("render", database, "-o", tmp_path / "x.png", *wrong, check=False)
        assert call.returncode == 2 and call.stderr.count("\n") == 1


def test_lines_filtered_and_sorted(database: Path, tmp_path: Path) -> None:
    def lines(*arguments: str) -> list[int]:
        call = command("render", database, "-o", tmp_path / "x.png", "--json", *arguments)
        lines: list[int] = json.loads(call.stdout)["lines"]
        return lines

    assert sorted(lines("--sort", "records")) == lines()
    assert lines("--lines", "host:.") == lines()


def test_a_launcher_beside_its_program_tells_no_depth(tmp_path: Path) -> None:
    # By the outermost frames alone a rank differs from its launcher; by the third its work shows.
    solve, write = "start/main/solve", "start/main/write"
    steps: dict[int, list[Step]] = {0: [(solve, "cpu", 1.0), (write, "cpu", 1.0)]}
    launcher: dict[int, list[Step]] = {0: [("boot/wait", "cpu", 2.0)]}
    parts = [
        make(tmp_path / "app.db", steps, name="app").with_name("app.db-m"),
        make(tmp_path / "run.db", launcher, name="launcher").with_name("run.db-m"),
    ]
    merge(parts, tmp_path / "db")
    with hpcd.analysis.open(tmp_path / "db") as db:
        choice = depth_choice(db, PictureTree(db))
        assert choice["best"] == 3
        depths: Any = choice["depths"]
        assert [depth["variety"] > 0 for depth in depths] == [False, False, True]
        assert {name for name, _ in depths[2]["shown"]} == {"wait", "solve", "write"}


def test_how_threads_are_started_tells_nothing(tmp_path: Path) -> None:
    """The first thread's outermost frame is not that of the others: as of a program with OpenMP."""
    steps: dict[int, list[Step]] = {
        0: [(f"_start/{path}", "cpu", 1.0) for path in ("solve", "write")],
        1: [(f"Clone3/{path}", "cpu", 1.0) for path in ("solve", "write")],
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps, threads=True)) as db:
        assert db.procedure_names.count("_start") == 1
        choice = depth_choice(db, PictureTree(db))
        depths: Any = choice["depths"]
        assert [round(depth["variety"]) for depth in depths] == [0, 1]
        assert choice["best"] == 2


@pytest.mark.parametrize("view", ["trace", "depth", "flame"])
def test_pictures_have_short_names_and_their_results_whole_ones(tmp_path: Path, view: str) -> None:
    name = "market::Ledger::book(market::Order const&)"
    path = make(tmp_path / "db", {0: [(f"main/{name}", "cpu", 0.5)]})
    with hpcd.analysis.open(path) as db:
        drawn = draw(db, tmp_path / "v.svg", PictureView(view, 900, 400, line=0))
    text = (tmp_path / "v.svg").read_text()
    assert " Ledger::book -->" in text and "market::Order" not in text
    assert view == "flame" or name in dict(drawn.shares)
