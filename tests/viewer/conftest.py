"""A viewer that serves a small database, and a real browser to look at it with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.support.compiled import compiled
from tests.support.viewer import eight_ranks, served, two_runs

SHOTS = Path(__file__).parents[2] / "build" / "screenshots"


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight ranks that solve and exchange in turn."""
    return eight_ranks(tmp_path_factory.mktemp("viewer"))


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs of one program on two and on four ranks."""
    return two_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples all over a program with debug information."""
    return compiled(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="session")
def url(database: Path, runs: list[Path], program: Path) -> Iterator[str]:
    """The viewer's URL, token and all; the eight ranks come first."""
    with served(database, *runs, program) as (url, _):
        yield url


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium without a screen."""
    with sync_playwright() as playwright:
        # In containers the browser's own sandbox cannot be set up by root.
        yield playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )


@contextmanager
def watched(browser: Browser, url: str) -> Iterator[Page]:
    """A page that fails the test if it logs an error."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))

    def said(message: ConsoleMessage) -> None:
        # A mistyped filter is refused by the server, and said so on the page.
        if message.type == "error" and "400 (Bad Request)" not in message.text:
            errors.append(message.text)

    page.on("console", said)
    page.goto(url)
    yield page
    page.close()
    assert errors == []


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """The page with its first picture drawn."""
    with watched(browser, url) as page:
        page.wait_for_selector("main[data-drawn]")
        yield page
