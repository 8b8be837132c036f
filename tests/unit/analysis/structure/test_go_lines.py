"""Lines and inlined calls of stripped Go programs against the debug information of the same."""

from __future__ import annotations

import io
import random
import time
from pathlib import Path

import numpy as np

from hpcd.analysis.structure import StructureReader
from hpcd.analysis.structure.dwarf.address_ranges import AddressRanges
from hpcd.analysis.structure.dwarf.debug_scopes import ModuleLines
from hpcd.analysis.structure.dwarf.line_table import MAX_DEPTH, depths
from hpcd.analysis.structure.go_lines import go_lines
from hpcd.analysis.structure.structure_cache import StructureCache
from hpcd.array_types import U64
from hpcd.elf.elf_file import ElfFile
from hpcd.elf.go_table import go_table
from hpcd.errors import FormatError
from tests.support.elf_mutations import EDGES
from tests.support.go_programs import STRIPPED, build, needs_go, table_section

MUTANTS, SECONDS = 60, 5


def addresses_in(program: Path, step: int) -> U64:
    with ElfFile.open(program) as elf:
        table = go_table(elf)
    assert table is not None
    spans = zip(table.start.tolist(), table.end.tolist(), strict=True)
    return np.concatenate([np.arange(low, high, step, np.uint64) for low, high in spans])


@needs_go
def test_calls_are_those_of_the_debug_information(tmp_path: Path) -> None:
    whole, stripped = build(tmp_path / "whole"), build(tmp_path / "stripped", STRIPPED)
    addresses = addresses_in(stripped, 37)
    with StructureReader(StructureCache(tmp_path / "cache"), workers=1) as reader:
        known, structure = (
            reader.structure(program, addresses, loops=False) for program in (whole, stripped)
        )
    assert structure.notes == ()
    chains = [[one.chain(number) for number in range(len(addresses))] for one in (known, structure)]
    same = [a == b for a, b in zip(*chains, strict=True)]
    # Debug information has other names for the first function, and no lines of made-up ones.
    assert len(same) > 10_000 and sum(same) > 0.995 * len(same)
    assert max(map(len, chains[1])) > 3


@needs_go
def test_some_addresses_have_the_lines_that_all_have(tmp_path: Path) -> None:
    program = build(tmp_path / "stripped", STRIPPED)
    addresses = addresses_in(program, 37)
    some = addresses[::100]
    with ElfFile.open(program) as elf:
        wanted, everything = go_lines(elf, some), go_lines(elf, None)
    assert wanted and everything
    assert everything[1] == AddressRanges.everything()
    assert wanted[1].holds(some).all() and not wanted[1].holds(addresses).all()
    assert wanted[1].holds(np.array([0, 1 << 50], np.uint64)).all()
    for address in some.tolist():
        assert wanted[0].chain(address) == everything[0].chain(address)


@needs_go
def test_made_up_tables_have_lines_or_a_reason(tmp_path: Path) -> None:
    stripped = build(tmp_path / "stripped", STRIPPED).read_bytes()
    at, size = table_section(stripped)
    random_ = random.Random(59)
    for _ in range(MUTANTS):
        data = bytearray(stripped)
        for _ in range(random_.choice((1, 20, 500))):
            place = at + 72 + random_.randrange(size - 80) & ~random_.choice((0, 3))
            value = random_.choice((*EDGES, random_.randrange(1 << 32))) & 0xFFFFFFFF
            data[place : place + 4] = value.to_bytes(4, "little")
        begin = time.process_time()
        try:
            with ElfFile(io.BytesIO(bytes(data)), "made up") as elf:
                answer = go_lines(elf, None)
            assert answer
            table, covered = answer
            ModuleLines.of(table, covered)
            assert depths(table.caller).max() < MAX_DEPTH
        except FormatError as error:
            assert str(error).startswith("made up: Go's table")
        assert time.process_time() - begin < SECONDS
