"""Messages and recorded calls on the page."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.page import at, rows, unnamed, watched


@pytest.fixture
def called_page(browser: Browser, called_url: str) -> Iterator[Page]:
    """The page of the ranks that recorded calls."""
    with watched(browser, called_url) as page:
        page.wait_for_selector("main[data-drawn]")
        yield page


def test_a_wait_state_leads_to_its_message(called_page: Page) -> None:
    page = called_page
    page.keyboard.press("8")
    headline = page.locator("#stands-out li").first
    expect(headline).to_contain_text("100 % of it for rank 3")
    headline.get_by_role("button").click()
    expect(page.locator(".table .row.current .words")).to_contain_text("3: ")
    expect(page.locator("#waits .row").first).to_contain_text("wait at NxN: MPI_Allreduce")
    assert unnamed(page) == []
    late = page.locator("#waits .row", has_text="late sender")
    late.locator(".twist").click()
    page.locator("#waits .row", has_text="rank 0 at 0.052000 s").click()
    at(page, "line=0")
    at(page, "time=61000000")
    page.get_by_role("button", name="Show in trace").click()
    # 18 ms of waiting and what is around it: the messages of one round.
    expect(page.locator(".marks-note")).to_have_attribute(
        "data-marks", "4 messages; 1 collective; 12 MPI calls"
    )
    expect(page.locator("#path li").last).to_contain_text("MPI_Recv")
    page.keyboard.press("m")
    at(page, "marks=0")
    expect(page.locator(".marks-note")).to_have_text("calls are hidden")
    page.locator(".marks-note").click()
    expect(page.locator(".marks-note")).to_have_text("4 messages")


def test_order_and_rows_of_every_table_are_in_the_link(called_page: Page) -> None:
    page = called_page
    page.keyboard.press("8")
    waits = page.locator("#waits .row")
    sizes = page.locator("#sizes .row .name")
    expect(waits.first).to_contain_text("wait at NxN")
    usual = sizes.all_text_contents()
    opened = waits.filter(has_text="late sender")
    opened.locator(".twist").click()
    wait = page.locator("#waits .row", has_text="rank 0 at 0.052000 s")
    wait.click()
    page.locator("#sizes").get_by_role("columnheader", name="mean size").click()
    expect(sizes).to_have_text(usual[::-1])

    def shown() -> None:
        expect(opened).to_have_attribute("aria-expanded", "true")
        expect(wait).to_have_attribute("aria-selected", "true")
        expect(sizes).to_have_text(usual[::-1])

    shown()
    page.reload()
    shown()
    # Those of other panes are not lost by it.
    page.keyboard.press("9")
    page.get_by_role("button", name="Function", exact=True).click()
    page.wait_for_selector("main[data-recorded^='function ']")
    by_calls = page.get_by_role("columnheader", name="calls")
    by_calls.click()
    expect(by_calls).to_have_attribute("aria-sort", "descending")
    page.keyboard.press("8")
    shown()
    for _ in range(4):
        page.go_back()
    expect(page.locator("#waits")).to_be_visible()
    shown()
    page.go_back()
    expect(sizes).to_have_text(usual)
    expect(wait).to_have_attribute("aria-selected", "true")
    page.go_back()
    expect(wait).to_have_attribute("aria-selected", "false")
    page.go_back()
    expect(opened).to_have_attribute("aria-expanded", "false")


def test_the_matrix_is_enlarged_by_dragging(called_page: Page) -> None:
    page = called_page
    page.get_by_role("tab", name="Messages").click()
    page.wait_for_selector("main[data-matrix='messages 0.4.0.4 4x4']")
    box = page.locator("#matrix canvas").bounding_box()
    assert box
    side = min(box["width"] - 34, box["height"] - 34)
    place = [
        (box["x"] + 34 + side * x, box["y"] + 17 + side * y) for x, y in ((0.3, 0.6), (0.9, 0.9))
    ]
    page.mouse.move(*place[0])
    expect(page.locator("#matrix .tip")).to_have_text("from rank 2 to rank 1\n0 messages, 0 B")
    page.mouse.down()
    page.mouse.move(*place[1], steps=3)
    page.mouse.up()
    at(page, "ranks=2.4.1.4")
    page.wait_for_selector("main[data-matrix='messages 2.4.1.4 2x3']")
    page.get_by_role("button", name="All ranks").click()
    page.get_by_role("button", name="Waiting").click()
    page.wait_for_selector("main[data-matrix='waiting 0.4.0.4 4x4']")
    page.keyboard.press("t")


def test_calls_by_file_and_memory(called_page: Page) -> None:
    page = called_page
    page.keyboard.press("9")
    expect(page.locator(".table .row")).to_have_count(2)
    assert rows(page) == ["/data/out", "a:1 -> b:2"]
    expect(page.locator(".table .row").first.locator(".cell").first).to_have_text("41.0 kB  97.6 %")
    page.get_by_role("button", name="Time", exact=True).click()
    page.wait_for_selector("main[data-recorded^='time ']")
    assert rows(page) == sorted(rows(page), key=lambda name: float(name.split()[0]))
    most = page.locator("#over-time canvas")
    expect(most).to_have_attribute("data-most", re.compile("^[1-9]"))
    page.get_by_role("button", name="Call path").click()
    page.select_option("#called", "function:work")
    page.wait_for_selector("main[data-recorded='path 1']")
    assert rows(page) == ["solve \u2039 main"]
    at(page, "called=function")
    page.get_by_role("button", name="Memory", exact=True).click()
    page.wait_for_selector("main[data-recorded='memory 1']")
    page.locator(".table .row").first.click()
    at(page, "time=710000000")
    page.get_by_role("button", name="Memory by time").click()
    page.wait_for_selector("main[data-recorded^='memory-time ']")
    assert rows(page) == sorted(rows(page), key=lambda name: float(name.split()[0]))
    expect(page.locator(".table .row").first.locator(".cell").first).to_have_text("4.10 kB")


def test_phases_are_named_above_the_panes(called_page: Page) -> None:
    page = called_page
    page.locator("#phase").fill("nothing")
    page.keyboard.press("Enter")
    expect(page.locator("#count")).to_contain_text("no calls of nothing were recorded")
    page.locator("#phase").fill("work(n)")
    page.keyboard.press("Enter")
    at(page, "phase=work%28n%29")
    expect(page.locator(".marks-note")).to_have_text("10 phases")
    page.get_by_role("tab", name="Calls").click()
    page.get_by_role("button", name="Phase").click()
    page.wait_for_selector("main[data-recorded='phase 1']")
    assert rows(page) == ["work n=3"]
    assert unnamed(page) == []
    page.locator(".table .row").first.click()
    at(page, "phase=work%28n%3D3%29")
    expect(page.locator("#phase")).to_have_value("work(n=3)")
    page.get_by_role("tab", name="Profile").click()
    expect(page.locator("main")).to_contain_text("in phase work(n=3): exact")
    expect(page.locator(".table .row").first).to_contain_text("50.00 ms")
    page.go_back()
    page.go_back()
    expect(page.locator("#phase")).to_have_value("work(n)")


def test_panes_without_data_say_what_to_record(page: Page) -> None:
    expect(page.get_by_role("tab", name="Messages")).to_be_hidden()
    page.keyboard.press("8")
    expect(page.locator("main")).to_contain_text("hpcd run --mpi")
    page.keyboard.press("9")
    expect(page.locator("main")).to_contain_text("--io")
