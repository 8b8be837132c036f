"""A viewer that serves a small database, and a real browser to look at it with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from hpcd.analysis.merge import merge
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Module, ModuleKind, Node, Process, Thread

NAMES = ["main", "solve", "exchange", "assemble", "kernel"]
SHOTS = Path(__file__).parents[2] / "build" / "screenshots"


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight ranks that solve and exchange in turn for a second; rank 7 solves longer."""
    folder = tmp_path_factory.mktemp("viewer")
    events = [
        Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000),
        Event(1, "blocked", "s", 1e-6, "blocked_time", interval=True),
    ]
    paths = []
    for rank in range(8):
        path = folder / f"rank{rank}"
        writer = MeasurementWriter(path, Node("host", "b", "6", "x86_64", 2), options={})
        for event in events:
            writer.add_event(event)
        writer.add_module(Module(1, ModuleKind.JIT, "[jit]", process=1))
        writer.add_symbols(1, [(16 * i, 16, name) for i, name in enumerate(NAMES)])
        writer.add_process(Process(1, 100 + rank, 1, "app", "/app", (), 0, 0, "job", rank, 8))
        writer.add_thread(Thread(0, 1, 100 + rank, "app", 0, 1_000_000_000))
        # main > solve > assemble > kernel; main > exchange
        frames = [module_frame(1, 16 * i + 4) for i in (0, 1, 3, 4, 2)]
        first = writer.add_nodes(np.array([0, 1, 2, 3, 1], np.uint32), np.array(frames, np.uint64))
        time, end = 0, 1_000_000_000
        while time < end:
            busy = 60 if rank == 7 else 20 + 4 * rank
            count = min(busy, (end - time) // 1_000_000)
            times = np.arange(count, dtype=np.uint64) * np.uint64(1_000_000) + np.uint64(time)
            leaf = np.where(np.arange(count) % 3, first + 3, first + 2).astype(np.uint32)
            writer.add_records(np.zeros(count, np.uint32), times, leaf, 0)
            time += count * 1_000_000
            wait = min((70 - busy) * 1_000_000, end - time)
            if wait > 0:
                writer.add_records(
                    np.zeros(1, np.uint32), np.array([time], np.uint64),
                    np.array([first + 4], np.uint32), 1, np.array([wait // 1000], np.uint64),
                )  # fmt: skip
                time += wait
        writer.add_clock_pair(0, 10**18)
        writer.close({})
        paths.append(path)
    merge(paths, folder / "run.db")
    return folder / "run.db"


@pytest.fixture(scope="session")
def url(database: Path) -> Iterator[str]:
    """The viewer's URL, token and all."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hpcd", "view", "--no-browser", str(database)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium without a screen."""
    with sync_playwright() as playwright:
        # In containers the browser's own sandbox cannot be set up by root.
        yield playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """The page with its first picture drawn. What it logs as an error fails the test."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))

    def said(message: ConsoleMessage) -> None:
        # A mistyped filter is refused by the server, and said so on the page.
        if message.type == "error" and "400 (Bad Request)" not in message.text:
            errors.append(message.text)

    page.on("console", said)
    page.goto(url)
    page.wait_for_selector("main[data-drawn]")
    yield page
    page.close()
    assert errors == []
