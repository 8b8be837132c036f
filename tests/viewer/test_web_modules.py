"""The page's modules that need no browser, tested by Node: tests/web."""

from __future__ import annotations

import subprocess

from tests.support.paths import ROOT

WEB = ROOT / "tests/web"


def test_modules_of_the_page() -> None:
    # In one process: most of the time of one for each file is its start.
    imports = "".join(f"import {path.as_uri()!r};" for path in sorted(WEB.glob("*.test.mjs")))
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", imports],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
