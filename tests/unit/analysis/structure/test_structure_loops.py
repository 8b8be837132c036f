"""Loops: the search against dominators, and the nests of programs against their sources."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcd.analysis.arrays.named_arrays import Arrays
from hpcd.analysis.structure import StructureReader, module_structure
from hpcd.analysis.structure.code.function_bounds import functions_of
from hpcd.analysis.structure.code.loop_detection import find_loops
from hpcd.analysis.structure.reader_process import ReaderProcess
from hpcd.elf.elf_file import ElfFile
from tests.support.nests import PROGRAM, TRUTH, nests

CROSS = "aarch64-linux-gnu-gcc"


@pytest.mark.parametrize("compiler", ["gcc", "clang", CROSS])
@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3"])
def test_nests_are_those_of_the_source(tmp_path: Path, compiler: str, level: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    path = tmp_path / "nests"
    subprocess.run([compiler, "-g", level, str(PROGRAM), "-o", str(path)], check=True)
    loops = nests(path)
    names = {name for name, _ in loops}
    assert names <= set(TRUTH.parent)
    if level in ("-O0", "-O1"):
        # What is not inlined yet is in no other's loop; nothing is there twice.
        truth = {(name, around if name != "norm" else "") for name, around in TRUTH.parent.items()}
        inlined = {("norm", "rounds") if name == "norm" else (name, around)
                   for name, around in truth}  # fmt: skip
        gone = {pair for pair in truth if pair[0] in TRUTH.gone}
        assert set(loops) - gone in (truth - gone, inlined - gone)
        assert set(loops.values()) == {1}
        assert level == "-O1" or set(loops) >= gone
    else:
        assert names >= set(TRUTH.parent) - TRUTH.gone
        # Copies of a loop may be nested in one another; none is where it does not belong.
        for name, around in loops:
            assert around in (name, TRUTH.parent[name], TRUTH.parent.get(TRUTH.parent[name]))
        for name, around in TRUTH.parent.items():
            assert name in TRUTH.gone or (name, around) in loops


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    count = draw(st.integers(1, 12))
    blocks = st.lists(st.integers(0, count - 1), max_size=3, unique=True)
    return [draw(blocks) for _ in range(count)]


def reachable(successors: list[list[int]], without: int = -1) -> set[int]:
    seen: set[int] = set()
    pending = [0] if without != 0 else []
    while pending:
        block = pending.pop()
        if block not in seen and block != without:
            seen.add(block)
            pending += successors[block]
    return seen


def natural_loops(successors: list[list[int]]) -> tuple[dict[int, set[int]], bool]:
    """The natural loops by header, by dominators; and whether the graph is reducible."""
    everything = reachable(successors)
    dominated = {block: everything - reachable(successors, block) for block in everything}
    loops: dict[int, set[int]] = {}
    back = set()
    for block in everything:
        for target in successors[block]:
            if block in dominated[target]:
                back.add((block, target))
                body = loops.setdefault(target, {target})
                pending = [block]
                while pending:
                    member = pending.pop()
                    if member not in body:
                        body.add(member)
                        pending += [one for one in everything if member in successors[one]]
    # Reducible: without back edges there are no cycles left.
    left = {block: [t for t in successors[block] if (block, t) not in back] for block in everything}
    while True:
        ends = [block for block in left if not any(t in left for t in left[block])]
        if not ends:
            break
        for block in ends:
            del left[block]
    return loops, not left


def bodies(successors: list[list[int]]) -> dict[int, set[int]]:
    nest = find_loops(successors)
    loops: dict[int, set[int]] = {header: {header} for header in nest.latches}
    for block in range(len(successors)):
        around = nest.innermost(block)
        while around >= 0:
            loops[around].add(block)
            around = nest.header[around]
    return loops


@settings(max_examples=2000)
@given(graphs())
def test_loops_are_those_of_dominators(successors: list[list[int]]) -> None:
    expected, reducible = natural_loops(successors)
    everything = reachable(successors)
    computed = {header: body for header, body in bodies(successors).items() if header in everything}
    if reducible:
        assert computed == expected
        assert not find_loops(successors).irreducible & everything
    else:
        # Each natural loop's blocks are in loops; each loop found is one: its header and each
        # of its blocks reach each other inside it.
        assert set().union(*expected.values()) <= set().union(*computed.values())
        for header, body in computed.items():
            for block in body:
                assert _reaches(successors, body, header, block)
                assert _reaches(successors, body, block, header)


def _reaches(successors: list[list[int]], body: set[int], one: int, other: int) -> bool:
    seen: set[int] = set()
    pending = [one]
    while pending:
        block = pending.pop()
        if block == other:
            return True
        if block in body and block not in seen:
            seen.add(block)
            pending += successors[block]
    return False


class Watched(ReaderProcess):
    """A reader that notes what it is asked to read from."""

    asked: ClassVar[list[int]] = []

    def ask(self, fd: int, name: str, arrays: Arrays | None = None, **request: Any) -> None:
        self.asked.append(fd)
        super().ask(fd, name, arrays, **request)


def test_readers_do_not_share_a_place_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "nests"
    subprocess.run(["gcc", "-w", "-g", str(PROGRAM), "-o", str(path)], check=True)
    with ElfFile.open(path) as elf:
        functions = functions_of(elf)
    monkeypatch.setattr(module_structure, "_PIECE", 256)
    with StructureReader(readers=[Watched(), Watched()]) as reader:
        table, notes = reader.loops(path, functions)
    assert len(set(Watched.asked)) == 2 and len(Watched.asked) > 2
    assert not notes and len(table.parent) >= len(TRUTH.parent)


def test_tangled_graphs_end_in_bounded_time() -> None:
    count = 400
    everything = [list(range(count)) for _ in range(count)]
    with pytest.raises(RecursionError):
        find_loops(everything, 20 * count)
