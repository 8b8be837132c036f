"""Recordings of other tools changed at random: imported, or refused in a line.

What is imported is sound, and is merged.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.soak.confined import run_command, run_confined
from tests.support.hpctoolkit_database import EXAMPLE, write_database
from tests.support.imported import DATA
from tests.support.recording_mutants import make_mutant

ROUNDS = 10_000


def run(rounds: int, seed: int) -> list[str]:
    """Run the test; return what was wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_database(folder / "database", *EXAMPLE)
        return run_confined(_Imports(folder, seed).try_one, rounds)


class _Imports:
    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        # OTF2 archives are read by a process of another tool, which takes a second.
        several = 8 * sorted(path for path in DATA.iterdir() if path.is_file())
        self._models = [*several, *6 * [folder / "database"], DATA / "otf2"]

    def try_one(self, number: int) -> Iterator[str]:
        """Make a mutant, and import it."""
        model = self._models[number % len(self._models)]
        place = self._folder / f"round-{number}"
        place.mkdir()
        try:
            make_mutant(model, place / "file", random.Random(self._seed * 1_000_000 + number))
            for finding in _tried(place):
                yield finding and f"{model.name}: {finding}"
        finally:
            shutil.rmtree(place)


def _tried(place: Path) -> Iterator[str]:
    """Yield the findings of the recording ``file`` in ``place``."""
    code, error = run_command("import", place / "file", "-o", place / "m")
    yield error and f"import: {error}"
    if code:
        yield "a measurement is left" if (place / "m").exists() else ""
        return
    code, error = run_command("check", place / "m")
    yield f"check: code {code} {error}" if code else ""
    code, error = run_command("merge", place / "m", "-o", place / "db", "-j", "1")
    yield f"merge: code {code} {error}" if code else ""
    if code == 0:
        code, error = run_command("check", place / "db")
        yield f"check of its database: code {code} {error}" if code else ""
        code, error = run_command("report", place / "db")
        yield f"report: code {code} {error}" if code else ""
