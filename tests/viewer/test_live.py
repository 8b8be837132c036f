"""The page while a recording is written, written here a piece at a time."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from hpcd.measurement.summary import SampleCounts, Summary
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from tests.support.viewer import served

NAMES = ["main", "solve", "zeta", "alpha"]


class Growing:
    """A measurement that grows when it is told to."""

    def __init__(self, path: Path) -> None:
        self.writer = MeasurementWriter(path, Host("host", "b", "6", "x86_64", 2), options={})
        self.writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
        self.writer.add_module(Module(1, ModuleKind.JIT, "[jit]", process=1))
        self.writer.add_symbols(1, [(16 * i, 16, name) for i, name in enumerate(NAMES)])
        self.writer.add_process(Process(1, 100, 1, "app", "/app", (), 0, 0, "job", 0, 1))
        self.writer.add_clock_pair(0, 10**18)

    def thread(self, line: int, tid: int) -> None:
        self.writer.add_thread(Thread(line, 1, tid, f"t{tid}", 0, None))

    def nodes(self, parents: list[int], names: list[str]) -> int:
        frames = [module_frame(1, 16 * NAMES.index(name) + 4) for name in names]
        return self.writer.add_nodes(np.array(parents, np.uint32), np.array(frames, np.uint64))

    def summary(self, at_ms: int, dropped: int) -> None:
        """As a recorder writes one every second."""
        self.writer.add_clock_pair(at_ms * 1_000_000, 10**18 + at_ms * 1_000_000)
        samples = SampleCounts(dropped={"sample ring full": dropped})
        self.writer.flush(Summary(samples=samples, duration_s=at_ms / 1000))

    def run(self, line: int, start_ms: int, end_ms: int, node: int) -> None:
        times = np.arange(start_ms, end_ms, dtype=np.uint64) * np.uint64(1_000_000)
        size = len(times)
        self.writer.add_records(np.full(size, line, np.uint32), times,
                                np.full(size, node, np.uint32), 0)  # fmt: skip


def test_the_page_goes_along_and_stays(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    growing = Growing(tmp_path / "m")
    growing.thread(5, 200)
    solve = growing.nodes([0, 1], ["main", "solve"]) + 1
    growing.run(5, 0, 1000, solve)
    growing.summary(1000, dropped=0)
    with served("--live", tmp_path / "m") as (url, viewer):
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url + "&search=solve")
        page.wait_for_selector("main[data-drawn]")
        expect(page.locator("#live")).to_have_text("● Recording")
        page.locator("#trace-canvas canvas").click(position={"x": 100, "y": 50})
        expect(page.locator("#path li")).to_have_text(["main", "solve"])
        page.keyboard.press("3")
        page.wait_for_selector("main[data-rows]")
        page.get_by_role("button", name="Hot path").click()
        expect(page).to_have_url(re.compile("context=n2"))
        # A thread whose line comes first, nodes that come before: all numbers change.
        growing.thread(6, 100)
        zeta = growing.nodes([1, 0, 4], ["zeta", "alpha", "zeta"])
        growing.run(6, 1000, 2000, zeta)
        growing.run(6, 2000, 2010, zeta + 2)
        growing.run(5, 1000, 2010, solve)
        growing.summary(2010, dropped=7)
        expect(page).to_have_url(re.compile("t0=0&t1=2010000000&l0=0&l1=2"))
        rows = page.locator(".table .row .name")
        expect(rows).to_have_text(["▾main", "solve", "zeta", "▸alpha"])
        expect(page.locator(".table .row.current")).to_contain_text("solve")
        selected = re.search(r"context=n(\d+)", page.url)
        assert selected and "search=solve" in page.url
        page.keyboard.press("1")
        page.wait_for_selector("main[data-drawn]")
        expect(page.locator("#path li")).to_have_text(["main", "solve"])
        at(page.url, "line", 1)
        # What was dropped is counted, and hatched where it was.
        expect(page.locator("#count")).to_have_text("2 lines, 7 samples dropped")
        expect(page.locator("#lines")).to_have_attribute("data-losses", "1")
        expect(page.locator("#lines")).to_have_attribute("data-hatched", "2")
        page.locator("#trace-canvas canvas").hover(position={"x": 600, "y": 50})
        expect(page.locator("#lines > .tip")).to_contain_text("7 samples of its recording dropped")
        page.locator("#trace-canvas canvas").hover(position={"x": 100, "y": 50})
        expect(page.locator("#lines > .tip")).not_to_contain_text("dropped")
        # Who looks elsewhere is left in peace; End goes along again, with a strip that slides.
        page.keyboard.press("w")
        expect(page.locator("#live")).to_have_text("● Recording: to its end")
        before = page.url
        growing.run(6, 2010, 3000, zeta)
        growing.run(5, 2010, 3000, solve)
        growing.writer.flush(Summary())
        whole = page.locator("#mini-canvas canvas")
        drawn = whole.screenshot()
        while whole.screenshot() == drawn:
            page.wait_for_timeout(50)
        assert page.url == before
        page.locator("#live").click()
        expect(page).to_have_url(re.compile("t1=2999000000"))
        growing.run(6, 3000, 4000, zeta)
        growing.writer.close()
        expect(page.locator("#live")).to_have_text("Recording ended")
        expect(page).to_have_url(re.compile("t1=3999000000"))
        assert not re.search("t0=0&", page.url)
        page.wait_for_selector("main[data-exact*='3999000000']")
        page.close()
        assert errors == []
        assert list(temporary.glob("hpcd-view-*"))
        viewer.send_signal(signal.SIGINT)
        viewer.wait()
    assert not list(temporary.glob("hpcd-view-*"))


def at(url: str, name: str, value: int) -> None:
    assert re.search(f"[&#]{name}={value}(&|$)", url), url
