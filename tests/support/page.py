"""The viewer's page in a real browser: what is asked of it, and its screenshots."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from tests.support.paths import ROOT

SHOTS = ROOT / "build" / "screenshots"


@contextmanager
def watched(browser: Browser, url: str) -> Iterator[Page]:
    """A page that fails the test if it logs an error."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(60_000)
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
    assert not errors, errors


def window(page: Page) -> list[int]:
    """Return the time and the rows in view, as the URL has them."""
    bounds = dict(re.findall(r"\b(t0|t1|l0|l1)=(\d+)", page.url))
    return [int(bounds[key]) for key in ("t0", "t1", "l0", "l1")]


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag from one place of the trace view to another, in shares of it."""
    box = page.locator("#trace-canvas canvas").bounding_box()
    assert box
    points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
    page.mouse.move(*points[0])
    page.mouse.down()
    page.mouse.move(*points[1], steps=4)
    page.mouse.up()


def at(page: Page, part: str) -> None:
    """Wait until the URL says so. (The page's policy forbids to evaluate strings, so no
    wait_for_function.)"""
    expect(page).to_have_url(re.compile(re.escape(part)))


def rows(page: Page) -> list[str]:
    return [text.strip() for text in page.locator(".table .row .name").all_text_contents()]


def unnamed(page: Page) -> object:
    """Controls that a screen reader could not tell."""
    return page.evaluate(
        "[...document.querySelectorAll('button, input, select, canvas')].filter(each =>"
        " !each.hidden && !each.textContent.trim() && !each.getAttribute('aria-label')"
        " && !each.closest('label'))"
        ".map(each => each.outerHTML)"
    )


def shot(page: Page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")
