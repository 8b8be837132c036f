"""Measurements changed at random, with checksums that are right: every verb answers or refuses
them.

If ``hpcd check`` finds a mutant sound, it is merged, into a database that is sound; and that of
any mutant is.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from hpcd.analysis.live.label_profiles import ProfileFollower
from hpcd.analysis.live.recent_window import Live
from hpcd.errors import HpcdError
from hpcd.interchange.pprof.profile_push import Pusher, Receiver
from tests.soak.confined import describe, run_command, run_confined
from tests.support.called import ranks_that_call
from tests.support.made import TWO_RANKS, make
from tests.support.measurement_mutants import MeasurementMutants
from tests.support.random_measurements import write_measurement

ROUNDS = 10_000
_VERBS: list[tuple[str, ...]] = [
    ("report", "DB"), ("report", "DB", "--view", "flat", "--by", "rank", "--csv"),
    ("calls", "DB"), ("memory", "DB"), ("messages", "DB"), ("imbalance", "DB"),
    ("stacks", "DB", "--at", "0.3"), ("render", "DB", "--view", "trace", "-o", "OUT.png"),
    ("export", "DB", "--format", "pprof", "-o", "OUT.pprof"),
]  # fmt: skip
# Refuses connections: what is sent to it is made, and dropped.
_NOBODY = "http://127.0.0.1:1"


def run(rounds: int, seed: int) -> list[str]:
    """Run the test; return what was wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_measurement(folder / "random", threads=2, events=2, weighted=True)
        ranks_that_call(folder)
        make(folder / "made", TWO_RANKS, job="")
        models = [folder / "random", folder / "m", folder / "made-m"]
        return run_confined(_Measurements(folder, models, seed).try_one, rounds)


class _Measurements:
    def __init__(self, folder: Path, models: list[Path], seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._mutants = [MeasurementMutants(model) for model in models]

    def try_one(self, number: int) -> Iterator[str]:
        """Make a mutant, and try verbs on it."""
        place = self._folder / f"round-{number}"
        place.mkdir()
        try:
            seed = self._seed * 1_000_000 + number
            changed = self._mutants[number % len(self._mutants)].make(place / "m", seed)
            for finding in _tried(place, random.Random(seed).choice(_VERBS)):
                yield finding and f"{changed}: {finding}"
        finally:
            shutil.rmtree(place)


def _tried(place: Path, verb: tuple[str, ...]) -> Iterator[str]:
    """Yield the findings of a mutant, and of ``verb`` of its database."""
    measurement, database = place / "m", place / "db"
    sound, error = run_command("check", measurement)
    yield error and f"check: {error}"
    merged, error = run_command("merge", measurement, "-o", database, "-j", "1")
    yield error and f"merge: {error}"
    yield f"sound, but not merged (code {merged})" if sound == 0 and merged else ""
    yield _read(measurement, "push", _push)
    yield _read(measurement, "top", _top)
    if merged == 0:
        code, error = run_command("check", database)
        yield f"check of its database: code {code} {error}" if code else ""
        words = {"DB": str(database)}
        _, error = run_command(*(
            words.get(word, word.replace("OUT", str(place / "out"))) for word in verb
        ))  # fmt: skip
        yield error and f"{' '.join(verb)}: {error}"


def _read(measurement: Path, name: str, read: Callable[[Path], None]) -> str:
    """Read a measurement as the verb ``name`` does; return what is wrong with it."""
    try:
        read(measurement)
    except HpcdError:
        pass
    except Exception as error:
        return f"{name}: {describe(error)}"
    return ""


def _push(measurement: Path) -> None:
    with contextlib.closing(ProfileFollower(measurement)) as follower:
        Pusher(follower, Receiver(_NOBODY, "otlp", {}), 1.0, str).push()


def _top(measurement: Path) -> None:
    with contextlib.closing(Live(measurement, 5.0)) as live:
        live.snapshot()
