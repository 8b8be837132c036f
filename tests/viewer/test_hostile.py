"""Hostile input of the viewer: ten clients at once, and names that targets chose.

``python -m tests.soak requests`` sends 10,000 requests.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Page

from tests.soak.requests import attack
from tests.support.page import watched
from tests.support.viewer import HOSTILE_NAMES, hostile_runs, served


def test_hostile_requests_of_ten_clients_never_break_it(url: str) -> None:
    assert attack(url, 400, seed=7) == []


def nothing_of_it_runs(page: Page) -> None:
    """Names are text: no element of theirs is in the page, and no script has run.

    (What the page's policy refused would be an error on its console, which :func:`watched` raises.)
    """
    assert page.evaluate("window.reached") is None
    assert page.evaluate("Object.prototype.reached") is None
    elements = page.evaluate(
        "[...document.querySelectorAll('*')].filter(each => ['IMG', 'IFRAME', 'svg']"
        ".includes(each.tagName) || (each.tagName === 'SCRIPT' && !each.src)"
        " || [...each.attributes].some(({ name }) => name.startsWith('on')))"
        ".map(each => each.outerHTML)"
    )
    assert elements == []


# As matplotlib writes them: nothing that runs, and nothing that leads elsewhere.
_SVG = {
    "svg", "rect", "text", "g", "title", "image", "defs", "use", "path", "style", "clipPath",
    "metadata", "RDF", "Work", "type", "date", "format", "creator", "Agent",
}  # fmt: skip


def exported(page: Page, kind: str, path: Path) -> bytes:
    page.get_by_role("button", name="Export", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("button", name=kind, exact=True).click()
    assert "<" not in download.value.suggested_filename
    download.value.save_as(path)
    return path.read_bytes()


def check_exports(page: Page, folder: Path) -> None:
    root = ElementTree.fromstring(exported(page, "SVG", folder / "view.svg"))
    assert {element.tag.partition("}")[2] for element in root.iter()} <= _SVG
    links = [link for element in root.iter() for name, link in element.attrib.items()
             if name.endswith("href") and element.tag.endswith(("}use", "}image"))]  # fmt: skip
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
    with (folder / "view.csv").open("w") as file:
        file.write(exported(page, "CSV", folder / "raw.csv").decode())
    with (folder / "view.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    for cell in cells:
        try:
            float(cell)
        except ValueError:
            assert cell.lstrip()[:1] not in ("=", "+", "-", "@"), cell
            assert all(letter.isprintable() for letter in cell), cell


@pytest.fixture(scope="module")
def hostile_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a viewer of two runs of which every name is hostile."""
    with served(*hostile_runs(tmp_path_factory.mktemp("hostile"))) as (url, _):
        yield url


def test_names_that_targets_chose_are_text_in_every_view(
    browser: Browser, hostile_url: str, tmp_path: Path
) -> None:
    done = {"Trace": "exact", "Flame graph": "boxes", "Profile": "rows", "Over lines": "over",
            "Source": "code"}  # fmt: skip
    with watched(browser, hostile_url) as page:
        page.wait_for_selector("main[data-drawn]")
        for title, flag in done.items():
            page.get_by_role("tab", name=title, exact=True).click()
            page.wait_for_selector(f"main[data-{flag}]")
            for canvas in page.locator("main canvas:visible").all():
                canvas.hover()
            nothing_of_it_runs(page)
            check_exports(page, tmp_path)
        page.get_by_role("tab", name="Profile", exact=True).click()
        page.wait_for_selector("main[data-rows]")
        for row in page.locator(".table .row .name").all():
            row.hover()
        assert any(HOSTILE_NAMES[0] in text for text in page.locator("main").all_text_contents())
        nothing_of_it_runs(page)


def test_names_that_targets_chose_are_text_in_a_comparison(
    browser: Browser, hostile_url: str, tmp_path: Path
) -> None:
    link = hostile_url + "&db=hostile-2.db&pane=compare&sides=hostile-4.db"
    with watched(browser, link) as page:
        page.wait_for_selector("main[data-compared]")
        for view in ("Call graph", "Difference", "Scaling loss", "Calls"):
            page.get_by_role("button", name=view, exact=True).click()
            page.wait_for_load_state("networkidle")
            nothing_of_it_runs(page)
            check_exports(page, tmp_path)
