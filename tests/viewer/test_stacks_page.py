"""Threads' positions on the page: a database's moment, and the findings about it."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.support.made import Step, make
from tests.support.page import at, rows, watched
from tests.support.viewer import served


def open_at(page: Page, seconds: str) -> None:
    page.get_by_role("tab", name="Stacks").click()
    page.fill("#at", seconds)
    page.press("#at", "Enter")
    page.wait_for_selector(f"main[data-stacks^='{float(seconds) * 1000:.1f} ms']")


def test_who_is_not_where_the_others_are(page: Page) -> None:
    open_at(page, "0.545")
    expect(page.locator("#stands-out li").first).to_have_text("1 of 8 ranks is not in exchange:")
    expect(page.locator("#stands-out li").nth(1)).to_contain_text("rank 7 in ")
    expect(page.locator("#what")).to_contain_text("8 processes (8 ranks), 8 threads: 7 asleep")
    # Its sentence leads to its row, and the row to its trace line.
    page.locator("#stands-out button").nth(1).click()
    expect(page.locator(".table .row.current")).to_contain_text("app (107)")
    at(page, "line=7")
    names = rows(page)
    assert names[0].endswith("main")
    assert any("exchange" in name for name in names)
    assert any(re.search("solve . assemble", name) for name in names)
    waiting = page.locator(".table .row", has_text="exchange").first
    expect(waiting.locator(".cell").nth(1)).to_have_text("ranks 0-6")
    expect(waiting.locator(".cell").nth(2)).to_have_text(re.compile(r"^\d+-\d+ ms$"))


def test_a_thread_leads_to_its_trace_line_and_back(page: Page) -> None:
    open_at(page, "0.545")
    row = page.locator(".table .row", has_text="asleep").first
    row.locator(".twist").click()
    page.locator(".table .row", has_text="app (103)").click()
    at(page, "line=3")
    page.get_by_role("tab", name="Trace").click()
    expect(page.locator("#path li").nth(1)).to_contain_text("exchange")
    # A click on another moment there is the moment here.
    box = page.locator("#trace-canvas canvas").bounding_box()
    assert box
    page.mouse.click(box["x"] + 0.01 * box["width"], box["y"] + 10)
    page.get_by_role("tab", name="Stacks").click()
    expect(page.locator("#what")).to_contain_text("8 running")
    page.locator("#slider").fill("545")
    expect(page.locator("#stands-out li").first).to_contain_text("not in exchange")


def test_what_is_no_moment_leaves_it_where_it_was(page: Page) -> None:
    open_at(page, "0.545")
    page.fill("#at", "")
    page.press("#at", "Enter")
    expect(page.locator("#at")).to_have_value("0.54500")
    page.fill("#at", "99")
    page.press("#at", "Enter")
    at(page, "time=999000000")
    expect(page.locator("#moments")).to_have_text("Now: not after the end of a recording")
    expect(page.locator("#moments small")).to_have_attribute("title", re.compile("hpcd stacks"))


def test_in_the_dark_and_by_what_is_found(page: Page) -> None:
    page.keyboard.press("t")
    open_at(page, "0.545")
    page.fill("#search", "exchange")
    expect(page.locator(".table .found")).to_have_count(1)
    page.keyboard.press("Escape")
    page.locator("#kernel").check()
    at(page, "kernel=1")


def test_flame_graphs_begin_at_main(browser: Browser, tmp_path: Path) -> None:
    """Neither the loader nor the C library's part before main is drawn."""
    steps: dict[int, list[Step]] = {
        0: [(f"_start/__libc_start_main/main/{name}", "cpu", 1.0) for name in ("solve", "write")]
    }
    with (
        served(make(tmp_path / "db", steps)) as (url, _),
        watched(browser, f"{url}&pane=flame") as page,
    ):
        page.wait_for_selector("main[data-boxes]")
        # main, and what it calls.
        expect(page.locator("main")).to_have_attribute("data-boxes", "3")
        page.get_by_role("button", name="Inverted").click()
        expect(page.locator("main")).not_to_have_attribute("data-boxes", "3")
