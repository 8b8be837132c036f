"""Paths by rules that walks keep, held against those of rules looked up, 100,000 a round."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.support.switch_paths import build, compare

ROUNDS = 100
TURNS = 45_000


def run(rounds: int, seed: int) -> list[str]:
    """Findings of ``rounds`` executions of a program that changes its stacks in every way."""
    findings: list[str] = []
    paths = 0
    with tempfile.TemporaryDirectory() as name:
        program = build(Path(name))
        for number in range(rounds):
            with tempfile.TemporaryDirectory(dir=name) as folder:
                compared, wrong = compare(Path(folder), program, TURNS, 1_000 * seed + number)
            paths += compared
            findings += wrong
    print(f"{paths:,} paths compared")
    return findings
