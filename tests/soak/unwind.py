"""Random programs stopped at random instructions and held against gdb, twenty a round."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.support.random_programs import check
from tests.support.replay import Replay

ROUNDS = 500
PROGRAMS = 20
STOPS = 300


def run(rounds: int, seed: int) -> list[str]:
    """Findings of ``rounds`` executables."""
    findings = []
    stops = frames = whole = by_code = 0
    with tempfile.TemporaryDirectory() as name:
        replay = Replay(Path(name))
        for number in range(rounds):
            with tempfile.TemporaryDirectory(dir=name) as folder:
                reported, followed = check(
                    Path(folder), replay, 1_000_000 * seed + number, PROGRAMS, STOPS
                )
            findings += reported.wrong + reported.ends + followed.wrong
            stops += reported.stops
            frames += reported.frames
            whole += reported.whole
            by_code += followed.whole
    print(f"{rounds * PROGRAMS:,} programs stopped {stops:,} times, {frames:,} frames: "
          f"whole {whole:,}, by machine code alone {by_code:,}")  # fmt: skip
    return findings
