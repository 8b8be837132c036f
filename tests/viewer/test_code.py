"""The profile down to loops and lines, code with its costs, formulas and colours, in the page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import hpcd.analysis
from hpcd.analysis.profile.formula import parse_formula
from hpcd.analysis.profile.report import NodeNames
from hpcd.analysis.profile.views import make_view
from tests.support.compiled import PROGRAM
from tests.support.page import at, load, rows


def opened(page: Page, pane: str, done: str) -> None:
    page.select_option("#database", "db")
    at(page, "db=db")
    page.get_by_role("tab", name=pane).click()
    page.wait_for_selector(f"main[data-{done}]")


def shown(page: Page) -> list[tuple[str, str]]:
    """(whole name, inclusive records) of the rows."""
    records = page.locator(".table .row .cell:nth-child(4)").all_text_contents()
    titles = page.locator(".table .row .name > [title]").all()
    names = [(title.get_attribute("title") or "").partition("\n")[0] for title in titles]
    return [(name, count.split()[0]) for name, count in zip(names, records, strict=True)]


def test_every_view_is_that_of_the_report(page: Page, program: Path) -> None:
    page.set_viewport_size({"width": 1400, "height": 3000})
    opened(page, "Profile", "rows")
    with hpcd.analysis.open(program) as db:
        for title, view in (("Flat", "flat"), ("Loops", "loops"), ("Lines", "lines")):
            page.get_by_role("button", name=title, exact=True).click()
            page.wait_for_selector(f"main[data-rows^={view}]")
            tree = make_view(db, view)
            names = NodeNames(db, tree)
            records = tree.inclusive[db.metrics.number("records")]
            expected = [(names(node), f"{records[node]:.0f}") for node in range(1, len(tree))]
            assert sorted(shown(page)) == sorted(expected)
    page.get_by_role("button", name="Top-down").click()
    page.wait_for_selector("main[data-rows^=down]")
    page.locator("#only").fill("relax")
    page.get_by_role("button", name="Hot path").click()
    page.get_by_role("treegrid").press("ArrowDown")
    page.get_by_role("button", name="Hot path").click()
    labels = rows(page)
    assert any(name.endswith("Field::relax [inlined]") for name in labels)
    assert any("loop at hot.cpp:" in name for name in labels)


def _seconds(text: str) -> float:
    """A time as the page writes it, in the unit of what it stands beside."""
    number, unit, *_ = text.split()
    return float(number) * {"s": 1, "ms": 1e-3}[unit]


def test_source_of_a_loop_and_its_instructions(page: Page) -> None:
    opened(page, "Profile", "rows")
    page.get_by_role("button", name="Loops").click()
    page.wait_for_selector("main[data-rows^=loops]")
    row = page.locator(".table .row", has_text="hot.cpp:12")
    cost = row.locator(".cell").first.inner_text()
    row.click()
    page.get_by_role("button", name="Over lines").click()
    page.wait_for_selector("main[data-over^=loops]")
    shown = page.locator("#statistics tr td").nth(1).inner_text()
    assert _seconds(shown) == pytest.approx(_seconds(cost), rel=0.01)
    page.get_by_role("tab", name="Source").click()
    page.wait_for_selector("main[data-code^=lines]")
    expect(page.locator("#of")).to_have_text("solve")
    current = page.locator(".code .row.current")
    lines = PROGRAM.read_text().splitlines()
    assert current.locator("code").inner_text().endswith(lines[11].strip())
    expect(current.locator(".cell").nth(1)).to_contain_text("ms")
    # The row that is clicked is the chosen one, and undone like any choice.
    page.locator(".code .row code", has_text=f"11{lines[10]}").click()
    expect(current.locator("b")).to_have_text("11")
    page.reload()
    expect(current.locator("b")).to_have_text("11")
    page.go_back()
    expect(current.locator("b")).to_have_text("12")
    page.get_by_role("button", name="Hottest").click()
    # Where it was inlined from: another file.
    page.locator("#file").select_option(index=1)
    expect(page.locator(".code .row.current code")).to_contain_text(re.compile("[a-z]"))
    page.get_by_role("button", name="Instructions").click()
    page.wait_for_selector("main[data-code^=assembly]")
    expect(page.locator(".code .heading").first).to_contain_text("solve of ")
    instruction = page.locator(".code .row code", has_text="%xmm").first
    address = instruction.locator("b").inner_text()
    instruction.click()
    expect(current.locator("b")).to_have_text(address)
    # The whole view is in the link.
    page.reload()
    page.wait_for_selector("main[data-code^=assembly]")
    expect(page.locator("#of")).to_have_text("solve")
    expect(current.locator("b")).to_have_text(address)


def test_code_of_what_is_chosen_in_other_panes(page: Page) -> None:
    opened(page, "Trace", "drawn")
    page.locator("#trace-canvas canvas").click()
    expect(page.locator("#path li").first).to_be_visible()
    name = page.locator("#path li").nth(0).inner_text()
    page.locator("#path li button").first.click()
    page.locator(".path").get_by_role("button", name="Source").click()
    page.wait_for_selector("main[data-code]")
    expect(page.locator("#of")).to_have_text(name)
    page.keyboard.press("2")
    page.wait_for_selector("main[data-boxes]")
    page.locator("#flame-canvas canvas").click(position={"x": 100, "y": 27})
    page.get_by_role("button", name="Source").click()
    expect(page.locator("#of")).to_have_text("Field::~Field")
    # What has no file has instructions without text.
    page.select_option("#database", "run.db")
    page.wait_for_selector("main[data-code^=assembly]")
    expect(page.locator(".code .heading").first).to_contain_text("not in a file")


def test_formulas_are_columns_and_in_the_link(page: Page) -> None:
    opened(page, "Profile", "rows")
    page.fill("#formulas", "twice = 2 * cpu_time; rate = cpu_time / records")
    page.press("#formulas", "Enter")
    head = page.get_by_role("columnheader")
    expect(head).to_have_count(9)
    first = page.locator(".table .row").first.locator(".cell")
    assert [first.nth(k).inner_text() for k in (2, 4)] == ["428.0 ms  100.0 %", "0.001000"]
    page.reload()
    page.wait_for_selector("main[data-rows]")
    expect(head).to_have_count(9)
    page.get_by_role("columnheader", name="rate", exact=True).click()
    page.fill("#formulas", "rate = cpu_time / nothing")
    page.press("#formulas", "Enter")
    expect(page.locator("#what")).to_contain_text("no metric nothing; there are records, cpu_time")
    expect(head).to_have_count(5)


def test_formulas_mean_what_they_do_on_the_command_line(page: Page) -> None:
    choice = np.random.default_rng(3)
    names, units = ["a", "b", "c"], ["s", "s", ""]

    def expression(depth: int) -> str:
        kind = choice.integers(0, 9 if depth else 2)
        if kind < 2:
            return str(choice.choice([*names, "2.5", "0", "1e300"]))
        if kind == 2:
            return f"-{expression(depth - 1)}"
        if kind < 5:
            return f"{choice.choice(['abs', 'sqrt'])}({expression(depth - 1)})"
        if kind == 5:
            two = expression(depth - 1), expression(depth - 1)
            return f"{choice.choice(['min', 'max'])}({two[0]}, {two[1]})"
        return f"({expression(depth - 1)} {choice.choice(list('+-*/'))} {expression(depth - 1)})"

    formulas = [parse_formula(f"x = {expression(4)} + a", names, units) for _ in range(300)]
    values = np.array([[1.5, 0, -3, 1e200], [2, 0, 7, 1e200], [0, 0, 0.1, 3]])
    computed = page.evaluate(
        "async ([trees, columns]) => {"
        " const { evaluate } = await import('./profile/formula_input.js');"
        " return trees.map((tree) => columns.map((costs) => evaluate(tree, costs))); }",
        [[formula.as_json()["tree"] for formula in formulas], values.T.tolist()],
    )
    expected = np.array([formula.evaluate(values) for formula in formulas])
    np.testing.assert_array_equal(np.array(computed, float), expected)
    assert np.count_nonzero(expected) > 300


def test_colours_by_pattern(browser: Browser, url: str) -> None:
    """A context of its own keeps what is remembered from other tests."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("main[data-drawn]")
    page.keyboard.press("3")
    page.wait_for_selector("main[data-rows]")
    chip = page.locator(".table .row .name i")
    before = chip.first.get_attribute("style")
    page.keyboard.press("c")
    page.get_by_label("Patterns and colours").fill("mai. = #ff0000\n( = #000000")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("dialog")).to_contain_text("no regular expression")
    page.get_by_label("Patterns and colours").fill("mai. = #ff0000")
    page.get_by_role("button", name="Apply").click()
    expect(chip.first).to_have_attribute("style", "background: rgb(255, 0, 0);")
    at(page, "colours=mai")
    assert before != chip.first.get_attribute("style")
    # In the link, in other panes, and remembered where a link has none.
    page.reload()
    page.wait_for_selector("main[data-rows]")
    expect(chip.first).to_have_attribute("style", "background: rgb(255, 0, 0);")
    other = context.new_page()
    other.goto(url)
    other.wait_for_selector("main[data-drawn]")
    at(other, "colours=mai")
    context.close()


@pytest.mark.parametrize(
    "bad",
    [
        "colours=(&tables=(", "formulas=%3D%3B;;x&tables=null",
        'about=none&spot=x:y&code=z&tables={"Calling contexts and their costs: down":{"open":5}}',
    ],
)  # fmt: skip
def test_links_that_make_no_sense_show_what_they_can(page: Page, bad: str) -> None:
    link = page.url + "&" + bad
    for pane in ("calls", "source"):
        load(page, link.replace("pane=trace", f"pane={pane}"))
        page.wait_for_selector("main[data-rows]" if pane == "calls" else "main[data-code]")
