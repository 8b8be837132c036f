"""Working in the trace view: ranges, the mini map, Find, history, curves, in a real browser."""

from __future__ import annotations

import re
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.page import at, drag, load, watched, window

WIDTHS = (700, 1280, 1440, 1920, 2560)


def state(page: Page) -> dict[str, str]:
    """Return what the URL says."""
    return {key: values[0] for key, values in parse_qs(page.url.partition("#")[2]).items()}


def test_a_range_is_marked_told_zoomed_to_and_forgotten(page: Page) -> None:
    whole = window(page)
    drag(page, (0.25, 0.25), (0.5, 0.75))
    at(page, "s0=")
    assert window(page) == whole, "marking is not zooming"
    marked = state(page)
    assert (marked["r0"], marked["r1"]) == ("2", "6")
    assert abs(int(marked["s0"]) - whole[1] / 4) < whole[1] / 50
    side = page.locator("#selected")
    expect(side).to_contain_text("Selected: 2")
    expect(side).to_contain_text("4 rows, ")
    expect(side).to_contain_text(re.compile(r"running solid\s*[\d.]+ m?s\s*[\d.]+ %"))
    expect(side).to_contain_text(re.compile(r"[1-4]\.\d\d CPUs busy"))
    expect(page.locator("#shares-note")).to_have_text("exact share of time")
    expect(page.locator("#bands .length").first).to_contain_text("ms")
    # Other panes are of it, too.
    page.keyboard.press("3")
    expect(page.locator("main")).to_contain_text("4 lines, the time selected: exact")
    range_in_words = re.compile(r"^selected: [\d.]+ ms to [\d.]+ ms")
    expect(page.locator("#extent-choice")).to_have_text(range_in_words)
    page.keyboard.press("1")
    page.keyboard.press("z")
    at(page, f"t0={marked['s0']}&t1={marked['s1']}&l0=2&l1=6")
    page.go_back()
    at(page, f"t0=0&t1={whole[1]}&l0=0&l1=8")
    page.get_by_role("button", name="Only these rows").click()
    at(page, f"t1={whole[1]}&l0=2&l1=6")
    page.keyboard.press("Escape")
    expect(side).to_contain_text("In view")
    assert "s0" not in state(page)


def test_a_range_on_the_ruler_and_its_ends(page: Page) -> None:
    box = page.locator("#trace-axis").bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 10, steps=3)
    page.mouse.up()
    at(page, "s1=")
    before = state(page)
    assert "r0" not in before
    end = page.get_by_role("slider", name="End of the selection")
    end.press("ArrowRight")
    expect(page).not_to_have_url(re.compile(f"s1={before['s1']}&"))
    assert int(state(page)["s1"]) - int(before["s1"]) == pytest.approx(4_995_000, abs=10_000)
    handle = end.bounding_box()
    assert handle
    page.mouse.move(handle["x"] + 2, handle["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 10)
    page.mouse.up()
    expect(page.locator("#bands .length").first).to_have_text(re.compile(r"(399|400)\.\d+ ms"))


def test_a_range_by_keys_alone(page: Page) -> None:
    picture = page.locator("#trace-canvas canvas")
    picture.press("Enter")
    picture.press("x")
    for _ in range(3):
        picture.press("Shift+ArrowRight")
    at(page, "s0=")
    marked = state(page)
    assert int(marked["s1"]) - int(marked["s0"]) == pytest.approx(3 * 9_990_000, abs=10)
    picture.press("f")
    at(page, f"t0={marked['s0']}&t1={marked['s1']}")


def test_a_double_click_zooms_to_the_stretch_there(page: Page) -> None:
    # Rank 7 solves for 60 ms, then exchanges for 10.
    page.locator("#depth-bars i").nth(1).click(force=True)
    at(page, "depth=2")
    box = page.locator("#trace-canvas canvas").bounding_box()
    assert box
    page.mouse.dblclick(box["x"] + 0.03 * box["width"], box["y"] + 0.97 * box["height"])
    expect(page).not_to_have_url(re.compile(r"t1=999\d+&"))
    t0, t1 = window(page)[:2]
    assert t0 == 0 and 55e6 < t1 < 75e6


def test_two_ranges_are_compared(page: Page) -> None:
    drag(page, (0.1, 0.5), (0.3, 0.5))
    page.get_by_role("button", name="Compare with").click()
    at(page, "against=")
    expect(page.locator("#selected")).to_contain_text("Now select the other")
    drag(page, (0.5, 0.5), (0.9, 0.5))
    page.get_by_role("button", name="Compare with").click()
    at(page, "pane=compare")
    sides = [side.split(":") for side in state(page)["sides"].split()]
    lengths = [float(end) - float(begin) for begin, end in sides]
    assert lengths == pytest.approx([0.2, 0.4], abs=0.01)
    page.wait_for_selector("main[data-compared]")


def test_keys_and_wheel_zoom_where_the_pointer_is(page: Page) -> None:
    box = page.locator("#trace-canvas canvas").bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 40)
    whole = window(page)[1]
    page.keyboard.press("w")
    at(page, "t0=2")
    t0, t1 = window(page)[:2]
    assert (0.9 * whole - t0) / (t1 - t0) == pytest.approx(0.9, abs=0.01)


def test_the_mini_map_is_dragged_and_resized(page: Page) -> None:
    whole = window(page)[1]
    box = page.locator("#mini-canvas").bounding_box()
    assert box
    ends = [
        page.get_by_role("slider", name=f"{end} of the time in view") for end in ("Begin", "End")
    ]

    def seen() -> list[float]:
        return [int(end.get_attribute("aria-valuenow") or "") / whole for end in ends]

    def pull(start: float, end: float) -> list[float]:
        page.mouse.move(box["x"] + start * box["width"], box["y"] + 15)
        page.mouse.down()
        page.mouse.move(box["x"] + end * box["width"], box["y"] + 15, steps=4)
        page.mouse.up()
        return seen()

    near = {"abs": 0.012}
    assert pull(0.2, 0.4) == pytest.approx([0.2, 0.4], **near)
    expect(page.locator("#mini-canvas")).to_have_attribute("data-whole", "false")
    assert pull(0.3, 0.5) == pytest.approx([0.4, 0.6], **near)
    assert pull(0.6, 0.8) == pytest.approx([0.4, 0.8], **near)
    ends[1].press("ArrowLeft")
    assert seen() == pytest.approx([0.4, 0.792], **near)
    page.locator("#whole").click()
    assert seen() == [0, 1]
    # A drag is one entry of the history.
    for _ in range(3):
        page.go_back()
    expect(ends[1]).to_have_attribute("aria-valuetext", re.compile(r"(0\.(59|60)|59\d|60\d)"))
    assert seen() == pytest.approx([0.4, 0.6], **near)


def test_back_and_forward_go_through_panes_zooms_and_selections(page: Page) -> None:
    picture = page.locator("#trace-canvas canvas")
    drag(page, (0.2, 0.5), (0.4, 0.5))
    at(page, "s0=")
    page.keyboard.press("w")
    expect(page).not_to_have_url(re.compile("t0=0&"))
    zoomed = window(page)
    page.keyboard.press("2")
    page.wait_for_selector("main[data-boxes]")
    canvas = page.locator("#flame-canvas canvas")
    canvas.click(position={"x": 200, "y": 27})
    at(page, "root=down%0Amain")
    page.reload()
    page.wait_for_selector("main[data-boxes]")
    expect(page.locator("#what")).to_have_text(re.compile(r"\((?!100)[\d.]+ %\)"))
    page.go_back()
    expect(page.locator("#what")).to_contain_text("(100.0 %)")
    page.go_back()
    at(page, "pane=trace")
    expect(picture).to_be_visible()
    assert window(page) == zoomed
    page.go_back()
    at(page, "t0=0&")
    page.keyboard.press("u")
    expect(page).not_to_have_url(re.compile("s0="))
    page.keyboard.press("u")
    page.keyboard.press("r")
    at(page, "s0=")
    expect(page.locator("#selected")).to_contain_text("Selected")


def test_find_counts_and_goes_to_matches(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("exchange")
    output = page.locator("#find output")
    expect(output).to_have_text(re.compile(r"^1\d\d matches$"))
    count = int(output.inner_text().split()[0])
    page.keyboard.press("Enter")
    expect(output).to_have_text(f"1 of {count}")
    at(page, "line=0")
    expect(page.locator("#path li").nth(1)).to_contain_text("exchange")
    page.keyboard.press("Shift+Enter")
    expect(output).to_have_text(f"{count} of {count}")
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    expect(output).to_have_text(f"1 of {count}")
    page.get_by_role("button", name="Next match").click()
    expect(output).to_have_text(f"2 of {count}")
    page.fill("#search", "line:rank [2-4]$")
    expect(page.locator("#count")).to_have_text("3 of 8 lines")
    page.fill("#search", "exchange line:rank 7")
    expect(page.locator("#count")).to_have_text("1 of 8 lines")
    expect(output).to_have_text(re.compile(r"^1\d matches$"))
    page.fill("#search", "nothing of the kind")
    expect(output).to_have_text("no match")
    expect(page.locator("#count")).to_have_text("8 lines")


def test_find_opens_the_tree_to_matches(page: Page) -> None:
    page.keyboard.press("3")
    page.wait_for_selector("main[data-rows]")
    table = page.get_by_role("treegrid")
    for _ in range(4):
        table.press("ArrowDown")
    for _ in range(8):
        table.press("ArrowLeft")
    expect(page.locator(".table .row")).to_have_count(1)
    page.fill("#search", "e")
    expect(page.locator("#find output")).to_have_text("4 procedures")
    page.press("#search", "Enter")
    expect(page.locator("#find output")).to_have_text("1 of 4")
    expect(page.locator(".table .row.current .name")).to_contain_text("solve")
    page.press("#search", "Shift+Enter")
    expect(page.locator(".table .row.current .name")).to_contain_text("exchange")


def test_find_unfolds_the_rows_of_matches(browser: Browser, helped_url: str) -> None:
    with watched(browser, helped_url) as page:
        page.wait_for_selector("main[data-drawn]")
        page.fill("#search", "main")
        # Two threads that work and six that are folded.
        expect(page.locator("#find output")).to_have_text("8 matches")
        for _ in range(8):
            before = page.locator("#find output").inner_text()
            page.press("#search", "Enter")
            expect(page.locator("#find output")).not_to_have_text(before)
        at(page, "unfolded=1")
        expect(page.locator("#trace-labels span")).to_have_count(8)


def test_first_screen_is_filled_and_findings_lead_to_what_they_tell(page: Page) -> None:
    expect(page.locator("#path-at")).to_contain_text("most spent: rank 7")
    expect(page.locator("#path li")).to_have_count(4)
    assert "line=" not in page.url
    findings = page.locator("#findings li")
    assert findings.count() >= 2
    page.get_by_role("button", name="Most work is done in kernel").click()
    at(page, "line=7")
    shown = state(page)
    assert int(shown["t0"]) <= int(shown["time"]) < int(shown["t1"])
    assert int(shown["t1"]) - int(shown["t0"]) < 500_000_000
    expect(page.locator("#path li").last).to_contain_text("kernel")


@pytest.mark.parametrize("rows", ["l0=0&l1=2", "filter=rank%203"])
def test_a_finding_brings_its_row_into_view(page: Page, url: str, rows: str) -> None:
    load(page, f"{url}&{rows}")
    page.wait_for_selector("main[data-drawn]")
    expect(page.locator("#trace-labels span", has_text="rank 7")).to_have_count(0)
    page.get_by_role("button", name="Most work is done in kernel").click()
    expect(page.locator("#trace-labels span", has_text="rank 7")).to_have_count(1)
    expect(page.locator("#path-at")).to_contain_text("rank 7")
    assert int(state(page)["l1"]) == 8


@pytest.mark.parametrize("width", WIDTHS)
def test_no_width_breaks_the_page(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    header = page.locator("header").bounding_box()
    picture = page.locator("#trace-canvas canvas").bounding_box()
    assert header and header["height"] < 44
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert picture and picture["width"] > 0.4 * width
    for control in ("search", "help", "export"):
        box = page.locator(f"#{control}").bounding_box()
        assert box and box["x"] + box["width"] <= width


@pytest.mark.parametrize("width", [700, 1280])
def test_controls_of_the_profile_are_in_view(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.keyboard.press("3")
    page.wait_for_selector("main[data-rows]")
    controls = page.locator(".bar:not(.choice)").locator("button, input, output")
    rights = [box["x"] + box["width"] for one in controls.all() if (box := one.bounding_box())]
    assert len(rights) > 9 and max(rights) <= width
    # The tabs that there is no room for come by the wheel.
    page.locator("#panes").hover()
    page.mouse.wheel(0, 1000)
    expect(page.get_by_role("tab", name="Stacks")).to_be_in_viewport(ratio=1)


def test_rows_of_a_process_are_selected_by_a_label(browser: Browser, helped_url: str) -> None:
    with watched(browser, helped_url + "&all=1") as page:
        page.wait_for_selector("main[data-drawn]")
        page.locator("#trace-labels span").nth(5).click()
        at(page, "r0=4&r1=8")
        expect(page.locator("#range")).to_contain_text("Selected")
        page.fill("#search", "line:rank 1")
        labels = page.locator("#trace-labels span")
        expect(labels).to_have_count(4)
        # All are of one process.
        labels.nth(2).click()
        at(page, "r0=2&r1=3")


def test_curves_over_time(browser: Browser, called_url: str) -> None:
    with watched(browser, called_url) as page:
        page.wait_for_selector("main[data-drawn]")
        busy = page.locator("[data-curve=cpus]")
        expect(busy).to_have_attribute("data-most", re.compile(r"^[1-4]"))
        for name in ("memory", "bytes", "messages"):
            page.get_by_role("button", name=f"Show {name}").click()
            expect(page.locator(f"[data-curve={name}]")).to_have_attribute(
                "data-most", re.compile("^[1-9]")
            )
        at(page, "curves=memory.bytes.messages")
        page.get_by_role("button", name="Hide memory held").click()
        at(page, "curves=bytes.messages")
        # Of rank 1 alone, which reads, then of rank 3, which does neither.
        busy_ranks, moved = busy.get_attribute("data-most"), page.locator("[data-curve=bytes]")
        page.locator("#trace-labels span", has_text="rank 1").click()
        at(page, "r0=1&r1=2")
        expect(page.locator(".curves .name").first).to_contain_text("1 row selected")
        expect(busy).not_to_have_attribute("data-most", str(busy_ranks))
        expect(busy).to_have_attribute("data-most", re.compile(r"^(1|0\.\d+)$"))
        page.locator("#trace-canvas canvas").press("Enter")
        page.keyboard.press("Shift+ArrowDown")
        at(page, "line=3")
        page.keyboard.press("l")
        at(page, "r0=3&r1=4")
        expect(moved).to_have_attribute("data-most", "0")
        page.keyboard.press("Escape")
        expect(moved).to_have_attribute("data-most", re.compile("^[1-9]"))
        expect(busy).to_have_attribute("data-most", str(busy_ranks))
        drag(page, (0.1, 0.5), (0.9, 0.5))
        expect(page.locator("#facts")).to_contain_text(re.compile(r"\d+ messages, [\d.]+ k?B"))
