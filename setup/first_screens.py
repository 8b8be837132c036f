"""The first screen of databases as a person meets it: light and dark, on a small and a wide screen.

Run ``.venv/bin/python setup/first_screens.py OUT DATABASE ...`` after ``make setup-test``; pictures
are named OUT/DATABASE-WIDTH-THEME.png. ``docs/tour/first`` keeps some.
"""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, TimeoutError, expect, sync_playwright

_SIZES = ((1280, 760), (2560, 1300))
_COLOURS = 96  # small enough to keep: flat areas and few colours


def shoot(browser: Browser, url: str, name: str, out: Path) -> None:
    """The first screen of the database at ``url``, in each size and theme."""
    for width, height in _SIZES:
        for theme in ("light", "dark"):
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
            page.goto(url)
            page.wait_for_selector("main[data-drawn], main.nothing")
            expect(page.locator("#findings")).not_to_be_empty()
            with suppress(TimeoutError):  # of the largest recordings shares stay estimates
                page.wait_for_selector("main[data-exact]", timeout=8_000)
            with Image.open(io.BytesIO(page.screenshot())) as picture:
                small = picture.convert("RGB").quantize(_COLOURS)
                small.save(out / f"{name}-{width}-{theme}.png", optimize=True)
            page.close()


def main(out: Path, databases: list[Path]) -> None:
    """Take the pictures of each of ``databases``."""
    out.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        for database in databases:
            viewer = subprocess.Popen(
                [sys.executable, "-m", "hpcd", "view", "--no-browser", str(database)],
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                assert viewer.stdout
                url = viewer.stdout.readline().strip()
                shoot(browser, url, database.resolve().name.removesuffix(".db"), out)
            finally:
                viewer.terminate()
                viewer.wait()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python setup/first_screens.py OUT DATABASE ...")
    main(Path(sys.argv[1]), [Path(word) for word in sys.argv[2:]])
