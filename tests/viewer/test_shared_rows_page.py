"""Rows that threads share, on the page: a click shows the path of who lived at that moment."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.support.brief_threads import a_thread_a_request
from tests.support.page import watched
from tests.support.viewer import served


def test_a_click_shows_the_path_of_the_thread_there(browser: Browser, tmp_path: Path) -> None:
    with (
        served(a_thread_a_request(tmp_path)) as (url, _),
        watched(browser, url) as page,
    ):
        expect(page.locator("#count")).to_have_text("41 lines in 3 rows")
        labels = page.locator("#trace-labels span")
        expect(labels).to_have_text(["server 100", *["· 20 threads"] * 2])
        # The place where most is spent, and what a finding leads to, are in the row of a thread.
        expect(page.locator("#path-at")).to_have_text(re.compile(r"most spent: .*20 threads"))
        expect(page.locator("#path li")).to_have_text(["answer"])
        page.locator("#findings").get_by_role("button", name="Most work").click()
        expect(page.locator("#path-at")).to_have_text(re.compile(r"^server 100 · 20 threads"))
        page.go_back()
        expect(page.locator("#path-at")).to_contain_text("most spent")
        box = page.locator("#trace-canvas canvas").bounding_box()
        assert box
        for share in (0.3, 0.7):
            page.mouse.click(box["x"] + share * box["width"], box["y"] + 0.5 * box["height"])
            expect(page.locator("#path li")).to_have_text(["answer"])
        page.locator("#all-lines").check()
        expect(page.locator("#count")).to_have_text("41 lines")
