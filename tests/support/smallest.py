"""Benchmarks at their smallest size."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.workloads import SMALLEST
from tests.support.paths import ROOT

# Those that look at files, not at running programs.
OFFLINE = ("merge", "check", "exports", "render", "viewer")
# Those with arguments of their own; PROGRAM is a small program with debug information.
BY_THEMSELVES = {
    "fuzz_elf": ["--files", "20"],
    "module_memory": ["3"],
    "structure": ["--program", "PROGRAM"],
    "symbols": ["--program", "PROGRAM", "20000"],
    "unwind_tables": [],
}


def smallest(*arguments: str) -> str:
    """Run a benchmark at its smallest; return its output."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, SMALLEST: "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
