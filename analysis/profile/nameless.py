"""Procedures without a name: only their address in a load module is known."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.array_types import U32, Mask
from hpcd.model.cct import CCT

_ADDRESS = re.compile(r"\[(.+)\+0x[0-9a-f]+(?:-0x[0-9a-f]+)?\]( \[k\])?")
# What has this share of a metric itself is worth a row of its own, so that its code can be read.
_SHARE = 0.01


def is_address(name: str) -> bool:
    """Whether a display name is an address in a load module, for want of a name."""
    return _ADDRESS.fullmatch(name) is not None


def without_address(name: str) -> str:
    """A display name; of an address in a load module that module alone, ``[libfoo.so]``."""
    return _ADDRESS.sub(r"[\1]\2", name) if is_address(name) else name


def named_path(names: Iterable[str]) -> list[str]:
    """A call path with a run of addresses in one load module as that module, once."""
    path: list[str] = []
    for name in names:
        shown = without_address(name)
        if shown == name or path[-1:] != [shown]:
            path.append(shown)
    return path


def module_rows(db: Database) -> tuple[U32, dict[int, str]]:
    """``uint32[procedures]``: in whose row each is shown; and the names of the rows of modules.

    Nameless procedures of one module, ``[libfoo.so+0x1234]``, that cost little themselves share the
    row of the first, ``[libfoo.so]``; all others have their own, and those of a program itself in
    which much of its CPU time passes: they are what it does.
    """
    row: U32 = np.arange(len(db.procedures), dtype=np.uint32)
    modules = db.procedures.module.tolist()
    members: dict[tuple[int, str], list[int]] = {}
    for number, name in enumerate(db.procedure_names):
        if is_address(name):
            members.setdefault((modules[number], without_address(name)), []).append(number)
    names: dict[int, str] = {}
    costly = _costly(db) if members else np.zeros(0, bool)
    for (_, shared), numbers in members.items():
        cheap = [number for number in numbers if not costly[number]]
        if cheap:
            row[cheap] = cheap[0]
            names[cheap[0]] = shared
    return row, names


def _costly(db: Database) -> Mask:
    """``bool[procedures]``: whose costs are worth a row."""
    costly = np.zeros(len(db.procedures), bool)
    for name in db.metrics.names:
        own = sum_by(db.procedure_of_node, db.metrics.exclusive(name), len(costly))
        costly |= own > _SHARE * own.sum()
    if "cpu_time" in db.metrics.names:
        whole = np.zeros(len(costly))
        inclusive = db.metrics.inclusive("cpu_time")
        np.maximum.at(whole, db.procedure_of_node, inclusive)
        programs = {str(path) for (path,) in db.rows("SELECT DISTINCT exe FROM process")}
        of_program = np.array([False, *(row.path in programs for row in db.modules)], bool)
        costly |= of_program[db.procedures.module] & (whole > _SHARE * inclusive[0])
    return costly


def without_chains(tree: CCT, place: U32, shared: Mask) -> tuple[CCT, U32]:
    """``tree`` with frames that are ``shared`` (``bool[frames]``) once where they call themselves:
    what was several procedures of a module is one. ``place`` ``uint32[n]`` are nodes of it."""
    chained = shared[tree.frame.astype(np.int64)] & (tree.frame == tree.frame[tree.parent])
    chained[0] = False
    if not bool(chained.any()):
        return tree, place
    shorter, to = tree.keep(~chained)
    return shorter, to[place]
