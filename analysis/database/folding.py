"""Call paths without the frames of a language's interpreter.

Between a Python function and what it calls stand the interpreter's own frames: the evaluation loop,
helpers of calls, built-in functions. Folded, their cost is that of the Python line that runs them,
and a C function of another library hangs below that line, as do the interpreter's own where it
waits for its lock. Paths that lead to Python through the
program's start or that of a thread begin at its first function; through a runner, as of tests or
of a pool's tasks, at the first one of the program's own. Java's paths begin so, too, and have no
stubs below methods; what the JVM does for a method stays below the method. Nodes keep their
numbers, so that sums and traces are those of the tree that was recorded:

    main > run > <module> > step > loop > dgemm     becomes    <module> > step > dgemm

where ``loop`` is another node of ``step`` now.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hpcd.analysis.roles.program_modules import is_program_code
from hpcd.analysis.roles.role import NameRole, have
from hpcd.analysis.roles.role_table import role_table
from hpcd.array_types import I64, U32, Mask
from hpcd.masks import marked
from hpcd.model.cct import CCT
from hpcd.model.identity import KERNEL_KINDS, SOURCE_KINDS, ModuleKind

# Functions of the library that only lead to the program: threads' start, `python -m`.
_STARTS = re.compile(
    r"(.*/threading\.py:(Thread\.)?(_bootstrap|_bootstrap_inner|run)"
    r"|(.*/runpy\.py|<frozen runpy>):.*)"
    r"|java/lang/Thread\.java:java\.lang\.Thread\.run(With)?"
)
# Code of the JVM's own between methods: stubs, adapters, the interpreter.
_STUBS = re.compile(r"\[java\]:(?!\[Java method that is gone).*")
# What calls the program's functions for it: tests, tasks of pools, processes.
_RUNNERS = re.compile(
    r".*/(site|dist)-packages/(_pytest|pytest|pluggy|xdist|execnet)/.*|.*/bin/(pytest|py\.test):.*"
    r"|.*/python3\.\d+t?/(unittest/.*"
    r"|concurrent/futures/(thread\.py:(_worker|_WorkItem\.run)|process\.py:_process_\w+)"
    r"|multiprocessing/(process\.py:BaseProcess\.(_bootstrap|run)|pool\.py:.*))"
    r"|java/util/concurrent/(ThreadPoolExecutor|Executors|FutureTask|ForkJoin\w*)\.java:.*"
)
# A forked process begins there: the frames above are its parent's.
_FORKED = re.compile(r".*/python3\.\d+t?/multiprocessing/process\.py:BaseProcess\._bootstrap")
_IMPORTS = "<frozen importlib."


@dataclass(frozen=True, slots=True)
class FoldedTree:
    """``cct`` with the parents and frames that nodes have folded; ``shown`` ``uint32[n]`` is the
    node whose procedure and scope each one has, itself for most."""

    cct: CCT
    shown: U32


class CodePlace(NamedTuple):
    """A procedure, and the path and kind of its load module, empty where there is none."""

    name: str
    path: str
    kind: str


def fold_places(parent: U32, places: Sequence[CodePlace]) -> FoldedTree:
    """Fold a tree of procedures that is in no database: ``parent`` ``uint32[n]`` and the place of
    each node; node 0 is the root. O(n), with a step of Python for each node."""
    procedures: dict[CodePlace, int] = {}
    procedure = [procedures.setdefault(place, len(procedures)) for place in places]
    modules: dict[tuple[str, str], int] = {("", ""): 0}
    module = [modules.setdefault((path, kind), len(modules)) for _, path, kind in procedures]
    names = [place.name for place in procedures]
    roles = role_table().of_procedures(
        names,
        [place.kind in KERNEL_KINDS for place in procedures],
        [place.path for place in procedures],
    )
    cct = CCT(parent, np.array(procedure, np.uint64))
    return fold(
        cct,
        cct.frame.astype(np.uint32),
        np.array(module, np.uint32),
        [kind for _, kind in modules],
        [path for path, _ in modules],
        names,
        roles,
    )


def fold(
    cct: CCT,
    procedure: U32,
    module: U32,
    kinds: Sequence[str],
    paths: Sequence[str],
    names: Sequence[str],
    roles: I64,
) -> FoldedTree:
    """Fold the frames of interpreters.

    ``procedure`` ``uint32[n]`` is each node's, ``module`` ``uint32[procedures]`` the load module of
    each procedure, of ``kinds`` and ``paths`` by number, ``names`` and ``roles``
    ``uint32[procedures]`` those of procedures. O(n).
    """
    source = np.array([kind in SOURCE_KINDS for kind in kinds], bool)
    imports = source & np.array([path.startswith(_IMPORTS) for path in paths], bool)
    binary = np.array([kind == ModuleKind.ELF for kind in kinds], bool)
    places = [f"{paths[at]}:{name}" for at, name in zip(module.tolist(), names, strict=True)]

    def fit(pattern: re.Pattern[str]) -> Mask:
        fits = np.array([bool(pattern.fullmatch(place)) for place in places], bool)
        mask: Mask = (fits & source[module])[procedure]
        return mask

    program = np.array([is_program_code(*at) for at in zip(paths, kinds, strict=True)], bool)
    own = module[procedure]
    of_kind = np.array(kinds)[own]
    python, java = of_kind == ModuleKind.PYTHON, of_kind == ModuleKind.JAVA
    # The native frame right below a Python function evaluates it.
    evaluators = np.unique(own[python[cct.parent] & binary[own]])
    interpreter = np.isin(own, evaluators)
    # The native frame right above a method, or a stub that leads to one, is the JVM's.
    machine = np.isin(own, np.unique(own[cct.parent[java & binary[own[cct.parent]]]]))
    leading, runner, stub = fit(_STARTS), fit(_RUNNERS), fit(_STUBS)
    begins = have(roles, NameRole.ENTRY | NameRole.C_LIBRARY)
    return _fold(
        cct,
        folds=(interpreter & ~have(roles, NameRole.LOCK)[procedure]) | imports[own] | stub,
        starts=interpreter | machine | begins[procedure] | leading | imports[own] | stub,
        shows=source[own] & ~imports[own] & ~leading & ~stub,
        runs=runner,
        program=program[own] & ~runner,
        anew=fit(_FORKED),
    )


def _fold(
    cct: CCT, folds: Mask, starts: Mask, shows: Mask, runs: Mask, program: Mask, anew: Mask
) -> FoldedTree:
    """Fold nodes of ``folds`` below nodes of ``shows``; the first of these begins its path where
    all above are of ``starts``. So does the first of ``program`` below one of ``runs`` that does,
    and any of ``anew``."""
    count = len(cct)
    shown = np.arange(count, dtype=np.uint32)
    parent = cct.parent.copy()
    inside, run = np.zeros((2, count), bool)
    at_start = marked(count, 0)
    for level in cct.levels()[1:]:
        above = cct.parent[level]
        hidden = inside[above] & folds[level]
        shown[level] = np.where(hidden, shown[above], level)
        waits = run[above] & ~program[level]
        first = (shows[level] & at_start[above] & ~waits) | anew[level]
        parent[level] = np.where(hidden, parent[shown[above]], np.where(first, 0, shown[above]))
        inside[level] = inside[above] | shows[level]
        run[level] = (at_start[above] | anew[level]) & (run[above] | runs[level])
        at_start[level] = (at_start[above] & (starts[level] | waits)) | run[level] & runs[level]
    return FoldedTree(CCT(parent, cct.frame[shown]), shown)
