"""Pairs of caller and callee in the call paths of ``programs/python_pairs.py`` that it has not.

A pair is impossible if the program's own table has no such call, or caller and callee are of
different families; so is a path whose outermost function is one that others call. Only functions of
the program's own file are compared: between two of them may be those of the standard library.
Samples and waits count, unfolded as they were recorded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hpcd.measurement.reader import open_measurement
from hpcd.model import frame as frames
from hpcd.model.python_place import FUNCTION_BYTES
from tests.programs.python_pairs import CALLERS
from tests.support.paths import ROOT

PAIRS = ROOT / "tests/programs/python_pairs.py"
_GONE = "[Python function that is gone]"


@dataclass
class PairCounts:
    """Numbers of records: all, those with Python functions, with the program's, and ``whole``, down
    from where a thread begins; ``impossible`` by what is impossible, ``gone`` have a function whose
    name could not be read."""

    records: int = 0
    with_python: int = 0
    with_program: int = 0
    whole: int = 0
    gone: int = 0
    impossible: Counter[str] = field(default_factory=Counter)


def count_pairs(
    measurement: Path, program: Path = PAIRS, metrics: Collection[str] = ()
) -> PairCounts:
    """Count the impossible pairs of a recording of ``program``, in records of ``metrics``; without
    these, in all."""
    counts = PairCounts()
    with open_measurement(measurement) as reader:
        cct = reader.cct
        records = np.zeros(len(cct), np.int64)
        counted = [e.id for e in reader.events.values() if not metrics or e.metric in metrics]
        for part in reader.record_chunks():
            np.add.at(records, part.node[np.isin(part.event, counted)], 1)
        files = {m.id: m.path for m in reader.modules.values() if m.kind == "python"}
        names = {
            (module, start): name
            for module, rows in reader.symbols.items()
            if module in files
            for start, _, name in rows
        }
        marked = frames.is_marker(cct.frame)
        module = frames.module_of(cct.frame).tolist()
        start = (frames.offset_of(cct.frame) & ~np.uint64(FUNCTION_BYTES - 1)).tolist()
        for node in np.flatnonzero(records).tolist():
            python = [at for at in cct.path(node) if module[at] in files]
            own = [at for at in python if Path(files[module[at]]).name == program.name]
            path = [names[module[at], start[at]].rpartition(".")[2] for at in own]
            count = int(records[node])
            counts.records += count
            counts.with_python += count if python else 0
            counts.with_program += count if own else 0
            whole = not marked[cct.path(node)[0]]
            counts.whole += count if whole and begins_thread(path) else 0
            if any(names[module[at], start[at]] == _GONE for at in python):
                counts.gone += count
            elif path and (what := impossible(path, whole=whole)):
                counts.impossible[what] += count
    return counts


def begins_thread(path: list[str]) -> bool:
    """Return whether the outermost function of a path is one that no other calls."""
    return bool(path) and not CALLERS.get(_split(path[0])[0], {path[0]})


def impossible(path: list[str], *, whole: bool) -> str:
    """Return the first impossible pair of a path's functions, the outermost first; "" if there is
    none. The outermost function of a path that is not ``whole`` may be any."""
    before = None
    for name in path:
        stem, family = _split(name)
        if before is None:
            if stem not in CALLERS or (whole and CALLERS[stem]):
                return f"{name} called by none"
        elif before[0] not in CALLERS.get(stem, set()) or {before[1], family} == {"a", "b"}:
            return f"{name} called by {'_'.join(before)}"
        before = stem, family
    return ""


def _split(name: str) -> tuple[str, str]:
    match = re.fullmatch(r"(.*)_([ab])", name)
    return (match[1], match[2]) if match else (name, "")
