"""Caveats of a profile, and remedies.

Each piece of advice is one sentence with a figure, said only where the figure matters.
"""

from __future__ import annotations

from pathlib import PurePath

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.database.database import ModuleRow
from hpcd.analysis.profile.report_header import HeaderFacts
from hpcd.analysis.roles.role import NameRole
from hpcd.analysis.roles.role_table import role_table
from hpcd.array_types import Mask
from hpcd.elf.word_size import IS_32_BIT
from hpcd.model.identity import ModuleKind
from hpcd.wording import percent

# Fewer whole paths than this change what a tree says, not only how exactly it says it.
_WHOLE = 0.95
# Code of a module without names is worth a sentence from this share of the cost on.
_SHARE = 0.1
# Summaries of ranks have much the same lines, with other figures.
_MOST_LINES = 10

_REMEDIES = {
    "process not yet known": "paths of a program's first milliseconds; record longer or attach"
    " to it when it runs",
    "module not yet analysed": "unwind tables were being made; they are kept, so record again",
    "no unwind information": "install the module's debug package or build it with"
    " -fasynchronous-unwind-tables",
    "unsupported unwind rule": "install the module's debug package or build it with"
    " -fasynchronous-unwind-tables",
    "frame pointer chain broken": "have the run-time compiler keep frame pointers",
    "left out to keep the overhead budget": "raise --overhead",
    "deeper than the frame limit": "only the innermost frames are there",
}


_JAVA = "libjvm.so"
_KEEP_CHAINS = "have Java keep frame pointers: -XX:+PreserveFramePointer"
_PYTHON_CHAINS = (
    "the code that Python's -X perf puts between functions keeps no frame pointers; without it"
    " paths are whole, but have no Python functions"
)


def advice(db: Database, facts: HeaderFacts, metric: int) -> list[str]:
    """Return the caveats of a profile, most important first; shares are of ``metric``'s total."""
    return [*_of_imports(db), *_of_paths(db, facts), *_of_names(db, metric), *of_probes(db)]


def of_probes(db: Database) -> list[str]:
    """Return what probes could not record, as the recorders said it: a line each."""
    summaries = (row.summary.probes for row in db.measurements)
    lines = dict.fromkeys(line for probes in summaries if probes for line in probes.problems)
    more = len(lines) - _MOST_LINES
    return [
        *list(lines)[:_MOST_LINES],
        *([f"{more:,} more lines on probes: see the summaries"] if more > 0 else ()),
        *of_dropped_probes(db),
    ]


def of_dropped_probes(db: Database) -> list[str]:
    """Return which functions' probes were removed during a recording, in a line, if any were."""
    summaries = (row.summary.probes for row in db.measurements)
    names = sorted({
        function.name
        for probes in summaries if probes
        for function in probes.functions if function.let_go
    })  # fmt: skip
    return [f"from some time on not recorded, to keep the budget: {', '.join(names)}"][: len(names)]


def _of_imports(db: Database) -> list[str]:
    """Return the caveats of other tools' recordings."""
    origins = [origin for row in db.measurements if (origin := row.origin)]
    if not origins:
        return []
    formats = ", ".join(sorted({str(origin.get("format", "")) for origin in origins}))
    notes = f"imported ({formats}): which call paths are whole is not known"
    if any(origin.get("times") == "synthetic" for origin in origins):
        notes += "; there were no times, so traces show shares only"
    return [notes]


def _of_paths(db: Database, facts: HeaderFacts) -> list[str]:
    truncated = sum(facts.truncated.values())
    paths = facts.complete + truncated
    if not truncated or facts.complete >= _WHOLE * paths:
        return []
    reason, count = facts.truncated.most_common(1)[0]
    remedy = _REMEDIES.get(reason, "see docs/truncated.md")
    if reason == "no unwind information" and any(map(_is_32_bit, db.modules)):
        remedy = "stacks of 32-bit programs are not walked"
    if reason == "frame pointer chain broken":
        if any(PurePath(row.path).name == _JAVA for row in db.modules):
            remedy = _KEEP_CHAINS
        elif _python_code(db).any():
            remedy = _PYTHON_CHAINS
    return [
        f"{percent(truncated / paths, 0)} of the call paths are incomplete, so callers miss cost:"
        f" {count:,} of {truncated:,} for the reason '{reason}' ({remedy})"
    ]


def _is_32_bit(module: ModuleRow) -> bool:
    return module.symbols.endswith(IS_32_BIT)


def _python_code(db: Database) -> Mask:
    """``bool[procedures]``: which are Python functions that python -X perf has named."""
    names = db.procedures.name
    return np.array([name.startswith("py::") for name in names], bool)


def _of_names(db: Database, metric: int) -> list[str]:
    """Modules whose code has no names, run-time compilers, interpreters."""
    if metric >= len(db.metrics.names):
        return []
    cost = db.metrics.exclusive(metric)
    total = float(cost.sum())
    if total <= 0:
        return []
    names = db.procedures.name
    nameless = np.array([name.startswith("[") for name in names], bool)[db.procedure_of_node]
    module = db.procedures.module[db.procedure_of_node]
    size = len(db.modules) + 1
    without = sum_by(module, cost * nameless, size) / total
    every = sum_by(module, cost, size) / total
    notes = []
    jit = 0.0
    shows_python = bool(_python_code(db).any()) or any(
        row.kind == ModuleKind.PYTHON for row in db.modules
    )
    for row in db.modules:
        share, name = float(without[row.id]), PurePath(row.path).name
        if row.kind == ModuleKind.JIT:
            jit += share
        elif _is_32_bit(row) and share >= _SHARE:
            notes.append(f"{percent(share, 0)} is in {name}: {IS_32_BIT}")
        elif row.kind == ModuleKind.ELF and share >= _SHARE:
            notes.append(
                f"{percent(share, 0)} is in code of {name} that has no names: install its debug"
                " package (or set DEBUGINFOD_URLS), or link it without stripping, and merge again"
            )
        interprets = bool(role_table().of_module(row.path) & NameRole.PYTHON)
        if interprets and every[row.id] >= _SHARE and not shows_python:
            notes.append(
                f"{percent(float(every[row.id]), 0)} is in Python's interpreter: its C functions"
                " are shown, not the Python functions they run"
            )
    if jit >= _SHARE:
        notes.append(
            f"{percent(jit, 0)} is in code made at run time that has no names: have the run-time"
            " compiler write a perf map (docs/jit.md says how for Java, Node.js and others)"
        )
    return notes
