"""Tables of the page: their columns, deep call paths, units."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.compiled import PROGRAM, compiled
from tests.support.page import watched
from tests.support.viewer import served


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a viewer of the recording that hpcd brings."""
    with served("--example") as (url, _):
        yield url


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """Its profile, the hot path open: 12 levels."""
    with watched(browser, url + "&pane=calls") as page:
        page.wait_for_selector("main[data-rows]")
        yield page


def box(page: Page, selector: str) -> dict[str, float]:
    """The place of the first element, in one step: rows are drawn anew at any time."""
    place: dict[str, float] = page.evaluate(
        "selector => document.querySelector(selector).getBoundingClientRect().toJSON()", selector
    )
    return place


def width(page: Page, selector: str) -> float:
    return box(page, selector)["width"]


def test_columns_are_chosen_and_widened_and_remembered(page: Page) -> None:
    header = page.get_by_role("columnheader", name="records", exact=True)
    expect(header).to_have_count(1)
    cells = page.locator(".table .row").first.locator(".cell")
    count = cells.count()
    page.get_by_label("Columns", exact=True).click()
    page.locator(".column-choice label", has_text=re.compile("^records$")).click()
    page.locator(".column-choice label", has_text=re.compile("^records self$")).click()
    page.keyboard.press("Escape")
    expect(header).to_have_count(0)
    expect(cells).to_have_count(count - 2)
    before = width(page, ".table .name")
    border = box(page, ".table .head .border")
    page.mouse.move(border["x"] + 3, border["y"] + 3)
    page.mouse.down()
    page.mouse.move(border["x"] + 123, border["y"] + 3, steps=3)
    page.mouse.up()
    assert abs(width(page, ".table .name") - before - 120) <= 4
    first = page.get_by_role("columnheader", name=re.compile("^cpu time ▾"))
    first.focus()
    page.keyboard.press("Alt+ArrowRight")
    widened = width(page, ".table .cell")
    assert widened == 134 + 16
    page.reload()
    page.wait_for_selector("main[data-rows]")
    expect(cells).to_have_count(count - 2)
    assert width(page, ".table .cell") == widened
    page.locator(".table .head .border").nth(1).dblclick()
    assert width(page, ".table .cell") == 134


def test_deep_rows_have_room_for_their_names_and_say_what_calls_them(page: Page) -> None:
    deep = page.locator(".table .row", has=page.locator(".name small")).first
    expect(deep.locator(".name small")).to_have_text("11")
    padding = page.evaluate(
        "parseFloat(getComputedStyle(document.querySelector('.row .name:has(small)')).paddingLeft)"
    )
    assert padding < 150 and width(page, ".table .name") >= 400
    deep.click()
    crumbs = page.get_by_role("navigation", name="Callers of the chosen row").get_by_role("button")
    expect(crumbs).to_have_count(11)
    crumbs.filter(has_text=re.compile("^move_particles$")).click()
    expect(page.locator(".table .row.current .name")).to_contain_text("move_particles")
    expect(crumbs.last).to_have_text("move_particles")
    texts = page.locator(".table .row .cell:nth-child(2)").all_text_contents()
    assert texts and all(re.match(r"\d+\.\d{3} s ", text) for text in texts if text), texts
    page.get_by_role("button", name="Callers and callees").click()
    page.wait_for_selector("main[data-rows^=around]")
    names = page.locator(".table .row .name")
    expect(names.first).to_have_text(re.compile("move_particles.*called by"))
    expect(names.nth(1)).to_contain_text("main")
    expect(names.nth(2)).to_have_text(re.compile("move_particles.*calls"))
    expect(names.nth(3)).to_contain_text("force [inlined]")


def test_a_link_to_the_callers_of_a_procedure_needs_no_window(browser: Browser, url: str) -> None:
    with watched(browser, url + "&view=around&about=exp") as page:
        names = page.locator(".table .row .name")
        expect(names.first).to_have_text(re.compile("exp.*called by"))
        expect(names.nth(1)).to_contain_text("force [inlined]")


@pytest.fixture(scope="module")
def stripped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a viewer of a program without names, most of whose procedures cost little."""
    database = compiled(tmp_path_factory.mktemp("stripped"), PROGRAM, "-s", first=20_000)
    with served(database) as (url, _):
        yield url


def test_procedures_without_names_share_rows_until_each_is_wanted(
    browser: Browser, stripped: str
) -> None:
    with watched(browser, stripped + "&pane=calls") as page:
        page.wait_for_selector("main[data-rows]")
        page.get_by_role("button", name="Flat").click()
        page.wait_for_selector("main[data-rows^=flat]")
        names = page.locator(".table .row .name")
        module = names.filter(has_text=re.compile(r"\[hot\]"))
        addresses = names.filter(has_text=re.compile(r"\[hot\+0x"))
        expect(module).to_have_count(1)
        expect(addresses).to_have_count(1)  # the costly one
        # Its instructions are those of the procedures that are folded into it.
        module.click()
        page.keyboard.press("6")
        heading = page.locator(".code .heading").first
        expect(heading).to_contain_text(re.compile(r"\[hot\+0x[0-9a-f]+\] of"))
        folded = re.search(r"\[hot\+0x[0-9a-f]+\]", heading.inner_text())
        assert folded
        page.keyboard.press("3")
        page.get_by_label("nameless").check()
        expect(page).to_have_url(re.compile("nameless=1"))
        expect(addresses.nth(4)).to_be_visible()
        names.filter(has_text=folded[0]).click()
        page.keyboard.press("4")
        expect(page.locator("#of")).to_contain_text(folded[0])
        expect(page.locator("#what")).to_contain_text("exact")
