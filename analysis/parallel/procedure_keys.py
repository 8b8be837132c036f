"""Keys by which procedures of several databases are recognised.

:mod:`hpcd.analysis.parallel.tree_matching` says which are the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from hpcd.analysis.database import Database
from hpcd.analysis.parallel.program_code import program_modules
from hpcd.analysis.symbols.bare_names import bare_name
from hpcd.model.identity import KERNEL_KINDS, ModuleKind

PROGRAM = "\0program"
"""Key of the module that the ranks' executables are."""


class ProcedureCandidate(NamedTuple):
    """A procedure of one database, as far as it can be recognised in another."""

    module: str
    name: str
    full_name: str
    shown_module: str
    build: str
    address: int
    file: str
    line: int
    kernel: bool
    program: bool


def list_candidates(db: Database, program: str) -> list[ProcedureCandidate]:
    """Return the procedures of a database, by number; ``program`` is the ranks' executable, empty
    if there are several."""
    modules = [("", "", "", False, False)]
    for row, own in zip(db.modules, program_modules(db)[1:].tolist(), strict=True):
        kernel = row.kind in KERNEL_KINDS
        name = row.kind if row.kind in (ModuleKind.KERNEL, ModuleKind.VDSO, ModuleKind.JIT) else ""
        name = name or PurePath(row.path.removesuffix(" (deleted)")).name
        key = PROGRAM if program and row.path == program else name
        modules.append((key, name, row.build_id, kernel, own or key == PROGRAM))
    table = db.procedures
    return [
        ProcedureCandidate(
            modules[module][0],
            bare_name(name),
            name,
            modules[module][1],
            modules[module][2],
            address,
            file,
            line,
            modules[module][3],
            modules[module][4],
        )
        for name, module, address, file, line in zip(
            table.name,
            table.module.tolist(),
            table.address.tolist(),
            table.file,
            table.line.tolist(),
            strict=True,
        )
    ]


def identify(columns: Sequence[Sequence[ProcedureCandidate]]) -> list[list[tuple[object, ...]]]:
    """Keys that are equal where procedures of different databases are the same one."""
    builds: defaultdict[str, set[str]] = defaultdict(set)
    groups: defaultdict[tuple[str, str], list[ProcedureCandidate]] = defaultdict(list)
    for column in columns:
        for candidate in column:
            builds[candidate.module].add(candidate.build)
            groups[candidate.module, candidate.name].append(candidate)
    # Without a build id there is no telling whether two are one build.
    one_build = {
        module
        for module, build_ids in builds.items()
        if len(build_ids) == 1 and "" not in build_ids
    }
    # A file may be renamed: it matters only where one database has the name in several.
    several = {
        (candidate.module, candidate.name)
        for column in columns
        for candidate in _in_several_files(column)
    }
    by_file = {key for key in several if all(candidate.file for candidate in groups[key])}
    result = []
    for column in columns:
        order = sorted(
            range(len(column)),
            key=lambda at, of=column: (of[at].file, of[at].line, of[at].address),  # type: ignore[misc]
        )
        keys: list[tuple[object, ...]] = [()] * len(column)
        seen: defaultdict[tuple[object, ...], int] = defaultdict(int)
        for at in order:
            candidate = column[at]
            key: tuple[object, ...] = (candidate.module, candidate.name)
            if candidate.module in one_build:
                keys[at] = (*key, candidate.address)
                continue
            if _unnamed(candidate):
                key = (*key, candidate.build)
            elif (candidate.module, candidate.name) in by_file:
                key = (*key, PurePath(candidate.file).name)
            # Copies of one procedure differ in what was left off, procedures of one name do not.
            copy = (*key, candidate.full_name)
            keys[at] = (*key, seen[copy])
            seen[copy] += 1
        result.append(keys)
    return result


def _in_several_files(column: Sequence[ProcedureCandidate]) -> list[ProcedureCandidate]:
    files: dict[tuple[str, str], str] = {}
    return [
        candidate
        for candidate in column
        if files.setdefault((candidate.module, candidate.name), candidate.file) != candidate.file
    ]


def _unnamed(candidate: ProcedureCandidate) -> bool:
    """Whether the name holds an address: ``[libfoo.so+0x1234]``."""
    return candidate.name.startswith("[") and "+0x" in candidate.name
