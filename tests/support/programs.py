"""The sources of the programs that tests compile."""

from __future__ import annotations

from tests.support.paths import ROOT

PROGRAMS = ROOT / "tests/programs"
HOT_LOOP = PROGRAMS / "hot.cpp"


def line_of(comment: str) -> int:
    """The line of :data:`HOT_LOOP` that ends in this comment, from 1."""
    lines = HOT_LOOP.read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if line.endswith(f"// {comment}")]
    return number
