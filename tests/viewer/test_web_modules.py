"""The page's modules that need no browser, tested by Node: tests/web."""

from __future__ import annotations

import subprocess

from tests.support.paths import ROOT

WEB = ROOT / "tests/web"


def test_modules_of_the_page() -> None:
    done = subprocess.run(
        ["node", "--test", *sorted(map(str, WEB.glob("*.test.mjs")))],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
