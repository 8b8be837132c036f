"""The documentation as a web site: every page, and the reference of the Python API."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hpcd.analysis
from tests.support.paths import ROOT


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    subprocess.run(["sh", "setup/tree.sh", "build/tree"], cwd=ROOT, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = {page.relative_to(tmp_path).with_suffix("").as_posix() for page in
             tmp_path.rglob("*.html")}  # fmt: skip
    sources = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in
               (ROOT / "docs").rglob("*.md")}  # fmt: skip
    assert sources <= pages
    reference = (tmp_path / "api.html").read_text()
    for name in hpcd.analysis.__all__:
        assert f".{name}" in reference, name
    command = (tmp_path / "cli.html").read_text()
    assert "--from-now" in command
