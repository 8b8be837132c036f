"""Scopes a merge stores: those of the structure, in the procedures of the symbols."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.database.scopes import Scopes
from hpcd.analysis.merge.publish.module_names import ModuleNames, describe
from hpcd.analysis.structure import ScopeKind, StructureReader
from hpcd.analysis.symbols.symbolization import SymbolTask, symbolize
from hpcd.elf.elf_file import ElfFile
from hpcd.model.identity import ModuleKind
from tests.support.paths import ROOT

PROGRAM = ROOT / "tests/programs/inlined.cpp"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def program(tmp_path: Path, build: Callable[..., Path]) -> Path:
    """One's own: some are damaged."""
    return Path(shutil.copy(build(PROGRAM.name, "-g"), tmp_path / "program"))


def task_of(path: Path, build_id: str = "") -> SymbolTask:
    """Every fourth byte of the program's code."""
    with ElfFile.open(path) as elf:
        (text,) = [section for section in elf.sections if section.name == ".text"]
        offsets = np.arange(text.address, text.address + text.size, 4, dtype=np.uint64)
        return SymbolTask(ModuleKind.ELF, str(path), build_id or elf.build_id(), None, offsets)


def outwards(names: ModuleNames, number: int) -> list[tuple[ScopeKind, str, str, int]]:
    """Scopes at an address, innermost first."""
    scopes, scope = names.scopes, int(names.scope[number])
    chain = []
    while scope:
        chain.append((ScopeKind(int(scopes.kind[scope])), scopes.name[scope], scopes.file[scope],
                      int(scopes.line[scope])))  # fmt: skip
        scope = int(scopes.parent[scope])
    return chain


def test_scopes_are_those_of_the_structure(program: Path) -> None:
    task = task_of(program)
    names = describe(task)
    with StructureReader() as reader:
        structure = reader.structure(program, task.offsets)
    forest = structure.forest
    inlined = loops = 0
    for number in range(len(task.offsets)):
        path = forest.path(int(structure.scope[number]))[:-1]
        kinds = [ScopeKind(int(forest.kind[scope])) for scope in path]
        expected = [
            (kind, forest.label(scope) if kind is ScopeKind.INLINED else "", *forest.place(scope))
            for kind, scope in zip(kinds, path, strict=True)
        ]
        assert outwards(names, number) == expected
        inlined += ScopeKind.INLINED in kinds
        loops += ScopeKind.LOOP in kinds
    assert inlined and loops
    inside = np.flatnonzero(names.scope)
    assert (names.scopes.procedure[names.scope[inside]] == names.symbols.index[inside]).all()
    assert (names.scopes.parent[1:] < np.arange(1, len(names.scopes))).all()
    placed = {procedure.name: procedure.file for procedure in names.symbols.procedures}
    assert placed["main"] == str(PROGRAM)


def test_the_cache_changes_nothing(program: Path) -> None:
    first, second = describe(task_of(program)), describe(task_of(program))
    assert first.symbols.note == second.symbols.note
    assert first.symbols.note.endswith(", lines")
    assert np.array_equal(first.scope, second.scope)
    assert first.scopes.file == second.scopes.file


@pytest.mark.parametrize("how", ["stripped", "changed", "gone"])
def test_without_debug_information_names_stay_what_they_were(program: Path, how: str) -> None:
    task = task_of(program)
    if how == "stripped":
        subprocess.run(["strip", "-g", str(program)], check=True)
    elif how == "changed":
        task = task_of(program, "0123456789abcdef")
    else:
        program.unlink()
    names = describe(task)
    plain = symbolize(task)
    assert names.symbols.procedures == plain.procedures
    assert names.symbols.note == plain.note
    if how == "stripped":
        assert set(names.scopes.kind[1:].tolist()) == {ScopeKind.LOOP}
    else:
        assert not names.scope.any() and len(names.scopes) == 1


def test_loops_of_bare_machine_code_are_told_by_their_place(program: Path) -> None:
    subprocess.run(["strip", "-s", str(program)], check=True)
    task = task_of(program)
    names = describe(task)
    with StructureReader() as reader:
        forest = reader.structure(program, task.offsets).forest
    heads = forest.address[forest.kind == ScopeKind.LOOP].tolist()
    procedures = names.symbols.procedures
    loops = zip(names.scopes.name[1:], names.scopes.procedure[1:].tolist(), strict=True)
    reported = [procedures[procedure].address + int(name, 16) for name, procedure in loops]
    assert sorted(reported) == sorted(heads)
    nameless = [p.name for p in procedures if p.name not in ("_start", "main")]
    assert nameless and all(name.startswith("[program+0x") for name in nameless)


def test_damaged_debug_information_costs_the_lines_alone(program: Path) -> None:
    with ElfFile.open(program) as elf:
        (section,) = [section for section in elf.sections if section.name == ".debug_info"]
        task = task_of(program)
    data = bytearray(program.read_bytes())
    data[section.offset : section.offset + section.size] = b"\xff" * section.size
    program.write_bytes(data)
    described = describe(task)
    names = [(procedure.name, procedure.address) for procedure in described.symbols.procedures]
    assert names == [
        (procedure.name, procedure.address) for procedure in symbolize(task).procedures
    ]
    assert ScopeKind.STATEMENT not in described.scopes.kind


def test_joining_keeps_each_parts_order() -> None:
    part = Scopes(
        np.array([0, 0, 1], np.uint32),
        np.array([ScopeKind.PROCEDURE, ScopeKind.LOOP, ScopeKind.STATEMENT], np.uint8),
        np.array([0, 4, 4], np.uint32),
        ["", "", ""],
        ["", "a.c", "b.c"],
        np.array([0, 1, 2], np.uint32),
    )
    whole, starts = Scopes.joined([part, Scopes.none(), part])
    assert starts == [0, 2, 2]
    assert whole.parent.tolist() == [0, 0, 1, 0, 3]
    assert whole.file == ["", "a.c", "b.c", "a.c", "b.c"]
