"""Everything by keyboard and screen reader, as the browser itself sees it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from hpcd.cli.verbs.view import PANES as NAMES
from tests.support.page import load, watched
from tests.support.paths import ROOT
from tests.support.viewer import served
from tests.support.waiting_threads import threads_that_wait

AXE = ROOT / "node_modules/axe-core/axe.min.js"

# Panes in the order of their keys, and what each says when it is drawn; the last two, of recorded
# calls, have nothing to show here.
PANES = {
    "trace": "exact",
    "flame": "boxes",
    "calls": "rows",
    "lines": "over",
    "compare": "compared",
    "source": "code",
    "stacks": "stacks",
}
# Roles that one acts on; and pictures, which say what they show.
ACTED_ON = {
    "button", "checkbox", "columnheader", "combobox", "link", "listbox", "menuitem", "radio",
    "searchbox", "slider", "spinbutton", "splitter", "switch", "tab", "textbox", "treegrid",
    "image", "img",
}  # fmt: skip
# What is seen, enabled, and there to be used. What a table or a list moves among by arrows is
# reached through it.
USABLE = """() => [...document.querySelectorAll(
    'button, input, select, a[href], canvas, summary, [role=separator], [role=treegrid]')]
  .filter(each => each.checkVisibility() && !each.disabled && !each.closest('[role=listbox]'))"""


def nameless(page: Page) -> list[str]:
    """Roles of what a screen reader meets and cannot name."""
    session = page.context.new_cdp_session(page)
    nodes: list[dict[str, Any]] = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    problems = []
    for node in nodes:
        role = node.get("role", {}).get("value", "")
        focusable = any(
            property_["name"] == "focusable" and property_["value"]["value"]
            for property_ in node.get("properties", [])
        )
        if node["ignored"] or role in ("RootWebArea", "dialog", "main"):
            continue
        if (focusable or role in ACTED_ON) and not node.get("name", {}).get("value", "").strip():
            problems.append(role)
    return problems


def unreached(page: Page) -> list[str]:
    """Return the controls that Tab does not reach from the page's beginning."""
    page.evaluate(
        "document.activeElement?.blur();"
        "document.querySelectorAll('[data-reached]').forEach(each => delete each.dataset.reached);"
        "document.addEventListener('focusin', event => { event.target.dataset.reached = 1; })"
    )
    count = page.evaluate(f"({USABLE})().length")
    for _ in range(count + 3):
        page.keyboard.press("Tab")
    left: list[str] = page.evaluate(
        f"({USABLE})().filter(each => !each.dataset.reached).map(each => each.outerHTML)"
    )
    return left


def test_every_control_has_a_name_and_is_reached_by_keys(page: Page) -> None:
    tabs = page.eval_on_selector_all("#panes button", "tabs => tabs.map(tab => tab.dataset.pane)")
    assert tuple(tabs) == NAMES and NAMES[:-2] == tuple(PANES)
    for key, (pane, drawn) in enumerate(PANES.items(), start=1):
        page.locator("main").focus()
        page.keyboard.press(str(key))
        expect(page).to_have_url(re.compile(f"pane={pane}"))
        page.wait_for_selector(f"main[data-{drawn}]")
        assert nameless(page) == [], pane
        assert unreached(page) == [], pane


def violations(page: Page, theme: str) -> list[str]:
    """List what axe objects to seriously: what people cannot read, reach or tell apart.

    Only colours are others in the dark.

    Its script is evaluated: the page's policy lets it load none.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    objections: list[dict[str, Any]] = page.evaluate(
        "options => axe.run(options).then(result => result.violations)",
        {"runOnly": ["color-contrast"]} if theme == "dark" else {},
    )
    return [
        f"{violation['id']}: {node['html'][:200]}"
        for violation in objections
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is missing: npm ci")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_has_no_serious_objection(browser: Browser, url: str, theme: str) -> None:
    with watched(browser, f"{url}&theme={theme}") as page:
        page.wait_for_selector("main[data-drawn]")
        for number, (pane, drawn) in enumerate(PANES.items(), start=1):
            page.keyboard.press(str(number))
            page.wait_for_selector(f"main[data-{drawn}]")
            assert violations(page, theme) == [], pane
            for key in "?kec" if pane == "trace" else "":
                page.keyboard.press(key)
                expect(page.locator("dialog[open]")).to_have_count(1)
                assert violations(page, theme) == [], key
                page.keyboard.press("Escape")
        load(page, f"{url}&theme={theme}&pane=compare&versus=rank&compare=graph")
        page.wait_for_selector("main[data-compared^='graph']")
        assert violations(page, theme) == []


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is missing: npm ci")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_of_recorded_calls(browser: Browser, called_url: str, theme: str) -> None:
    with watched(browser, f"{called_url}&theme={theme}") as page:
        page.wait_for_selector("main[data-drawn]")
        for number, pane in enumerate(("messages", "recorded"), start=len(PANES) + 1):
            page.keyboard.press(str(number))
            page.wait_for_selector(f"main[data-{pane}]")
            assert violations(page, theme) == [], pane


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is missing: npm ci")
def test_axe_of_waits_and_the_critical_path(browser: Browser, tmp_path: Path) -> None:
    with served(threads_that_wait(tmp_path)) as (url, _):
        for theme in ("light", "dark"):
            view = (
                f"&db=waits.db&critical=1&partners=0.0.99000000&line=0&time=50000000&theme={theme}"
            )
            with watched(browser, url + view) as page:
                page.wait_for_selector("main[data-drawn]")
                for part in ("#critical-parts button", "#wait-ended button", "#partners-choice"):
                    expect(page.locator(part).first).to_be_visible()
                assert violations(page, theme) == [] and unreached(page) == []


def test_dialogs_and_the_crosshair_by_keys(page: Page) -> None:
    for key in ("?", "k", "e"):
        page.keyboard.press(key)
        expect(page.locator("dialog[open]")).to_have_count(1)
        assert nameless(page) == []
        page.keyboard.press("Escape")
        expect(page.locator("dialog[open]")).to_have_count(0)
    picture = page.locator("#trace-canvas canvas")
    picture.press("Enter")
    expect(page).to_have_url(re.compile("line=4"))
    expect(page.locator("#path li").first).to_contain_text("main")
    picture.press("Shift+ArrowUp")
    expect(page).to_have_url(re.compile("line=3"))
    before = re.search(r"time=(\d+)", page.url)
    at = page.url
    picture.press("Shift+ArrowRight")
    expect(page).not_to_have_url(at)
    after = re.search(r"time=(\d+)", page.url)
    assert before and after and int(after[1]) - int(before[1]) == 9990000
