"""The page in a real browser."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.viewer.conftest import SHOTS


def window(page: Page) -> list[int]:
    found = dict(re.findall(r"(t0|t1|l0|l1)=(\d+)", page.url))
    return [int(found[key]) for key in ("t0", "t1", "l0", "l1")]


def shot(page: Page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    box = page.locator("#trace-canvas canvas").bounding_box()
    assert box
    points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
    page.mouse.move(*points[0])
    page.mouse.down()
    page.mouse.move(*points[1], steps=4)
    page.mouse.up()


def test_zoom_by_dragging_keys_and_wheel_and_back(page: Page) -> None:
    whole = window(page)
    assert whole[0] == 0 and whole[2:] == [0, 8]
    drag(page, (0.25, 0.25), (0.5, 0.75))
    page.wait_for_function("location.hash.includes('l0=2')")
    t0, t1, l0, l1 = window(page)
    assert abs(t0 - whole[1] / 4) < whole[1] / 50 and abs(t1 - whole[1] / 2) < whole[1] / 50
    assert (l0, l1) == (2, 6)
    page.keyboard.press("w")
    assert window(page)[1] - window(page)[0] < 0.75 * (t1 - t0)
    page.keyboard.press("d")
    page.keyboard.press("u")
    page.keyboard.press("u")
    assert window(page) == [t0, t1, l0, l1]
    page.keyboard.press("r")
    page.get_by_role("button", name="Home").click()
    assert window(page) == whole
    page.locator("#trace-canvas canvas").hover()
    page.mouse.wheel(0, -200)
    page.wait_for_function(f"!location.hash.includes('t1={whole[1]}&')")


def test_a_click_shows_the_call_path_and_the_depth_view(page: Page) -> None:
    drag(page, (0.01, 0.95), (0.01, 0.95))
    path = page.locator("#path li")
    expect(path.first).to_contain_text("main")
    expect(path.nth(1)).to_contain_text("solve")
    path.nth(1).locator("button").click()
    page.wait_for_function("location.hash.includes('depth=2')")
    expect(page.locator("#path li.current")).to_contain_text("solve")
    expect(page.locator("#shares li").first).to_contain_text("%")
    shot(page, "trace")


def test_depth_changes_without_a_request(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.keyboard.press("[")
    page.keyboard.press("[")
    page.keyboard.press("]")
    expect(page.locator("#depth-value")).not_to_have_text("8")
    assert asked == []


def test_search_fades_what_is_not_it_and_the_url_is_the_view(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("exchange")
    page.wait_for_function("location.hash.includes('search=exchange')")
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    shot(page, "search-dark")
    page.reload()
    page.wait_for_selector("main[data-drawn]")
    assert page.input_value("#search") == "exchange"


def test_flame_graph_of_the_run_and_of_what_is_in_view(page: Page) -> None:
    page.keyboard.press("2")
    page.wait_for_selector("main[data-boxes]")
    page.select_option("#metric", "blocked_time")
    expect(page.locator("#what")).to_contain_text("s")
    page.select_option("#scope", "view")
    expect(page.locator("#what")).to_contain_text("pixels")
    page.locator("#flame-canvas canvas").click(position={"x": 200, "y": 27})
    expect(page.locator("#what")).to_contain_text("%")
    shot(page, "flame")


def test_help_and_labels(page: Page) -> None:
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, select, canvas')].filter(each =>"
        " !each.textContent.trim() && !each.getAttribute('aria-label') && !each.closest('label'))"
        ".map(each => each.outerHTML)"
    )
    assert unnamed == []
