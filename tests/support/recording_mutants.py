"""Recordings of other tools, changed at random."""

from __future__ import annotations

import gzip
import random
import shutil
from pathlib import Path

from hpcd.errors import HpcdError
from hpcd.measurement.check import check_measurement
from tests.support.database_mutants import flipped
from tests.support.imported import imported

_MOST = 40_000
"""Bytes of a file that are kept: what comes behind is more of the same."""


def import_mutants(model: Path, folder: Path, count: int) -> None:
    """Import ``count`` mutants of a recording: each is sound, or refused in words that name it."""
    for number in range(count):
        source, output = folder / f"mutant-{number}", folder / f"imported-{number}"
        make_mutant(model, source, random.Random(f"{model.name} {number}"))
        try:
            imported(source, output)
        except HpcdError as error:
            assert str(source) in str(error)
            assert not output.exists()
            continue
        assert [finding for finding in check_measurement(output) if finding.fatal] == []


def make_mutant(model: Path, to: Path, choice: random.Random) -> None:
    """Make a mutant of a recording, a file or a folder, at ``to``."""
    if model.is_dir():
        shutil.copytree(model, to)
        changed = choice.choice(sorted(path for path in to.rglob("*") if path.is_file()))
        changed.write_bytes(_mutated(changed.read_bytes(), choice))
        return
    raw = model.read_bytes()
    data = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    to.write_bytes(_mutated(data[:_MOST], choice))


def _mutated(data: bytes, choice: random.Random) -> bytes:
    if not data or choice.random() < 0.3:
        return flipped(data, choice)
    mutant = bytearray(data)
    for _ in range(choice.randrange(1, 12)):
        mutant[choice.randrange(len(mutant))] = choice.choice(
            (0, 1, 10, 32, 45, 57, 59, 127, 255, choice.randrange(256))
        )
    if choice.random() < 0.3:
        del mutant[choice.randrange(len(mutant)) :]
    return bytes(mutant)
