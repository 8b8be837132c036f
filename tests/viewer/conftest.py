"""A viewer that serves a small database, and a real browser to look at it with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.called import ranks_that_call
from tests.support.compiled import compiled
from tests.support.page import PATIENCE_MS, watched
from tests.support.viewer import eight_ranks, ranks_with_helpers, served, two_runs

expect.set_options(timeout=PATIENCE_MS)


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
def helped_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a viewer of two ranks with three helper threads each."""
    with served(ranks_with_helpers(tmp_path_factory.mktemp("helped"), helpers=3)) as (url, _):
        yield url


@pytest.fixture(scope="session")
def called(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks that recorded calls of MPI, files, memory and a probed function."""
    return ranks_that_call(tmp_path_factory.mktemp("called"))


@pytest.fixture(scope="session")
def called_url(called: Path) -> Iterator[str]:
    """The URL of a viewer of these."""
    with served(called) as (url, _):
        yield url


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
    """The page with its first picture drawn."""
    with watched(browser, url) as page:
        page.wait_for_selector("main[data-drawn]")
        yield page
