"""Tests the answer about a single wait and its card on the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.page import at, unnamed, watched
from tests.support.recorded import hpcd
from tests.support.viewer import ask, served
from tests.support.waiting_threads import threads_that_wait


@pytest.fixture(scope="module")
def waits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of threads that wait for one another."""
    return threads_that_wait(tmp_path_factory.mktemp("waits"))


@pytest.fixture(scope="module")
def waits_url(waits: Path) -> Iterator[str]:
    """The URL of a viewer of it."""
    with served(waits) as (url, _):
        yield url


def opened(browser: Browser, url: str, view: str = "") -> Iterator[Page]:
    """The page once its first picture is drawn."""
    with watched(browser, url + view) as page:
        page.wait_for_selector("main[data-drawn]")
        yield page


@pytest.fixture
def waits_page(browser: Browser, waits_url: str) -> Iterator[Page]:
    """The page of these threads."""
    yield from opened(browser, waits_url)


@pytest.fixture
def filtered_page(browser: Browser, waits_url: str) -> Iterator[Page]:
    """The page of these threads with the row of the solver alone."""
    yield from opened(browser, waits_url, "&db=waits.db&filter=label%3A100%24")


def click(page: Page, row: int, time: float, rows: int = 3) -> None:
    """Click into a row at a share of the time."""
    box = page.locator("#trace-canvas canvas").bounding_box()
    assert box
    page.mouse.click(box["x"] + time * box["width"], box["y"] + (row + 0.5) / rows * box["height"])


def test_the_server_answers_as_the_command_line_does(waits: Path, waits_url: str) -> None:
    report = hpcd("report", "--waits-for", "--wait-at", "100@0.05", "--json", waits)
    expected = json.loads(report.stdout)
    path = "api/v1/db/waits.db/wait?line=0&time=50000000&within=0&fold=1"
    answer = json.loads(ask(waits_url, path)[1])
    assert (answer["row"], answer["place"]) == (0, 0)
    for row, same in zip(
        [answer, *answer["ended_by"], *answer["roots"]],
        [expected, *expected["ended_by"], *expected["roots"]],
        strict=True,
    ):
        shared = row.keys() & same.keys() - {"node", "ended_by", "roots"}
        assert shared >= {"line", "thread", "begin", "end"}
        assert {key: row[key] for key in shared} == {key: same[key] for key in shared}
    assert [cause["place"] for cause in answer["roots"]] == [1, 1]
    assert all(cause["node"] > 0 for cause in answer["roots"])


@pytest.mark.parametrize(
    ("line", "time", "within", "begin"),
    [(0, 10, 0, None), (0, 19, 1, 20), (0, 80, 0, 20), (0, 81, 0, None), (2, 54, 9, 35)],
)
def test_the_nearest_wait_is_meant(
    waits_url: str, line: int, time: int, within: int, begin: int | None
) -> None:
    path = f"api/v1/db/waits.db/wait?line={line}&time={time * 10**6}&within={within * 10**6}"
    answer = json.loads(ask(waits_url, path)[1])
    assert (answer and answer["begin"]) == (begin and begin * 10**6)


def test_requests_for_what_is_not_there_are_refused(waits_url: str) -> None:
    for query in ("line=3&time=0&within=0", "line=0&time=-1&within=0", "line=0&time=0"):
        assert ask(waits_url, f"api/v1/db/waits.db/wait?{query}")[0] == 400


def test_a_wait_leads_to_who_ended_it_and_back(waits_page: Page) -> None:
    page = waits_page
    card = page.locator("#wait")
    expect(card).to_be_hidden()
    click(page, 0, 0.5)
    expect(page.locator("#wait-of")).to_have_text("app 100 waits 60.00 ms")
    expect(page.locator("#wait-when")).to_have_text("from 20.00 ms on, in lock \u2039 main")
    expect(page.locator("#wait-ended li")).to_have_text(
        ["app 100 · holder 101: unlock \u2039 main60.00 ms 100.0 %"]
    )
    expect(page.locator("#wait-roots li")).to_have_text([
        "app 100 · holder 101: flush \u2039 main40.00 ms 66.7 %",
        "app 100 · holder 101, waiting: an interrupt of nvme0q1:"
        " fsync \u2039 flush \u2039 main20.00 ms 33.3 %",
    ])  # fmt: skip
    assert unnamed(page) == []
    page.locator("#wait-ended button").click()
    at(page, "time=80000000&line=1")
    page.get_by_role("button", name="Back to app 100").click()
    at(page, "line=0")
    expect(page.locator("#wait-of")).to_have_text("app 100 waits 60.00 ms")
    page.locator("#wait-roots button").nth(1).click()
    at(page, "time=50000000&line=1")
    # The holder waits there itself.
    expect(page.locator("#wait-of")).to_have_text("app 100 · holder 101 waits 20.00 ms")
    expect(page.locator("#wait-ended li")).to_have_text(["an interrupt of nvme0q120.00 ms 100.0 %"])
    page.go_back()
    at(page, "line=0")
    expect(page.locator("#wait-back")).to_be_hidden()
    click(page, 0, 0.9)
    expect(card).to_be_hidden()


def test_who_is_no_recorded_thread_leads_nowhere(waits_page: Page) -> None:
    page = waits_page
    click(page, 2, 0.2)
    expect(page.locator("#wait-ended li")).to_contain_text(["a thread that is not recorded"])
    click(page, 2, 0.45)
    expect(page.locator("#wait-ended li")).to_contain_text(["sshd 70, which is not recorded"])
    click(page, 2, 0.75)
    expect(page.locator("#wait-ended li")).to_contain_text(["a timer: it asked to sleep"])
    expect(page.locator("#wait li button")).to_have_count(0)


def test_a_culprit_without_a_row_is_pinned(filtered_page: Page) -> None:
    page = filtered_page
    click(page, 0, 0.5, rows=1)
    page.locator("#wait-ended button").click()
    at(page, "pinned=1")
    at(page, "line=1")
    page.get_by_role("button", name="Back to app 100").click()
    at(page, "line=0")


def critical_path(url: str, query: str) -> dict[str, Any]:
    """The server's answer about the critical path."""
    status, answer = ask(url, f"api/v1/db/waits.db/critical-path?{query}")
    assert status == 200
    path: dict[str, Any] = json.loads(answer)
    return path


def test_the_critical_path_is_that_of_the_command_line(waits: Path, waits_url: str) -> None:
    window = ["--from", "0.01", "--to", "0.095"]
    expected = json.loads(hpcd("critical-path", "--json", *window, waits).stdout)
    answer = critical_path(waits_url, "t0=10000000&t1=95000000&w=1000")
    steps = answer["steps"]
    assert (steps.pop("row"), steps.pop("place")) == ([1, 1, 1, 0], [1, 1, 1, 0])
    for part in answer["parts"]:
        assert part.pop("row") == part.pop("place") == part["line"] and part["node"] > 0
    for part in expected["parts"]:
        del part["path"]
    for one in [*answer["parts"], *expected["parts"]]:
        del one["node"]
    assert (answer.pop("parts_of"), answer.pop("lines_of")) == (3, 2)
    assert answer == expected
    assert [end - begin for begin, end in zip(steps["begin"], steps["end"], strict=True)] == [
        30_000_000, 20_000_000, 20_000_000, 15_000_000,
    ]  # fmt: skip
    texts = [answer["parts"][part]["text"] for part in steps["part"]]
    assert texts == ["running", "waiting for an interrupt of nvme0q1", "running", "running"]


def test_only_the_time_of_the_recording_counts(waits_url: str) -> None:
    beyond = critical_path(waits_url, f"t0={-(1 << 62)}&t1={1 << 62}&w=1000")
    assert beyond == critical_path(waits_url, "t0=0&t1=99000000&w=1000")


def test_steps_that_no_pixel_shows_are_left_out(waits_url: str) -> None:
    answer = critical_path(waits_url, "t0=0&t1=99000000&w=2")
    steps = answer["steps"]
    # The pixels' middles are at 24.75 and 74.25 ms.
    assert (steps["begin"], steps["end"]) == ([0, 60_000_000], [40_000_000, 80_000_000])
    assert steps["of"] == 4
    assert sum(answer["kinds"].values()) == pytest.approx(0.099)


@pytest.mark.parametrize(
    "query", ["t0=0&t1=0&w=9", "t0=0&t1=9", "t0=0&t1=9&w=99999", "t1=9&w=9", "t0=-9&t1=0&w=9"]
)
def test_paths_of_what_is_no_window_are_refused(waits_url: str, query: str) -> None:
    assert ask(waits_url, f"api/v1/db/waits.db/critical-path?{query}")[0] == 400


def test_a_database_without_waits_has_no_critical_path(url: str) -> None:
    status, answer = ask(url, "api/v1/db/run.db/critical-path?t0=0&t1=9&w=9")
    assert status == 400 and "no waits" in answer.decode()


def test_a_picture_for_files_has_the_critical_path(waits_url: str) -> None:
    query = "api/v1/db/waits.db/render?t0=0&t1=99000000&l0=0&l1=3&w=800&h=400&depth=0&format=svg"
    plain, path = (ask(waits_url, query + more) for more in ("", "&critical=1"))
    assert plain[0] == path[0] == 200
    assert b"path: waiting for an interrupt" in path[1] and b"path: w" not in plain[1]


def test_a_row_that_is_not_shown_has_no_place(waits_url: str) -> None:
    answer = critical_path(waits_url, "t0=0&t1=99000000&w=9&filter=label%3A100%24")
    assert answer["steps"]["row"] == [1, 1, 1, 0]
    assert answer["steps"]["place"] == [None, None, None, 0]


def test_the_critical_path_is_shown_beside_and_over_the_rows(waits_page: Page) -> None:
    page = waits_page
    card = page.locator("#critical-path")
    expect(card).to_be_hidden()
    picture = page.locator("#trace-canvas canvas")
    before = picture.screenshot()
    page.keyboard.press("y")
    at(page, "critical=1")
    expect(page.get_by_label("Critical path", exact=True).first).to_be_checked()
    expect(page.locator("#critical-of")).to_have_text(
        "99.00 ms, 1 change of thread among 2 threads, ends on app 100"
    )
    expect(page.locator("#critical-kinds tr")).to_have_text(
        ["running79.00 ms79.8 %", "waiting for an interrupt20.00 ms20.2 %"]
    )
    parts = page.locator("#critical-parts li")
    expect(parts).to_have_text([
        "flush \u2039 main, app 100 · holder 10160.00 ms 60.6 %",
        "waiting for an interrupt of nvme0q1: fsync \u2039 flush \u2039 main, app 100 · holder 101"
        "20.00 ms 20.2 %",
        "solve \u2039 main, app 10019.00 ms 19.2 %",
    ])  # fmt: skip
    assert picture.screenshot() != before
    assert unnamed(page) == []
    parts.nth(1).locator("button").click()
    at(page, "time=50000000&line=1")
    here = page.locator("#critical-here")
    expect(here).to_contain_text("waiting for an interrupt of nvme0q1")
    page.get_by_role("button", name="Next step").click()
    at(page, "time=70000000&line=1")
    page.get_by_role("button", name="Next step").click()
    at(page, "time=89500000&line=0")
    expect(here).to_have_text("running solve \u2039 main, 19.00 ms")
    box = picture.bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    expect(page.locator("#lines > .tip")).to_contain_text(
        "on the critical path: waiting for an interrupt of nvme0q1, 20.00 ms"
    )
    page.get_by_label("Critical path", exact=True).first.uncheck()
    expect(card).to_be_hidden()
    assert "critical=" not in page.url


def test_the_critical_path_is_of_the_time_in_view(browser: Browser, waits_url: str) -> None:
    for page in opened(browser, waits_url, "&db=waits.db&critical=1&t0=85000000&t1=95000000"):
        expect(page.locator("#critical-of")).to_have_text(
            "10.00 ms, 0 changes of thread among 1 thread, ends on app 100"
        )
        page.keyboard.press("Home")
        expect(page.locator("#critical-of")).to_contain_text("99.00 ms, 1 change")


@pytest.mark.parametrize(
    ("partners", "lines"),
    [
        ("0,0,100000000", [0, 1]),
        ("1,0,100000000", [0, 1]),
        # The wake-up is at 80 ms.
        ("1,0,80000000", [1]),
        (f"2,0,{10**23 - 1}", [2]),
    ],
)
def test_lines_that_interact_are_those_that_wake_each_other(
    waits_url: str, partners: str, lines: list[int]
) -> None:
    choice = f"fold=1&partners={partners}"
    size = json.loads(ask(waits_url, f"api/v1/db/waits.db/selection?{choice}")[1])
    answer = json.loads(ask(waits_url, f"api/v1/db/waits.db/lines?{choice}&from=0&count=9")[1])
    assert answer["lines"] == lines and size["count"] == len(lines)
    assert size["partners"].startswith("app 100")


@pytest.mark.parametrize(
    "partners", ["0", "0,1", "3,0,9", "0,1,2,3", "a,0,9", "99999999999999999,0,9"]
)
def test_partners_of_what_is_no_line_are_refused(waits_url: str, partners: str) -> None:
    assert ask(waits_url, f"api/v1/db/waits.db/selection?partners={partners}")[0] == 400


def test_only_lines_that_interact_are_left(waits_page: Page) -> None:
    page = waits_page
    count, chip = page.locator("#count"), page.locator("#partners-choice")
    expect(count).to_have_text("3 lines")
    expect(chip).to_be_hidden()
    click(page, 0, 0.5)
    page.get_by_role("button", name="Only lines that interact").click()
    at(page, "partners=0.0.99000000")
    expect(count).to_have_text("2 of 3 lines")
    expect(chip).to_have_text("with app 100 \u00d7")
    assert unnamed(page) == []
    page.reload()
    expect(chip).to_have_text("with app 100 \u00d7")
    expect(count).to_have_text("2 of 3 lines")
    chip.click()
    expect(count).to_have_text("3 lines")
    label = page.locator("#trace-labels [data-line='2']")
    label.hover()
    label.locator(".partners").click()
    expect(count).to_have_text("1 of 3 lines")
    page.keyboard.press("o")  # of the crosshair's
    expect(count).to_have_text("2 of 3 lines")
    page.keyboard.press("o")
    expect(count).to_have_text("3 lines")
    assert "partners=" not in page.url
