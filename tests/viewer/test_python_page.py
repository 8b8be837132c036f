"""Python functions on the page, and the switch that shows the interpreter's frames."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.support.page import at, rows, watched
from tests.support.viewer import python_program, served


def test_python_functions_and_native_frames(browser: Browser, tmp_path: Path) -> None:
    with served(python_program(tmp_path)) as (url, _), watched(browser, url) as page:
        page.wait_for_selector("main[data-drawn]")
        expect(page.locator("main")).to_contain_text("solve  app.py:1")
        expect(page.locator("main")).not_to_contain_text("[python3+")
        page.keyboard.press("3")
        page.get_by_role("button", name="Flat").click()
        expect(page.locator(".table .row .name").first).to_have_text("solve  app.py:1")
        assert not any(name.startswith("[python3+") for name in rows(page))
        page.get_by_label("Native frames").check()
        at(page, "native=1")
        expect(page.locator(".table .row .name").first).to_contain_text("[python3+")
        page.keyboard.press("2")
        page.keyboard.press("i")
        expect(page.get_by_label("Native frames")).not_to_be_checked()
        page.keyboard.press("1")
        expect(page.locator("main")).not_to_contain_text("[python3+")
        # The file is a part of the name that is found.
        page.fill("#search", "app.py")
        expect(page.locator("#find output")).to_contain_text("1 match")
