"""The ranks of a database: which trace lines are those of a parallel program, and how many there
are.

A recording holds more than the program: launchers, daemons, and in each rank threads of the MPI
library that sleep all the time. Their seconds would water every percentage down, so a rank is its
busiest thread and all others that are no helpers (:mod:`hpcd.analysis.profile.working_lines`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.array_types import F64, I64, Mask
from hpcd.distinct import begins_run
from hpcd.errors import UsageError

# Threads that are tried as the one that the others live with; the busiest are enough.
_MOST_CANDIDATES = 256


@dataclass(frozen=True)
class Ranks:
    """The ranks of one parallel program.

    ``number`` ``int64[r]`` are the ranks recorded, ascending; ``line`` ``int64[k]`` the trace lines
    that stand for them and ``of_line`` ``int64[k]`` each one's position in ``number``. ``size`` is
    how many ranks the program had, recorded or not. ``executables`` are their programs' paths.
    ``note`` is what a user should know, or empty. ``kind`` is what the numbers number: ``rank``,
    ``process`` or ``thread``.
    """

    job: str
    size: int
    number: I64
    line: I64
    of_line: I64
    executables: tuple[str, ...]
    note: str = ""
    kind: str = "rank"

    def __len__(self) -> int:
        return len(self.number)


def find_ranks(db: Database, *, job: str | None = None, size: int | None = None) -> Ranks:
    """The ranks of ``job``, or of the costliest one.

    Where nothing has a rank each process stands for one, if ``size`` says how many there are.
    Raises :class:`UsageError` when there are none and ``size`` is None, or no such job.
    """
    if not len(db.lines):
        raise UsageError(f"{db.path}: nothing was recorded")
    busy = _busy_seconds(db)
    words, word_of_line = db.lines.texts("job")
    ranked = np.flatnonzero(db.lines.rank >= 0)
    if not len(ranked):
        if job is not None:
            raise UsageError(f"{db.path}: no rank of job {job}")
        if size is None:
            raise UsageError(f"{db.path}: no process has a rank")
        lines = np.arange(len(db.lines))
        of_process = _gather(db, "", size, lines, db.lines.process.astype(np.int64), busy, "")
        return replace(of_process, kind="process")
    lines_of = {
        name: ranked[np.array([word == name for word in words])[word_of_line[ranked]]]
        for name in sorted({words[number] for number in np.unique(word_of_line[ranked]).tolist()})
    }
    names = [*lines_of]
    note = ""
    if job is None:
        cost = {name: float(busy[lines].sum()) for name, lines in lines_of.items()}
        job = max(names, key=lambda name: cost[name])
        if len(names) > 1:
            note = f"{db.path}: {len(names)} jobs, of which {job or 'the one without a name'}"
    elif job not in names:
        raise UsageError(f"{db.path}: no rank of job {job}; there are {', '.join(names)}")
    lines = lines_of[job]
    if size is None:
        size = _size(db, lines)
    return _gather(db, job, size, lines, db.lines.rank[lines].astype(np.int64), busy, note)


def has_ranks(db: Database) -> bool:
    """Whether any process has a rank."""
    return bool((db.lines.rank >= 0).any())


def main_program(db: Database) -> str:
    """Path of the executable that used most CPU time, of the ranks where there are any: a launcher
    that works more than a short program is not it. Empty where nothing is known."""
    if not len(db.lines):
        return ""
    busy = _busy_seconds(db)
    if has_ranks(db):
        busy = np.where(db.lines.rank >= 0, busy, -1.0)
    process = db.lines.process.astype(np.int64)
    seconds = sum_by(process, busy, int(process.max()) + 1)
    paths = dict(db.rows("SELECT id, exe FROM process"))
    programs: dict[str, float] = {}
    for number in np.unique(process).tolist():
        path = str(paths.get(number) or "")
        programs[path] = programs.get(path, 0.0) + float(seconds[number])
    return max(programs, key=lambda path: programs[path])


def find_threads(db: Database) -> Ranks:
    """The threads of the busiest process that share its work, numbered by thread id, as if they
    were ranks: of those that live at the same time the threads that use most CPU time.

    Raises :class:`UsageError` when there are none.
    """
    if not len(db.lines):
        raise UsageError(f"{db.path}: nothing was recorded")
    busy = _busy_seconds(db)
    process = db.lines.process.astype(np.int64)
    lines = np.flatnonzero(process == np.argmax(sum_by(process, busy, int(process.max()) + 1)))
    lines = lines[working_lines(db)[lines] | (busy[lines] == busy[lines].max())]
    lines = lines[_live_together(db.lines.start[lines], db.lines.end[lines], busy[lines])]
    threads = _gather(db, "", len(lines), lines, db.lines.tid[lines].astype(np.int64), busy, "")
    return replace(threads, kind="thread")


def _live_together(start: I64, end: I64, busy: F64) -> Mask:
    """``bool[n]``: which threads live at the same time as one of them, with the most CPU time.

    Two live at the same time that overlap for half of the longer life: threads of one phase after
    another share no work.
    """
    best, most = np.ones(len(busy), bool), -1.0
    for at in np.argsort(-busy, kind="stable")[:_MOST_CANDIDATES].tolist():
        common = np.minimum(end, end[at]) - np.maximum(start, start[at])
        together = 2 * common >= np.maximum(end - start, end[at] - start[at])
        together[at] = True
        if (total := float(busy[together].sum())) > most:
            best, most = together, total
    return best


def _gather(
    db: Database,
    job: str,
    size: int,
    lines: I64,
    rank: I64,
    busy: F64,
    note: str,
) -> Ranks:
    seconds = busy[lines]
    # By rank, the busiest first.
    order = np.lexsort((lines, -seconds, rank))
    kept = order[begins_run(rank[order]) | (working_lines(db)[lines[order]] & (seconds[order] > 0))]
    kept = kept[np.argsort(lines[kept])]
    number, of_line = np.unique(rank[kept], return_inverse=True)
    programs = dict(db.rows("SELECT id, exe FROM process"))
    owners = np.unique(db.lines.process[lines[kept]]).tolist()
    return Ranks(
        job=job,
        size=size,
        number=number,
        line=lines[kept],
        of_line=of_line.astype(np.int64),
        executables=tuple(sorted({str(programs.get(owner) or "") for owner in owners} - {""})),
        note=note,
    )


def _size(db: Database, lines: I64) -> int:
    """Return the number of ranks of the job of ``lines``: the greatest that its processes were
    told, at least the number of ranks among ``lines``."""
    sizes = dict(db.rows("SELECT id, size FROM process"))
    recorded_sizes = [
        sizes.get(owner) or 0 for owner in np.unique(db.lines.process[lines]).tolist()
    ]
    return max([*recorded_sizes, len(np.unique(db.lines.rank[lines]))])


def _busy_seconds(db: Database) -> F64:
    """``float64[lines]``: CPU time of each line; samples where that was not measured."""
    return db.line_totals("cpu_time" if "cpu_time" in db.metrics.names else 0)
