"""The page in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from hpcd.analysis.merge.stages import merge
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.identity import Host
from tests.support.page import at, drag, load, rows, unnamed, watched, window
from tests.support.viewer import served


def test_zoom_by_dragging_keys_and_wheel_and_back(page: Page) -> None:
    whole = window(page)
    assert whole[0] == 0 and whole[2:] == [0, 8]
    drag(page, (0.25, 0.25), (0.5, 0.75))
    page.keyboard.press("z")
    at(page, "l0=2")
    t0, t1, l0, l1 = window(page)
    assert abs(t0 - whole[1] / 4) < whole[1] / 50 and abs(t1 - whole[1] / 2) < whole[1] / 50
    assert (l0, l1) == (2, 6)
    page.keyboard.press("w")
    expect(page).not_to_have_url(re.compile(f"t0={t0}&"))
    assert window(page)[1] - window(page)[0] < 0.75 * (t1 - t0)
    page.keyboard.press("d")
    page.keyboard.press("u")
    page.keyboard.press("u")
    at(page, f"t0={t0}&t1={t1}&l0=2&l1=6")
    page.keyboard.press("r")
    page.get_by_role("button", name="whole run").click()
    assert window(page) == whole
    page.locator("#trace-canvas canvas").hover()
    page.mouse.wheel(0, -200)
    expect(page).not_to_have_url(re.compile(f"t1={whole[1]}&"))


def test_a_click_shows_the_call_path_and_the_depth_view(page: Page) -> None:
    drag(page, (0.01, 0.95), (0.01, 0.95))
    path = page.locator("#path li")
    expect(path.first).to_contain_text("main")
    expect(path.nth(1)).to_contain_text("solve")
    path.nth(1).locator("button").click()
    at(page, "depth=2")
    expect(page.locator("#path li.current")).to_contain_text("solve")
    expect(page.locator("#shares li").first).to_contain_text("%")


def test_a_click_on_a_picture_that_moves_is_none_the_less_a_click(page: Page) -> None:
    """Findings are written above the picture a moment after it is shown."""
    box = page.locator("#trace-canvas canvas").bounding_box()
    assert box
    page.mouse.move(box["x"] + 9, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.locator("header").evaluate("header => { header.style.paddingBottom = '40px'; }")
    page.mouse.up()
    expect(page.locator("#path li").first).to_contain_text("main")


def test_depth_changes_without_a_request(page: Page) -> None:
    # What is asked for by itself a moment after the picture.
    page.wait_for_selector("main[data-exact]")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.keyboard.press("[")
    page.keyboard.press("[")
    page.keyboard.press("]")
    expect(page.locator("#depth-value")).not_to_have_text("8")
    # What the view costs is asked for when the page is idle, once, and that may be now.
    assert len(asked) <= 1 and all("/profile?" in url for url in asked)


def test_search_fades_what_is_not_it_and_the_url_is_the_view(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("exchange")
    at(page, "search=exchange")
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    page.reload()
    page.wait_for_selector("main[data-drawn]")
    assert page.input_value("#search") == "exchange"


def test_flame_graph_of_what_is_in_view(page: Page) -> None:
    page.keyboard.press("2")
    page.wait_for_selector("main[data-boxes]")
    expect(page.locator("#what")).to_contain_text("8 lines, all their time: exact")
    page.select_option("#metric", "blocked_time")
    expect(page.locator("#what")).to_contain_text("s")
    page.locator("#flame-canvas canvas").click(position={"x": 200, "y": 9})
    expect(page.locator("#what")).to_contain_text("%")
    # What is shown in full width stays so in another window.
    page.select_option("#metric", "cpu_time")
    page.locator("#flame-canvas canvas").click(position={"x": 200, "y": 45})
    page.keyboard.press("w")
    expect(page.locator("#what")).to_have_text(re.compile(r"\((?!100)[\d.]+ %\).*the time in view"))
    page.go_back()
    page.get_by_role("button", name="All").click()
    page.get_by_role("button", name="Inverted").click()
    at(page, "flame=up")
    page.get_by_role("button", name="Sandwich").click()
    at(page, "flame=sandwich")
    page.keyboard.press("w")
    expect(page.locator("#what")).to_contain_text("the time in view: exact")


def test_lines_filtered_sorted_and_grouped_in_the_url(page: Page) -> None:
    labels = page.locator("#trace-labels span")
    page.fill("#search", "line:rank [2-4]$")
    expect(page.locator("#count")).to_have_text("3 of 8 lines")
    page.select_option("#sort", "cpu_time")
    expect(labels.first).to_have_text("rank 4")
    expect(labels).to_have_text(["rank 4", "rank 3", "rank 2"])
    assert "filter=rank" in page.url and "sort=cpu_time" in page.url
    page.reload()
    page.wait_for_selector("main[data-drawn]")
    expect(labels).to_have_text(["rank 4", "rank 3", "rank 2"])
    page.keyboard.press("u")
    expect(page).not_to_have_url(re.compile("sort="))
    expect(page.locator("#count")).to_have_text("3 of 8 lines")
    page.keyboard.press("Home")
    page.fill("#search", "")
    expect(page.locator("#count")).to_have_text("8 lines")
    page.select_option("#group", "process")
    expect(page.locator("#trace-labels span.heads")).to_have_count(8)
    page.fill("#search", "line:(")
    expect(page.locator("#count")).to_contain_text("no regular expression")
    page.fill("#search", "line:nobody")
    expect(page.locator("#count")).to_have_text("no line matches")
    assert window(page)[2:] == [0, 8]


def test_choices_of_lines_made_at_once_are_all_kept(page: Page) -> None:
    page.evaluate(
        """() => {
          for (const [id, value] of [["sort", "cpu_time"], ["group", "process"]]) {
            const select = document.getElementById(id);
            select.value = value;
            select.dispatchEvent(new Event("change"));
          }
        }"""
    )
    expect(page).to_have_url(re.compile("sort=cpu_time.*group=process"))


def test_pinned_rows_stay_above_the_others(page: Page) -> None:
    pinned = page.locator("#pinned-labels span")
    page.locator("#trace-labels span").filter(has_text="rank 5").hover()
    page.get_by_label("rank 5: pin to the top").click()
    expect(pinned).to_have_text(["rank 5"])
    at(page, "pinned=5")
    page.locator("#trace-canvas canvas").click(position={"x": 300, "y": 5})
    page.keyboard.press("p")
    expect(pinned).to_have_text(["rank 5", "rank 0"])
    # Whatever is in view, and where rows are filtered.
    page.keyboard.press("W")
    expect(page.locator("#trace-labels span")).not_to_have_count(8)
    page.fill("#search", "line:rank [67]$")
    expect(page.locator("#trace-labels span")).to_have_text(["rank 6", "rank 7"])
    page.reload()
    expect(pinned).to_have_text(["rank 5", "rank 0"])
    page.locator("#pinned-canvas canvas").click(position={"x": 200, "y": 10})
    at(page, "line=5")
    page.get_by_label("rank 5: back among the others").click()
    expect(pinned).to_have_text(["rank 0"])
    page.go_back()
    expect(pinned).to_have_text(["rank 5", "rank 0"])


def test_rows_are_moved_by_hand(page: Page) -> None:
    rows = page.locator("#trace-labels span")
    names = [f"rank {number}" for number in range(8)]
    expect(rows).to_have_text(names)
    _drag_row(page, "trace", "rank 6", "rank 1")
    at(page, "moved=6.0")
    moved = ["rank 0", "rank 6", *names[1:6], "rank 7"]
    expect(rows).to_have_text(moved)
    expect(page.locator("#sort")).to_have_value("by hand")
    # The row that has the crosshair, by keys.
    page.locator("#trace-canvas canvas").click(position={"x": 300, "y": 5})
    page.keyboard.press(">")
    expect(rows).to_have_text(["rank 6", "rank 0", *moved[2:]])
    page.keyboard.press(">")
    expect(rows).to_have_text(["rank 6", "rank 1", "rank 0", *moved[3:]])
    page.keyboard.press("<")
    expect(rows).to_have_text(["rank 6", "rank 0", *moved[2:]])
    page.reload()
    expect(rows).to_have_text(["rank 6", "rank 0", *moved[2:]])
    for _ in range(3):
        page.go_back()
    expect(rows).to_have_text(moved)
    # Pinned ones among themselves.
    pinned = page.locator("#pinned-labels span")
    for name in ("rank 6", "rank 2"):
        # Not by the pointer: rows move from under it as the pinned ones take room.
        page.get_by_label(f"{name}: pin to the top").dispatch_event("click")
        expect(pinned.filter(has_text=name)).to_be_visible()
    expect(pinned).to_have_text(["rank 6", "rank 2"])
    _drag_row(page, "pinned", "rank 2", "rank 6")
    expect(pinned).to_have_text(["rank 2", "rank 6"])
    expect(rows).to_have_text(moved)
    page.select_option("#sort", "")
    expect(rows).to_have_text(names)


def _drag_row(page: Page, picture: str, name: str, above: str) -> None:
    """Drag the label of a row to the upper border of another."""
    labels = page.locator(f"#{picture}-labels span")
    box = labels.filter(has_text=above).bounding_box()
    assert box
    labels.filter(has_text=name).hover(position={"x": 100, "y": 7})
    page.mouse.down()
    page.mouse.move(box["x"] + 100, box["y"] + 2, steps=4)
    expect(page.locator(f"#{picture}-labels .drop")).to_be_visible()
    page.mouse.up()


def test_labels_that_come_late_do_not_replace_newer_ones(page: Page) -> None:
    held: list[Route] = []
    page.route(
        "**/lines?*",
        lambda route: route.continue_() if "sort=" in route.request.url else held.append(route),
    )
    with page.expect_request("**/lines?*"):
        page.fill("#search", "line:rank [2-4]$")
    page.select_option("#sort", "cpu_time")
    labels = page.locator("#trace-labels span")
    expect(labels).to_have_text(["rank 4", "rank 3", "rank 2"])
    with page.expect_response(held[0].request.url):
        held[0].continue_()
    page.evaluate("() => new Promise(done => setTimeout(() => requestAnimationFrame(done)))")
    expect(labels).to_have_text(["rank 4", "rank 3", "rank 2"])


def test_undo_takes_back_a_filter(page: Page) -> None:
    page.fill("#search", "line:rank 7")
    expect(page.locator("#count")).to_have_text("1 of 8 lines")
    page.go_back()
    expect(page.locator("#count")).to_have_text("8 lines")
    expect(page.locator("#trace-labels span")).to_have_count(8)


def test_tables_top_down_bottom_up_and_flat(page: Page) -> None:
    page.keyboard.press("3")
    page.wait_for_selector("main[data-rows]")
    expect(page.locator("#what")).to_contain_text("8 lines, all their time: exact")
    assert rows(page)[0].endswith("main")
    page.get_by_role("button", name="Hot path").click()
    expect(page.locator(".table .row.current .name")).to_contain_text("kernel")
    names = [name.strip("▾▸") for name in rows(page)]
    assert names[:4] == ["main", "solve", "assemble", "kernel"]
    page.get_by_role("button", name="Bottom-up").click()
    page.wait_for_selector("main[data-rows^=up]")
    assert rows(page)[0].endswith("kernel")
    page.locator(".table .twist").first.click()
    assert rows(page)[1].endswith("assemble")
    page.get_by_role("button", name="Flat").click()
    page.wait_for_selector("main[data-rows^=flat]")
    # The costliest by a metric one clicks.
    page.get_by_role("columnheader", name="blocked time self").press("Enter")
    assert rows(page)[0] == "exchange"
    expect(page.get_by_role("columnheader", name="blocked time self ▾")).to_be_focused()
    page.fill("#only", "ass")
    assert rows(page) == ["assemble"]
    # Both are in the link, and steps of the history.
    at(page, "only=ass&tables=")
    page.reload()
    page.wait_for_selector("main[data-rows^=flat]")
    assert rows(page) == ["assemble"]
    expect(page.locator("#only")).to_have_value("ass")
    page.go_back()
    expect(page.locator("#only")).to_have_value("")
    expect(page.get_by_role("columnheader", name="blocked time self ▾")).to_have_count(1)
    assert rows(page)[0] == "exchange"
    page.go_back()
    expect(page.get_by_role("columnheader", name="blocked time self ▾")).to_have_count(0)
    assert rows(page)[0] != "exchange"
    # It is about names in tables, not about trace lines.
    page.fill("#only", "ass")
    page.get_by_role("button", name="Over lines").click()
    page.wait_for_selector("main[data-over]")


def test_a_link_leads_to_the_chosen_row(page: Page) -> None:
    page.keyboard.press("3")
    page.wait_for_selector("main[data-rows^=down]")
    page.locator(".table .row", has_text="exchange").click()
    at(page, "context=n")
    page.reload()
    current = page.locator(".table .row.current .name")
    expect(current).to_contain_text("exchange")
    page.get_by_role("button", name="Flat").click()
    page.wait_for_selector("main[data-rows^=flat]")
    expect(current).to_have_count(0)
    page.locator(".table .row", has_text="assemble").click()
    page.reload()
    expect(current).to_contain_text("assemble")


def test_tables_are_of_the_lines_and_the_time_in_view(page: Page) -> None:
    page.fill("#search", "line:rank 7")
    page.press("#search", "Tab")
    at(page, "filter=")
    page.get_by_role("tab", name="Profile").click()
    page.wait_for_selector("main[data-rows]")
    expect(page.locator("#what")).to_contain_text("1 line, all its time: exact")
    page.locator("main").press("w")
    expect(page.locator("#what")).to_contain_text("the time in view: exact")
    expect(page.get_by_role("columnheader", name="time self")).to_have_count(1)


def test_a_tree_table_by_keys_alone(page: Page) -> None:
    page.keyboard.press("3")
    page.wait_for_selector("main[data-rows]")
    table = page.get_by_role("treegrid")
    table.focus()
    # The hot path is open, and nothing is chosen.
    names = [name.strip("▾▸") for name in rows(page)]
    assert names == ["main", "solve", "assemble", "kernel", "exchange"]
    expect(page.locator(".table .row.current")).to_have_count(0)
    assert "context=" not in page.url
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        table.press(key)
    expect(page.locator(".table .row.current .name")).to_contain_text("assemble")
    # Each closes a row or goes to the one it is in.
    for _ in range(5):
        table.press("ArrowLeft")
    expect(page.locator(".table .row")).to_have_count(1)
    for _ in range(2):
        table.press("ArrowRight")
    expect(page.locator(".table .row.current .name")).to_contain_text("solve")


def test_commands_and_procedures_by_the_palette(page: Page) -> None:
    page.keyboard.press("Control+k")
    page.keyboard.type("flame")
    page.keyboard.press("Enter")
    at(page, "pane=flame")
    page.keyboard.press("k")
    page.keyboard.type("kernel")
    page.keyboard.press("Enter")
    at(page, "search=kernel")


def test_a_context_over_lines(page: Page) -> None:
    page.keyboard.press("3")
    page.wait_for_selector("main[data-rows]")
    page.get_by_role("button", name="Hot path").click()
    page.get_by_role("button", name="Over lines").click()
    page.wait_for_selector("main[data-over^=n]")
    expect(page.locator("#of")).to_have_text("of kernel")
    expect(page.locator("#statistics tr").nth(4)).to_contain_text("rank 7")
    expect(page.locator("#columns li").first).to_have_text("kernel")
    expect(page.locator("#lines-named li")).to_have_text([f"rank {rank}" for rank in range(8)])
    page.get_by_role("button", name="Whole program").click()
    expect(page.locator("#of")).to_have_text("of the whole program")
    # The line that costs most, in the trace view.
    page.get_by_role("button", name="rank 7", exact=True).click()
    at(page, "line=7")
    expect(page.locator("#path li").first).to_contain_text("main")


def test_exact_shares_beside_those_of_pixels(page: Page) -> None:
    page.wait_for_selector("main[data-exact]")
    expect(page.locator("#shares-note")).to_have_text("exact share of time")
    expect(page.locator("#shares li").first).to_have_attribute(
        "title", re.compile(r"% of the pixels in view, ± .*%.*\n.*% of the time", re.DOTALL)
    )


@pytest.mark.parametrize("pane", ["trace", "flame", "calls", "lines", "source"])
def test_export_of_every_view(page: Page, pane: str) -> None:
    titles = {"trace": "Trace", "flame": "Flame graph", "calls": "Profile", "lines": "Over lines",
              "source": "Source"}  # fmt: skip
    page.get_by_role("tab", name=titles[pane]).click()
    done = {"trace": "exact", "flame": "boxes", "calls": "rows", "lines": "over", "source": "code"}
    page.wait_for_selector(f"main[data-{done[pane]}]")
    begins = {"PNG": b"\x89PNG", "SVG": b"<svg xmlns=", "CSV": b""}
    for kind, begin in begins.items():
        page.get_by_role("button", name="Export").click()
        with page.expect_download() as download:
            page.get_by_role("button", name=kind).click()
        content = download.value.path().read_bytes()
        if pane == "trace" and kind == "SVG":  # as hpcd render draws it
            begin = b"<?xml"
            assert b"time since the start of recording" in content and b"rank 7" in content
        assert content.startswith(begin) and len(content) > 100
        if kind == "SVG":
            ElementTree.fromstring(content)
        if kind == "CSV":
            assert (b"solve" if pane == "calls" else b"kernel") in content


def test_panes_are_resized_by_mouse_and_keys_and_remembered(page: Page) -> None:
    border = page.get_by_role("separator", name="Width of the side")
    assert border.get_attribute("aria-valuenow") == "300"
    border.focus()
    border.press("ArrowLeft")
    assert border.get_attribute("aria-valuenow") == "310"
    box = border.bounding_box()
    assert box
    page.mouse.move(box["x"] + 2, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] - 98, box["y"] + 200)
    page.mouse.up()
    page.reload()
    page.wait_for_selector("main[data-drawn]")
    assert border.get_attribute("aria-valuenow") == "410"


def test_a_link_that_no_longer_fits_shows_everything(page: Page) -> None:
    whole = window(page)
    page.goto("about:blank")
    page.go_back()
    page.wait_for_selector("main[data-drawn]")
    for bad in ("t0=5&t1=1", "l0=3&l1=900", "filter=(", "pane=none", "line=77&time=3", "depth=x"):
        load(page, page.url.split("&")[0] + "&db=run.db&" + bad)
        page.wait_for_selector("main[data-drawn]")
        assert window(page) == whole, bad


def test_a_server_that_is_gone_is_said_until_it_answers(browser: Browser, url: str) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 700})
    page.goto(url)
    page.wait_for_selector("main[data-drawn]")
    page.route("**/api/**", lambda route: route.abort())
    page.keyboard.press("w")
    status = page.locator("#status")
    expect(status).to_contain_text("start hpcd view again")
    page.unroute("**/api/**")
    page.keyboard.press("u")
    expect(status).not_to_be_visible()
    page.close()


def test_without_its_token_the_page_says_where_to_find_it(browser: Browser, url: str) -> None:
    page = browser.new_page()
    page.goto(url.partition("#")[0])
    expect(page.locator("#status")).to_contain_text("open the URL that hpcd view printed")
    page.close()


def test_help_and_labels(page: Page) -> None:
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    assert unnamed(page) == []


def test_helper_threads_share_a_row_until_it_is_clicked(browser: Browser, helped_url: str) -> None:
    with watched(browser, helped_url) as page:
        page.wait_for_selector("main[data-drawn]")
        labels = page.locator("#trace-labels span")
        expect(labels).to_have_text(["rank 0", "rank 1", "▸ 6 helpers"])
        expect(page.locator("#count")).to_have_text("8 lines in 3 rows")
        # Lines are counted, of a filter too, not the rows that show them.
        page.fill("#search", "line:rank 0|async")
        expect(page.locator("#count")).to_have_text("4 of 8 lines in 2 rows")
        page.get_by_role("tab", name="Profile").click()
        expect(page.locator("main #what")).to_have_text("4 lines, all their time: exact")
        page.get_by_role("tab", name="Trace").click()
        page.fill("#search", "")
        expect(page.locator("#count")).to_have_text("8 lines in 3 rows")
        expect(page.locator("#shares-note")).to_have_text("exact share of time, without helpers")
        shares = page.locator("#shares li").all_text_contents()
        page.get_by_role("button", name="6 helpers").click()
        expect(labels).to_have_count(8)
        expect(page.locator("#trace-labels button[aria-expanded=true]")).to_have_count(6)
        at(page, "unfolded=")
        expect(page.locator("#shares li")).to_have_text(shares)
        page.locator("#trace-labels button[aria-expanded=true]").first.click()
        expect(labels).to_have_count(3)
        page.get_by_label("all lines").check()
        expect(labels).to_have_count(8)
        assert window(page)[2:] == [0, 8]
        page.reload()
        page.wait_for_selector("main[data-drawn]")
        expect(labels).to_have_count(8)
        page.get_by_label("all lines").uncheck()
        expect(labels).to_have_count(3)
        # Costs are of all lines, times of those that have rows of their own.
        page.keyboard.press("2")
        expect(page.locator("#what")).to_contain_text("8 lines, all their time: exact")


def test_what_stands_out_is_said_on_top(page: Page) -> None:
    findings = page.locator("#findings")
    expect(findings).to_contain_text("8 ranks with 8 threads over 0.999 s")
    expect(page.locator("#depth-choice")).to_have_attribute(
        "title", re.compile("innermost procedure of the program's own")
    )
    page.keyboard.press("]")
    expect(page.locator("#depth-choice")).to_have_attribute("title", re.compile("^Depth 4 of 4: "))
    # One that is about a line shows the line, one about a procedure finds it.
    page.get_by_role("button", name="Rank 7 works").click()
    at(page, "line=7")
    page.get_by_role("button", name="Most work is done in kernel").click()
    at(page, "search=kernel")
    page.keyboard.press("2")
    expect(findings).to_contain_text("Width is cost")
    expect(findings).to_contain_text("Most work is done in kernel")


def test_depths_say_what_they_would_show(page: Page) -> None:
    bars = page.locator("#depth-bars i")
    expect(bars).to_have_count(4)
    expect(bars.nth(0)).to_have_attribute("title", "Depth 1: main 100.0 %")
    expect(bars.nth(1)).to_have_attribute(
        "title", re.compile(r"Depth 2: solve .* %, exchange .* %")
    )
    bars.nth(3).click(force=True)
    at(page, "depth=4")
    expect(page.locator("#depth")).to_have_attribute(
        "aria-valuetext", re.compile("^Depth 4 of 4: ")
    )


def test_a_recording_of_nothing_says_so(browser: Browser, tmp_path: Path) -> None:
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 2), options={})
    writer.add_clock_pair(0, 10**18)
    writer.close()
    merge([tmp_path / "m"], tmp_path / "empty")
    with served(tmp_path / "empty") as (url, _), watched(browser, url) as page:
        for key in "123456":
            page.keyboard.press(key)
            expect(page.locator("main .empty")).to_contain_text("No thread was recorded")
        expect(page.locator("#findings")).to_have_text("There is nothing to show.")


def test_a_database_that_is_opened_is_asked_for_each_picture_once(
    browser: Browser, url: str
) -> None:
    asked: list[str] = []
    with watched(browser, "about:blank") as page:
        page.on("request", lambda request: asked.append(request.url))
        page.goto(url)
        page.wait_for_selector("main[data-drawn]")
        page.select_option("#database", "ranks-4.db")
        at(page, "db=ranks-4.db")
        page.wait_for_selector("main[data-drawn]")
    pictures = [address for address in asked if "/grid?" in address]
    assert {address.split("/grid?")[0].rpartition("/")[2] for address in pictures} == {
        "run.db", "ranks-4.db",
    }  # fmt: skip
    # A pane that is put there twice asks for the same again.
    assert len(set(pictures)) == len(pictures)
