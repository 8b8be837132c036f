"""States of threads in pictures and on the page agree with the report, for real programs."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, sync_playwright

from hpcd.analysis import Database
from hpcd.analysis.profile.state_times import times_by_state
from hpcd.analysis.trace.states import STATES, states_of
from hpcd.model.cct import NO_NODE
from hpcd.model.codes import State
from tests.support.lammps import ENVIRONMENT, melt
from tests.support.page import watched
from tests.support.recorded import hpcd, record
from tests.support.viewer import served

pytestmark = pytest.mark.root

_PIXEL_NS = 60_000
"""A little more than the threshold of waits that have records of their own."""


@pytest.fixture(scope="module", params=["turns", "server", "short regions", "lammps"])
def database(
    request: pytest.FixtureRequest, build: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:  # fmt: skip
    """A recording of a program that waits often."""
    folder = tmp_path_factory.mktemp(request.param.replace(" ", "-"))
    command: list[object] = {
        "turns": lambda: [build("turns.c"), "2"],
        "server": lambda: [build("server.c"), "2", "4"],
        "short regions": lambda: [build("short_regions.c", "-fopenmp"), "2"],
        "lammps": lambda: melt(folder, 200),
    }[request.param]()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in {**ENVIRONMENT, "OMP_NUM_THREADS": "3"}.items():
            if os.environ.get(name) != value:
                patch.setenv(name, value)
        record(folder / "m", command)
    hpcd("merge", folder / "m", "-o", folder / "db")
    return folder / "db"


def reported(database: Path) -> tuple[float, float, float]:
    """Seconds that the report has of the threads: CPU time, blocked, waiting for a CPU."""
    report: dict[str, Any] = json.loads(hpcd("report", "--json", database).stdout)
    seconds = report["seconds"]
    return seconds["cpu_time"], seconds["blocked_time"], seconds["runnable_time"]


def test_times_by_state_are_the_reports(database: Path) -> None:
    cpu, blocked, ready = reported(database)
    with Database(database) as db:
        lived = float((db.lines.end - db.lines.start).sum()) / 1e9
        lines = np.arange(len(db.lines))
        times = times_by_state(db, lines, 0, db.duration_ns)
        period = float(db.rows("SELECT scale FROM event WHERE id = 0")[0][0])
        seconds = times.seconds.sum(axis=1)
        assert times.pixels == 0
        near = 0.01 * lived / 3
        assert seconds[State.BLOCKED] == pytest.approx(blocked, rel=0.01, abs=near / 10)
        assert seconds[State.READY] == pytest.approx(ready, rel=0.01, abs=near / 10)
        assert seconds[State.SAMPLED] == pytest.approx(lived - blocked - ready, rel=0.01, abs=near)
        # Samples are random, and a hypervisor may take some: five standard errors and a tenth.
        assert seconds[State.SAMPLED] == pytest.approx(
            cpu, abs=5 * math.sqrt(cpu * period) + 0.1 * cpu
        )


def test_pixels_are_in_the_states_that_the_report_has(database: Path) -> None:
    _, blocked, ready = reported(database)
    with Database(database) as db:
        lived = float((db.lines.end - db.lines.start).sum()) / 1e9
        width = db.duration_ns // _PIXEL_NS
        pixels = db.sample_grid(None, 0, db.duration_ns, len(db.lines), width)
        shown = states_of(pixels[pixels != NO_NODE])
        seconds = np.bincount(shown, minlength=STATES) / len(shown) * lived
        running = lived - blocked - ready
        assert seconds == pytest.approx([running, blocked, ready], abs=0.01 * lived)


def test_a_rendered_picture_says_them(database: Path, tmp_path: Path) -> None:
    _, blocked, ready = reported(database)
    words = ["render", database, "-o", tmp_path / "picture.png", "--all-lines", "--json"]
    states = json.loads(hpcd(*words).stdout)["states"]
    waits = states["asleep"] + states["waiting"] - states["waiting_on_cpu"]
    assert waits == pytest.approx(blocked, rel=0.01)
    assert states["ready"] == pytest.approx(ready, rel=0.01, abs=0.003)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )


def test_in_view_on_the_page_is_what_is_rendered(
    database: Path, browser: Browser, tmp_path: Path
) -> None:
    words = ["render", database, "-o", tmp_path / "picture.png", "--json"]
    states = json.loads(hpcd(*words).stdout)["states"]
    total = sum(states.values()) - states["waiting_on_cpu"]
    with served(database) as (url, _), watched(browser, url) as page:
        page.wait_for_selector("main[data-exact]")
        shown = dict.fromkeys(("running", "ready", "waiting", "asleep"), 0.0)
        for row in page.locator("#states tr").all_inner_texts():
            name, amount, _ = row.split("\t")
            shown[re.match("[a-z]+", name).group()] += seconds_of(amount)  # type: ignore[union-attr]
    for name, seconds in shown.items():
        assert seconds == pytest.approx(states[name], rel=0.01, abs=0.002 * total), name


def seconds_of(text: str) -> float:
    """Seconds of an amount as the page writes it."""
    amount, unit = text.split()
    return float(amount) * {"s": 1, "ms": 1e-3, "µs": 1e-6}[unit]
