"""The pictures of README.md and docs/tour.md, taken in the browser.

Run ``.venv/bin/python setup/tour.py [DATABASE TWO FOUR MESSAGES]`` after ``make setup-test``.
Without databases it takes the picture of README.md, of the recording that hpcd brings. DATABASE is
of HPC Challenge on two ranks, with ``tests/data/hpccinf.txt`` as its input file; TWO and FOUR are
databases of ``tests/programs/serial_loop.c weak`` on two and four ranks, MESSAGES of LAMMPS on
four, recorded with ``--mpi``.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

OUT = Path("docs/tour")
# Small enough to keep: flat areas and few colours.
_SIZE = (1280, 760)
_COLOURS = 128


def keep(page: Page, name: str) -> None:
    """Save what the page shows."""
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        picture.convert("RGB").quantize(_COLOURS).save(OUT / f"{name}.png", optimize=True)


def put_crosshair(page: Page, x: float) -> None:
    """Put the crosshair on the first row, at a share ``x`` of the picture's width."""
    box = page.locator("#trace-canvas canvas").bounding_box()
    assert box
    page.mouse.click(box["x"] + x * box["width"], box["y"] + 20)
    expect(page.locator("#path li").first).to_be_visible()


def first_look(page: Page) -> None:
    """The first screen of the recording that hpcd brings."""
    page.wait_for_selector("main[data-exact]")
    page.mouse.move(0, 0)
    page.wait_for_load_state("networkidle")
    keep(page, "first-look")


def trace(page: Page) -> None:
    """The trace view of the ranks."""
    page.fill("#search", "process:hpcc")
    expect(page.locator("#count")).to_contain_text(" of ")
    expect(page.locator("#trace-labels span").first).to_contain_text("rank 0")
    page.wait_for_selector("main[data-exact*='process:hpcc']")
    keep(page, "1-trace")
    put_crosshair(page, 0.4)
    keep(page, "2-crosshair")
    page.fill("#search", "MPI_ process:hpcc")
    page.mouse.move(0, 0)
    keep(page, "3-find")
    page.fill("#search", "process:hpcc")


def waiting(page: Page) -> None:
    """Which call makes ranks wait, in five clicks."""
    page.get_by_role("tab", name="Profile").click()
    page.wait_for_selector("main[data-rows]")
    keep(page, "4-click-1-profile")
    page.get_by_role("button", name="Bottom-up").click()
    page.wait_for_selector("main[data-rows^=up]")
    keep(page, "5-click-2-bottom-up")
    page.locator("#only").click()
    page.keyboard.type("MPI_")
    keep(page, "6-click-3-only-mpi")
    page.get_by_role("columnheader", name="cpu time", exact=True).click()
    keep(page, "7-click-4-sorted")
    page.get_by_role("button", name="Hot path").click()
    keep(page, "8-click-5-hot-path")
    rows = page.locator(".table .row .name").all_text_contents()
    print("the costliest call:", *[row.strip("▾▸ ") for row in rows[:6]], sep="\n  ")


def rest(page: Page) -> None:
    """The other views."""
    page.get_by_role("button", name="Over lines").click()
    page.wait_for_selector("main[data-over]")
    keep(page, "9-over-lines")
    page.get_by_role("tab", name="Profile").click()
    page.get_by_role("button", name="Flat").click()
    page.wait_for_selector("main[data-rows^=flat]")
    page.fill("#only", "")
    page.fill("#formulas", "waiting = runnable_time / (cpu_time + runnable_time)")
    page.press("#formulas", "Enter")
    expect(page.get_by_role("columnheader", name="waiting self")).to_have_count(1)
    page.locator(".table .row", has_text="dgemm_kernel").click()
    keep(page, "17-formula")
    page.get_by_role("button", name="Source").click()
    page.wait_for_selector("main[data-code]")
    keep(page, "18-instructions")
    page.get_by_role("tab", name="Profile").click()
    page.wait_for_selector("main[data-rows^=flat]")
    page.fill("#formulas", "")
    page.press("#formulas", "Enter")
    page.get_by_role("tab", name="Flame graph").click()
    page.wait_for_selector("main[data-boxes]")
    keep(page, "10-flame")
    page.get_by_role("button", name="Sandwich").click()
    expect(page).to_have_url(re.compile("flame=sandwich"))
    keep(page, "11-sandwich")
    page.keyboard.press("t")
    page.keyboard.press("1")
    page.wait_for_selector("main[data-exact]")
    page.keyboard.press("Control+k")
    keep(page, "12-palette-dark")


def comparing(page: Page) -> None:
    """Two runs compared, from the pane's first view on."""
    page.get_by_role("tab", name="Compare").click()
    page.fill("#search", "label:rank .$")
    expect(page.locator(".side h2").nth(1)).to_contain_text(" 4 lines")
    page.wait_for_selector("main[data-compared^=traces][data-compared$='-0-4']")
    box = page.locator("#side-1-canvas canvas").bounding_box()
    assert box
    page.mouse.click(box["x"] + 0.8 * box["width"], box["y"] + 0.1 * box["height"])
    expect(page.locator(".side .at")).to_have_count(2)
    page.mouse.move(0, 0)
    keep(page, "13-compare-traces")
    page.get_by_role("button", name="Call graph").click()
    page.select_option("#compared", "time")
    page.get_by_label("only what differs").check()
    page.wait_for_selector("main[data-compared^=graph]")
    keep(page, "14-compare-graph")
    page.get_by_role("button", name="Scaling loss").click()
    page.wait_for_selector("main[data-compared^=scaling]")
    page.keyboard.press("h")
    keep(page, "15-compare-scaling")
    page.keyboard.press("t")
    page.get_by_role("button", name="Difference").click()
    page.wait_for_selector("main[data-compared^=flame]")
    keep(page, "16-compare-flame-dark")


def stacks(page: Page) -> None:
    """Capture where all threads are at a moment."""
    page.wait_for_selector("main[data-exact]")
    put_crosshair(page, 0.55)
    page.get_by_role("tab", name="Stacks").click()
    expect(page.get_by_text("asleep").first).to_be_visible()
    page.mouse.move(0, 0)
    keep(page, "19-stacks")
    page.get_by_role("tab", name="Trace").click()


def messages(page: Page) -> None:
    """Capture the waits between ranks, and the messages of one such wait."""
    page.fill("#search", "process:lmp")
    expect(page.locator("#count")).to_contain_text(" of ")
    page.get_by_role("tab", name="Messages").click()
    page.wait_for_selector("main[data-matrix]")
    page.locator("#waits .row").first.locator(".twist").click()
    page.locator("#waits .row").nth(1).click()
    keep(page, "20-messages")
    page.get_by_role("button", name="Show in trace").click()
    expect(page.locator(".marks-note")).to_have_attribute("data-marks", re.compile("message"))
    page.wait_for_selector("main[data-exact]")
    page.mouse.move(0, 0)
    keep(page, "21-message-lines")


def main(databases: list[str], parts: Sequence[Callable[[Page], None]]) -> None:
    """Take ``parts`` of the pictures, of what is in view when ``databases`` are opened."""
    OUT.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=60_000)
    viewer = subprocess.Popen(
        [sys.executable, "-m", "hpcd", "view", "--no-browser", *databases],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert viewer.stdout
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport={"width": _SIZE[0], "height": _SIZE[1]})
            page.goto(viewer.stdout.readline().strip())
            page.wait_for_selector("main[data-drawn]")
            for part in parts:
                part(page)
    finally:
        viewer.terminate()
        viewer.wait()


if __name__ == "__main__":
    if len(sys.argv) not in (1, 5):
        sys.exit("usage: python setup/tour.py [DATABASE TWO FOUR MESSAGES]")
    main(["--example"], (first_look,))
    if len(sys.argv) == 5:
        main(sys.argv[1:2], (trace, waiting, rest))
        main(sys.argv[2:4], (comparing,))
        main(sys.argv[4:], (stacks, messages))
