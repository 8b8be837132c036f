"""Names on the page: short ones to be read, whole ones in titles and for the search."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.made import make
from tests.support.page import load, rows, watched
from tests.support.viewer import served

_SORT = "void std::sort<std::It<{0}*, std::vector<{0}>>>(std::It<{0}*>, std::It<{0}*>)"
NAMES = {
    _SORT.format("float"): "std::sort<float>",
    _SORT.format("double"): "std::sort<double>",
    "market::Ledger::book(market::Order const&)": "Ledger::book",
    "std::mersenne_twister_engine<unsigned long, 32ul, 624ul>::operator()()":
        "mersenne_twister_engine::operator()",
}  # fmt: skip
"""Whole names, and what people read."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A viewer of a rank that is in each of :data:`NAMES`, in the last one below the one before."""
    *outer, inner = NAMES
    steps = [(f"main/{name}", "cpu", 0.1) for name in outer]
    steps.append((f"main/{outer[-1]}/{inner}", "cpu", 0.4))
    with served(make(tmp_path_factory.mktemp("long") / "long.db", {0: steps})) as (url, _):
        yield url


def test_lists_beside_the_picture_have_short_names_that_differ(browser: Browser, url: str) -> None:
    with watched(browser, url) as page:
        page.wait_for_selector("main[data-exact]")
        entries = page.locator("#shares li")
        texts = [text.strip() for text in entries.locator("button").all_text_contents()]
        assert {*texts} == {*NAMES.values()}
        # No name is cut: names that begin alike would look alike.
        cut = "buttons => buttons.filter(one => one.scrollWidth > one.clientWidth).length"
        assert entries.locator("button").evaluate_all(cut) == 0
        for whole, short in NAMES.items():
            title = entries.filter(has_text=re.compile(re.escape(short))).get_attribute("title")
            assert title and title.split("\n")[0] == whole
        *_, inner = page.locator("#path li button").all_text_contents()
        assert inner.strip() == "mersenne_twister_engine::operator()"
        # The whole name is searched for; a person may type the short one.
        page.locator("#path li").last.hover()
        entries.filter(has_text="Ledger::book").locator("button").click()
        expect(page.locator("#find input")).to_have_value(
            "market::Ledger::book(market::Order const&)"
        )
        for typed in ("std::sort<double>", "sort<std::It<double"):
            page.locator("#find input").fill(typed)
            expect(page.locator("#find output")).to_have_text("1 match")


def test_other_panes_have_the_same_short_names(browser: Browser, url: str) -> None:
    with watched(browser, url) as page:

        def open_pane(part: str) -> None:
            load(page, f"{url}&{part}")
            page.wait_for_selector("main > section")

        open_pane("pane=calls&view=flat")
        expect(page.locator(".table .row .name")).to_have_count(5)
        assert {*rows(page)} == {"main", *NAMES.values()}
        name = page.locator(".table .row .name", has_text="Ledger::book").locator("[title]").first
        expect(name).to_have_attribute("title", re.compile(r"^market::Ledger::book\(market"))
        open_pane("pane=lines")
        expect(page.locator("#columns li", has_text="std::sort<float>")).to_have_count(1)
        open_pane("pane=source&about=market::Ledger::book(market::Order const%26)")
        expect(page.locator("#of")).to_have_text("Ledger::book")
        expect(page.locator("#of")).to_have_attribute("title", [*NAMES][2])
        open_pane("pane=stacks")
        expect(page.locator(".table .row .name").first).to_contain_text(
            re.compile("std::sort<float>|Ledger::book|sort<double>")
        )
        open_pane("pane=flame")
        page.wait_for_selector("main[data-boxes]")
        _hover(page, 0.5, 18 * 1.5)
        expect(page.locator("#flame-tip")).to_have_text(
            re.compile(r"^Ledger::book\nmarket::Ledger::book\(market::Order const&\)\n")
        )


def _hover(page: Page, x: float, y: float) -> None:
    """Move the mouse to ``x``, a share of the flame graph's width, and ``y`` pixels in it."""
    box = page.locator("#flame-canvas canvas").bounding_box()
    assert box
    page.mouse.move(box["x"] + x * box["width"], box["y"] + y)
