"""The comparison pane in a real browser, against what the library says of the same runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import hpcd.analysis
from hpcd.analysis.parallel.comparison import compare, is_difference
from hpcd.analysis.parallel.comparison_sides import whole_runs
from hpcd.analysis.parallel.scaling import measure
from hpcd.wording import percent
from tests.support.page import at, unnamed, watched


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """The run on two ranks compared with that on four."""
    with watched(browser, url + "&db=ranks-2.db&pane=compare&sides=ranks-4.db") as page:
        page.wait_for_selector("main[data-compared]")
        yield page


def windows(page: Page) -> list[list[int]]:
    """t0, t1, l0, l1 of each side, as drawn."""
    output = page.locator("main").get_attribute("data-compared") or ""
    return [[int(number) for number in part.split("-")] for part in output.split()[1:]]


def compared(page: Page, part: str) -> None:
    page.wait_for_selector(f"main[data-compared*='{part}']")


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def test_traces_share_window_crosshair_and_depth(page: Page) -> None:
    assert windows(page) == [[0, 690_000_000, 0, 2], [0, 940_000_000, 0, 4]]
    expect(page.locator(".side h2")).to_have_text(["A ranks-2.db690.0 ms, 2 lines",
                                                   "B ranks-4.db940.0 ms, 4 lines"])  # fmt: skip
    # Zooming in one zooms all: here to the left half of the upper half of the second.
    box = page.locator("#side-1-canvas canvas").bounding_box()
    assert box
    page.mouse.move(box["x"] + 1, box["y"] + 1)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.4, steps=3)
    page.mouse.up()
    compared(page, "-0-1 ")
    one, two = windows(page)
    assert one[2:] == [0, 1] and two[2:] == [0, 2]
    assert two[1] / one[1] == pytest.approx(94 / 69, 1e-6) and abs(one[1] - 345e6) < 5e6
    press(page, "Same ns")
    compared(page, f"{one[1]}-0-2")
    assert windows(page)[1][:2] == one[:2]
    # The longer one is seen whole then.
    page.locator("main").press("Home")
    compared(page, "0-940000000-0-2 0-940000000-0-4")
    page.go_back()
    compared(page, f"{one[1]}-0-2")
    press(page, "Same share of time")
    compared(page, f"{one[1]}-0-1")
    page.locator("main").press("Home")
    compared(page, "0-690000000-0-2 0-940000000-0-4")
    # A click in either puts the crosshair into both; each says where it is there.
    page.locator("#side-1-canvas canvas").click(position={"x": 0.13 * box["width"], "y": 9})
    paths = page.locator(".side .at")
    expect(paths).to_have_text(["main > solve > sweep > kernel"] * 2)
    at(page, "line=0")
    # Rank 1 is rank 1 in both: at the end it writes in one, and waits for the others in the other.
    page.locator("#side-0-canvas canvas").click(
        position={"x": 0.98 * box["width"], "y": 0.7 * box["height"]}
    )
    expect(paths).to_have_text(["main > output > write > k_write [k]",
                                "main > output > MPI_Barrier > k_sleep [k]"])  # fmt: skip
    assert unnamed(page) == []
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.keyboard.press("[")
    press(page, "Side by side")
    expect(page.locator(".traces.beside")).to_be_visible()
    compared(page, "traces")
    assert not [url for url in asked if "/cct" in url or "/api/v1/compare" in url]
    # Parts of one run by the same means.
    page.select_option("#versus", "iteration")
    expect(page.locator(".side h2 b")).to_have_text(["A", "B", "C"])
    page.wait_for_selector("main[data-compared*='-409500000-']")
    page.select_option("#versus", "rank")
    expect(page.locator(".side .labels span")).to_have_text(["rank 0", "rank 1"])
    page.fill("#parts", "0 9")
    page.press("#parts", "Enter")
    expect(page.locator(".empty")).to_contain_text("rank 9")
    # Other panes are of the whole run as before.
    page.select_option("#versus", "window")
    compared(page, "traces 0-345000000-")
    page.get_by_role("tab", name="Trace").click()
    at(page, "pane=trace&t0=0&t1=690000000&")


def test_contexts_that_differ_as_a_tree_a_flame_graph_and_losses(
    page: Page, runs: list[Path]
) -> None:
    with hpcd.analysis.open(runs[0]) as one, hpcd.analysis.open(runs[1]) as two:
        expected = compare(whole_runs([one, two]), metric="work")
        nodes, _, changes = expected.regions()
        assert is_difference(changes).all()
        loss = [measure([one, two], mode, metric="time") for mode in ("weak", "strong")]
        lost = [float(size.loss(size.cost.sum(axis=1, keepdims=True))[0, 0]) for size in loss]
    press(page, "Call graph")
    compared(page, "graph down")
    regions = page.locator("#regions li")
    names = [expected.places[int(expected.matching.tree.frame[node])].label for node in nodes]
    expect(regions).to_have_text([re.compile(f"> {name}") for name in names])
    expect(page.locator("#compared-what")).to_contain_text(
        "9 contexts in common, 1 only in A, 1 only in B; 4 of those in common differ"
    )
    row = page.locator(".table .row", has_text="checkpoint")
    expect(row.locator(".cell")).to_have_class([re.compile("gap"), "cell ", re.compile("new")])
    # What the sliders say takes no request.
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.locator("#sensitivity").fill("60")
    expect(regions).to_have_text([re.compile("> check"), re.compile("> checkpoint")])
    expect(page.locator("#compared-what")).to_contain_text("0 of those in common differ")
    page.locator("#hotspot").fill("20")
    expect(regions).to_have_text("None above the thresholds.")
    page.locator("#hotspot").fill("1")
    page.get_by_label("only what differs").check()
    expect(page.locator(".table .row .name")).to_contain_text(["main", "checkpoint", "check"])
    page.locator("#sensitivity").fill("5")
    press(page, "Flat")
    press(page, "main > solve > sweep > kernel")
    expect(page.locator(".table .row.current")).to_contain_text("kernel")
    at(page, "%22row%22")
    page.go_back()
    expect(page.locator(".table .row.current")).to_have_count(0)
    page.go_forward()
    expect(page.locator(".table .row.current")).to_contain_text("kernel")
    assert asked == []
    press(page, "Difference")
    compared(page, "flame 10 5")  # boxes, and those that differ
    canvas = page.locator("#difference-canvas canvas")
    canvas.hover(position={"x": 1000, "y": 27})
    expect(page.locator("#difference-tip")).to_contain_text("new")
    page.keyboard.press("t")
    press(page, "of both")
    compared(page, "flame 11 6")
    canvas.click(position={"x": 200, "y": 27})
    expect(page.locator("#compared-what")).to_contain_text("solve: 390.0 ms → 540.0 ms")
    press(page, "Scaling loss")
    compared(page, "scaling weak")
    what = page.locator("#compared-what")
    expect(what).to_contain_text(f"weak scaling from 2 to 4 ranks: {percent(lost[0] / 100)} lost")
    expect(page.locator("#losses li").first).to_contain_text("16.0 %")
    asked.clear()
    press(page, "Strong")
    expect(what).to_contain_text(f"{percent(lost[1] / 100)} lost")
    press(page, "Flat")
    page.get_by_role("columnheader", name="self").click()
    expect(page.locator(".table .row .cell").first).to_contain_text("%")
    assert asked == []
    press(page, "Calls")
    compared(page, "calls 15 1")
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert "main -> checkpoint" in download.value.path().read_text()
    page.select_option("#versus", "window")
    press(page, "Difference")
    compared(page, "flame")
    press(page, "Scaling loss")
    expect(page.locator(".empty")).to_contain_text("scaling loss is of whole runs")


def test_runs_of_the_same_program_are_compared_unless_others_are_chosen(
    browser: Browser, url: str
) -> None:
    with watched(browser, url + "&db=ranks-2.db&pane=compare") as page:
        compared(page, "traces")
        offered = page.locator("#others button")
        expect(offered).to_have_text(["ranks-4.db", re.compile("of other programs")])
        expect(offered.first).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#compare-heading")).to_contain_text("run time: 690.0 ms")
        expect(page.locator("#compare-heading b")).to_have_class("worse")
        offered.last.click()
        expect(offered).to_have_count(3)
    with watched(browser, url + "&db=run.db&pane=compare") as page:
        compared(page, "nothing")
        expect(page.locator(".empty")).to_contain_text("No other run of this program is open")
        selected = page.locator("#others button[aria-pressed=true]")
        expect(selected).to_have_count(0)
        press(page, "ranks-4.db")
        compared(page, "traces")
        expect(selected).to_have_text(["ranks-4.db"])
