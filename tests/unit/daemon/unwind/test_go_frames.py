"""Unwind rows of stripped Go programs against the same programs with call frame information."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from hpcd.daemon.unwind.symbol_names import found_symbols
from hpcd.daemon.unwind.table_builder import build_table
from hpcd.elf.elf_view import ElfView
from tests.support.elf_mutations import EDGES, attempt
from tests.support.go_programs import STRIPPED, build, code_symbols, needs_go, table_section

MUTANTS, SECONDS = 60, 5


@needs_go
@pytest.mark.parametrize("mode", ["exe", "pie"])
def test_a_stripped_program_is_unwound_by_the_same_rules(tmp_path: Path, mode: str) -> None:
    flag = f"-buildmode={mode}"
    whole = build_table(memoryview(build(tmp_path / "whole", flag).read_bytes()))
    stripped = build_table(memoryview(build(tmp_path / "stripped", flag, STRIPPED).read_bytes()))
    assert stripped.functions > 1000 and stripped.base == whole.base
    for pc in (whole.pc, stripped.pc):
        rules = [
            table.rules[table.rule[np.searchsorted(table.pc, pc, "right") - 1]]
            for table in (whole, stripped)
        ]
        # But in padding.
        assert (rules[0] == rules[1]).mean() > 0.999


@needs_go
def test_sampled_functions_of_a_stripped_program_have_names(tmp_path: Path) -> None:
    known = code_symbols(build(tmp_path / "whole"))
    data = build(tmp_path / "stripped", STRIPPED).read_bytes()
    places = sorted(at for at, names in known.items() if "runtime.etext" not in names)[::10]
    rows = found_symbols(ElfView(memoryview(data)), np.array(places, np.uint64))
    assert [start for start, *_ in rows] == places
    assert all(name in known[start] for start, _, name, _ in rows)


@needs_go
def test_a_damaged_table_costs_only_its_own_rows(tmp_path: Path) -> None:
    data = bytearray(build(tmp_path / "stripped", STRIPPED).read_bytes())
    at, _ = table_section(bytes(data))
    data[at] = 0
    table = build_table(memoryview(bytes(data)))
    assert table.functions == 0 and table.analysed > 0 and len(table.pc) > 0


@needs_go
def test_made_up_tables_have_rows_or_none(tmp_path: Path) -> None:
    data = build(tmp_path / "stripped", STRIPPED).read_bytes()
    at, size = table_section(data)
    random_ = random.Random(59)
    for _ in range(MUTANTS):
        mutant = bytearray(data)
        for _ in range(random_.choice((1, 20, 500))):
            place = at + random_.randrange(size - 8) & ~random_.choice((0, 3))
            value = random_.choice((*EDGES, random_.randrange(1 << 32))) & 0xFFFFFFFF
            mutant[place : place + 4] = value.to_bytes(4, "little")
        result, seconds = attempt(bytes(mutant))
        assert result in ("table", "refused") and seconds < SECONDS
