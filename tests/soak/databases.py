"""Databases changed at random, with checksums that are right: every verb answers or refuses them.

If ``hpcd check`` finds a mutant sound, they answer.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from starlette.datastructures import QueryParams

import hpcd.analysis
from hpcd.analysis.merge.stages import merge
from hpcd.errors import FormatError, HpcdError
from hpcd.viewer.pictures import VIEWS
from hpcd.viewer.server import answers
from hpcd.viewer.server.open_database import OpenDatabase
from hpcd.viewer.server.query_params import QueryParameters
from tests.soak.confined import describe, run_command, run_confined
from tests.support.called import ranks_that_call
from tests.support.database_mutants import DatabaseMutants
from tests.support.made import TWO_RANKS, Step, make
from tests.support.viewer import eight_ranks

ROUNDS = 10_000
_VERBS: list[tuple[str, ...]] = [
    ("report", "DB"),
    ("report", "DB", "--view", "lines", "--json"),
    ("report", "DB", "--view", "flat", "--by", "rank", "--csv"),
    ("report", "DB", "--view", "bottom-up", "--hot-path", "--filter", "rank=0-3"),
    ("report", "DB", "--split", "MPI_Allreduce", "--addresses"),
    ("report", "DB", "--filter", "time=0.1-0.4", "--html", "OUT.html"),
    ("calls", "DB"), ("calls", "DB", "--by", "file", "--json"), ("memory", "DB"),
    ("messages", "DB"), ("messages", "DB", "--json", "--picture", "OUT.svg"),
    ("imbalance", "DB"), ("imbalance", "DB", "--by-rank", "--json"),
    ("scaling", "--weak", "DB", "HONEST"), ("compare", "DB", "HONEST"),
    ("compare", "DB", "--rank", "0", "--rank", "1"), ("compare", "DB", "HONEST", "--calls"),
    ("compare", "DB", "--phases"),
    ("annotate", "DB", "main"), ("stacks", "DB", "--at", "0.3"),
    ("stacks", "DB", "--at", "0.5", "--json"),
    ("report", "DB", "--waits-for"), ("report", "DB", "--wait-at", "101@0.2", "--waits-for"),
    ("report", "DB", "--by", "interferer"), ("critical-path", "DB"),
    ("critical-path", "DB", "--json", "--from", "0.1"), ("what-if", "DB"),
    ("what-if", "DB", "--faster", "solve=50%", "--json"), ("openmp", "DB"),
    *(("render", "DB", "--view", view, "-o", "OUT.png", "--width", "99", "--height", "50")
      for view in VIEWS),
    *(("export", "DB", "--format", format, "-o", f"OUT.{format}")
      for format in ("collapsed", "speedscope", "pprof", "firefox", "perfetto", "csv")),
]  # fmt: skip
_WAITS: dict[int, list[Step]] = {
    0: [("main/solve", "cpu", 0.2), ("main/solve", "runnable by 1", 0.05),
        ("main/Wait/k_futex", "blocked by 2", 0.1), ("main/solve", "cpu", 0.05)],
    1: [("main/Wait/k_futex", "blocked by TIMER", 0.2), ("main/solve", "cpu", 0.1),
        ("main/Wait/k_futex", "blocked by 0", 0.1)],
    2: [("main/solve", "cpu", 0.15), ("main/solve", "runnable by stress 4711", 0.1),
        ("main/Wait/k_futex", "blocked by 0", 0.1)],
}  # fmt: skip
_USAGE, _PLATFORM = 2, 5
_FEW, _SOME = 2, 8
"""Verbs that are tried on a damaged database, and on one that is sound."""


def run(rounds: int, seed: int) -> list[str]:
    """Run the test; return what was wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        soak = _Databases(folder, _models(folder), seed)
        return run_confined(soak.try_one, rounds)


def _models(folder: Path) -> list[Path]:
    """Three databases: many short measurements in a part, threads that wait for one another and for
    CPUs, and ranks that wait and call."""
    eight_ranks(folder)
    ranks_that_call(folder)
    make(folder / "made", TWO_RANKS, job="")
    several = [folder / "m", folder / "rank0", folder / "rank7", folder / "made-m"]
    merge(several, folder / "several", workers=1)
    make(folder / "waits", _WAITS, size=0, threads=True)
    return [folder / "several", folder / "waits", folder / "called.db"]


class _Databases:
    def __init__(self, folder: Path, models: list[Path], seed: int) -> None:
        self._folder, self._models, self._seed = folder, models, seed
        self._mutants = [DatabaseMutants(model) for model in models]
        self._honest: dict[tuple[int, tuple[str, ...]], int] = {}

    def _honest_code(self, which: int, verb: tuple[str, ...]) -> int:
        """Return the exit code for the model: a verb may refuse one that has not what it wants."""
        if (which, verb) not in self._honest:
            output = self._folder / f"honest-{os.getpid()}"
            model = self._models[which]
            self._honest[which, verb], _ = _run(verb, model, self._models[-1], output)
        return self._honest[which, verb]

    def try_one(self, number: int) -> Iterator[str]:
        """Make a mutant, and try verbs on it."""
        which = number % len(self._models)
        place = self._folder / f"round-{number}"
        changed = self._mutants[which].make(place, seed := self._seed * 1_000_000 + number)
        sound, error = _run(("check", "DB"), place, place, place)
        yield error and f"{changed}: check: {error}"
        choice = random.Random(seed)
        verbs = choice.sample(_VERBS, _SOME if sound == 0 else _FEW)
        for verb in verbs:
            code, error = _run(verb, place, self._models[-1], place.with_name(f"out-{number}"))
            refused = not error and sound == 0 and code not in (0, _USAGE)
            if refused and code != self._honest_code(which, verb):
                error = f"code {code} of a database that is sound"
            yield error and f"{changed}: {' '.join(verb)}: {error}"
        for error in _requests(place, sound == 0):
            yield error and f"{changed}: {error}"
        shutil.rmtree(place)
        for path in self._folder.glob(f"out-{number}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _run(verb: tuple[str, ...], database: Path, honest: Path, output: Path) -> tuple[int, str]:
    words = {"DB": str(database), "HONEST": str(honest)}
    return run_command(*(words.get(word, word.replace("OUT", str(output))) for word in verb))


def _requests(database: Path, sound: bool) -> Iterator[str]:
    """Yield the findings of requests to a viewer of a database."""
    query = "t0=0&t1=400000000&l0=0&l1=4&h=4&w=50&from=0&count=4&metric=cpu_time&view=flat&line=0"
    names = "&context=n1&text=x = cpu_time / 2&patterns=m.* = red&procedure=1&phase=MPI_Allreduce"
    parameters = QueryParameters(QueryParams(query + names))
    try:
        with hpcd.analysis.open(database) as db:
            served = OpenDatabase(db)
            requests = {
                "describe": lambda: answers.describe(served),
                "depths": served.depths,
                "picture": lambda: db.sample_grid(None, 0, max(db.duration_ns, 1), 20, 100),
                **{
                    name: lambda answer=answer: answer(served, parameters)
                    for name, answer in {**answers.JSON_ANSWERS, **answers.BINARY_ANSWERS}.items()
                },
            }
            for name, request in requests.items():
                try:
                    request()
                except FormatError as error:
                    yield f"{name} of a sound database: {error}" if sound else ""
                except HpcdError:
                    yield ""
                except Exception as error:
                    yield f"{name}: {describe(error)}"
    except HpcdError as error:
        yield f"a sound database is not opened: {error}" if sound else ""
