"""The viewer's page in a real browser, and what is asked of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, ConsoleMessage, Error, Page, ViewportSize, expect

# A page that never comes to what is expected fails by this and says why. These tests run on CPU
# time that is left (SCHED_IDLE): a load has taken more than 60 s beside programs that use all.
PATIENCE_MS = 240_000

SIZE: ViewportSize = {"width": 1400, "height": 900}
# Tabs of tests that are over, by server, the latest last: a load in one takes half of the CPU time
# that it takes in a new one.
_MOST_TABS = 4
_tabs: dict[str, Page] = {}


@contextmanager
def watched(browser: Browser, url: str) -> Iterator[Page]:
    """A page that fails the test if it logs an error."""
    server = url.partition("#")[0]
    tab = _tabs.pop(server, None)
    page = tab or browser.new_page(viewport=SIZE)
    page.set_default_timeout(PATIENCE_MS)
    errors: list[str] = []

    def on_error(error: Error) -> None:
        errors.append(str(error))

    def on_message(message: ConsoleMessage) -> None:
        # A mistyped filter is refused by the server, and said so on the page.
        if message.type == "error" and "400 (Bad Request)" not in message.text:
            errors.append(message.text)

    page.on("pageerror", on_error)
    page.on("console", on_message)
    if tab and page.url.startswith(server):
        page.set_viewport_size(SIZE)
        page.mouse.move(0, 0)
        page.evaluate("localStorage.clear()")
        load(page, url)
    else:
        page.goto(url)
    yield page
    page.remove_listener("pageerror", on_error)
    page.remove_listener("console", on_message)
    page.unroute_all()
    _tabs[server] = page
    if len(_tabs) > _MOST_TABS:
        _tabs.pop(next(iter(_tabs))).close()
    assert not errors, errors


def load(page: Page, url: str) -> None:
    """Load the viewer's page anew, at a URL of the server that it is from."""
    # Until then what is on the page already may not write its own state over the URL.
    page.evaluate(
        "url => { history.replaceState(null, '', url);"
        " history.replaceState = history.pushState = () => {}; }",
        url,
    )
    page.reload()


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
