"""Go's own table of functions against the symbols and lines of the same program, and made-up
tables."""

from __future__ import annotations

import random
import re
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcd.elf.elf_view import ElfView
from hpcd.elf.go_table import GoTable, go_table
from hpcd.elf.go_values import read_values
from hpcd.errors import FormatError
from tests.support.elf_mutations import EDGES, mutate, original
from tests.support.go_programs import (
    STRIPPED,
    as_go_1_2,
    as_go_1_16,
    build,
    code_symbols,
    needs_go,
    table_section,
    with_table,
    without_section_headers,
)
from tests.support.paths import ROOT

PROGRAMS = ROOT / "tests/programs"
MUTANTS = 400
SECONDS = 5


def table_of(data: bytes) -> GoTable:
    table = go_table(ElfView(memoryview(data)))
    assert table is not None
    return table


def names_of(table: GoTable) -> list[str]:
    return list(map(table.name, table.names.tolist()))


@pytest.fixture(scope="module")
def stripped(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return build(tmp_path_factory.mktemp("go") / "stripped", STRIPPED).read_bytes()


def everything(table: GoTable) -> None:
    """Read all that is in a table."""
    functions = np.arange(len(table.start))
    names_of(table)
    table.called(["runtime.mcall"])
    table.frame_sizes()
    table.lines(functions)
    for at in np.unique(table.files(functions).value).tolist():
        table.file(max(at, 0))
    calls = table.inlined(functions)
    assert len(calls.name) == len(calls.place) > calls.number.value.max(initial=-1)


@needs_go
@pytest.mark.parametrize("mode", ["exe", "pie"])
def test_all_functions_have_the_names_of_their_symbols(tmp_path: Path, mode: str) -> None:
    flag = f"-buildmode={mode}"
    known = code_symbols(build(tmp_path / "whole", flag))
    data = build(tmp_path / "stripped", flag, STRIPPED).read_bytes()
    assert ".symtab" not in ElfView(memoryview(data)).sections
    table = table_of(data)
    named = dict(zip(table.start.tolist(), names_of(table), strict=True))
    assert len(named) > 1000
    assert {at: name for at, name in named.items() if name not in known[at]} == {}
    (end,) = [at for at, names in known.items() if "runtime.etext" in names]
    assert set(known) - set(named) == {end}
    assert bool((table.end[:-1] == table.start[1:]).all()) and table.end[-1] == end


@needs_go
def test_a_function_is_found_by_its_whole_name(stripped: bytes) -> None:
    table = table_of(stripped)
    names = dict(zip(names_of(table), table.start.tolist(), strict=True))
    for name in ("runtime.systemstack", "main.spin"):
        ((called, address, size),) = table.called([name])
        assert (called, address) == (name, names[name])
        assert address + size == table.end[table.start == address]
    assert table.called(["ntime.mcall", "runtime.mcal", ""]) == []


@needs_go
def test_lines_and_inlined_calls_are_those_of_the_source(tmp_path: Path) -> None:
    source = PROGRAMS / "other.go"
    table = table_of(build(tmp_path / "other", STRIPPED, source=source).read_bytes())
    only = np.array([names_of(table).index("main.(*ring).turn")])
    places = np.arange(table.start[only[0]], table.lines(only).end[-1])  # padding follows
    assert {table.file(at) for at in table.files(only).at(places).tolist()} == {str(source)}
    lines = source.read_text().splitlines()
    calls = table.inlined(only)
    (mixed,) = {table.name(at) for at in calls.name.tolist()}
    assert mixed == "main.mixed"
    of_line = table.lines(only)
    inlined = calls.number.at(places) >= 0
    words = {True: "return i*n", False: "(r *ring) turn"}
    for inside, text in words.items():
        (line,) = [number for number, source_line in enumerate(lines, 1) if text in source_line]
        assert line in of_line.at(places[inlined == inside]).tolist()
        assert line not in of_line.at(places[inlined != inside]).tolist()
    (calling,) = [number for number, text in enumerate(lines, 1) if "sum += mixed(" in text]
    assert of_line.at(calls.place).tolist() == [calling] * len(calls.place)


@needs_go
def test_frame_sizes_are_those_of_the_call_frame_information(tmp_path: Path) -> None:
    program = build(tmp_path / "whole")
    table = table_of(program.read_bytes())
    listing = subprocess.run(
        ["readelf", "--debug-dump=frames-interp", program],
        capture_output=True, text=True, check=True, errors="replace",
    ).stdout  # fmt: skip
    rows = re.findall(r"^([0-9a-f]{16}) rsp\+(\d+) ", listing, re.MULTILINE)
    address = np.array([int(at, 16) for at, _ in rows])
    size = np.array([int(size) - 8 for _, size in rows])
    code = address > 0  # the CIE's own is at 0
    assert code.sum() > 3000
    assert bool((table.frame_sizes().at(address[code]) == size[code]).all())


@needs_go
def test_a_program_without_section_headers_has_its_table(stripped: bytes) -> None:
    table = table_of(without_section_headers(stripped))
    assert names_of(table) == names_of(table_of(stripped))


@needs_go
@pytest.mark.parametrize("older", [as_go_1_16, as_go_1_2])
def test_older_versions_say_the_same(stripped: bytes, older: Callable[[bytes, int], bytes]) -> None:
    at, size = table_section(stripped)
    new = table_of(stripped)
    text = ElfView(memoryview(stripped)).sections[".text"].address
    old = table_of(with_table(stripped, older(stripped[at : at + size], text)))
    assert names_of(old) == names_of(new)
    assert (old.start == new.start).all() and (old.end == new.end).all()
    assert [column.tolist() for column in old.frame_sizes()] == [
        column.tolist() for column in new.frame_sizes()
    ]
    functions = np.arange(0, len(new.start), 7)
    assert old.lines(functions).value.tolist() == new.lines(functions).value.tolist()
    assert old.called(["main.spin"]) == new.called(["main.spin"])
    if older is as_go_1_16:
        functions = np.array([names_of(new).index("main.spin")])
    else:
        functions = np.arange(3)
    files = [[t.file(at) for at in t.files(functions).value.tolist()] for t in (old, new)]
    assert files[0] == files[1] and files[0]
    assert len(old.inlined(functions).name) == 0


def test_other_programs_have_none() -> None:
    assert go_table(ElfView(memoryview(Path("/usr/bin/env").read_bytes()))) is None


DAMAGES = {
    "is of an unknown version": (0, b"\xf9"),
    "has its functions outside": (8, struct.pack("<Q", 1 << 60)),
    "has parts outside": (32, struct.pack("<Q", 1 << 40)),
}


@needs_go
@pytest.mark.parametrize("reason", DAMAGES)
def test_a_damaged_table_has_one_reason(stripped: bytes, reason: str) -> None:
    at, _ = table_section(stripped)
    where, what = DAMAGES[reason]
    data = bytearray(stripped)
    data[at + where : at + where + len(what)] = what
    with pytest.raises(FormatError, match=reason):
        table_of(bytes(data))


def test_values_without_end_are_refused() -> None:
    one, code = np.array([1]), np.array([4096])
    for text, reason in {
        b"\0\2\1\2": "do not end",
        b"\0\2\x81\0": "cut off",
        b"\0\2\1\2\0": "no size",
        b"\0\x82\x82\x82\x82\x82\2\1\0": "too long",
    }.items():
        with pytest.raises(FormatError, match=reason):
            read_values(np.frombuffer(text, np.uint8), one, code, code + 64, 1)
    steps = read_values(np.frombuffer(b"\0\2\x10\4\x81\1\0", np.uint8), one, code, code + 64, 1)
    assert [column.tolist() for column in steps] == [[4096, 4112], [4112, 4160], [0, 2]]


def test_values_that_many_functions_share_are_bounded() -> None:
    steps = b"\0" + b"\2\1" * (1 << 16) + b"\0"
    entry = np.arange(1024) << 20
    with pytest.raises(FormatError, match="too many"):
        read_values(np.frombuffer(steps, np.uint8), np.ones(1024, np.int64), entry, entry + 64, 1)


@needs_go
def test_made_up_tables_are_refused_or_read(stripped: bytes) -> None:
    source = original("stripped", stripped)
    at, size = table_section(stripped)
    random_ = random.Random(59)
    outcomes = set()
    for number in range(MUTANTS):
        data = bytearray(mutate(source, random_) if number % 4 == 0 else stripped)
        for _ in range(random_.choice((1, 2, 20))):
            part = random_.choice((80, 80, size))
            place = at + random_.randrange(part) & ~random_.choice((0, 3, 7))
            width = random_.choice((1, 4, 8))
            value = random_.choice((*EDGES, random_.randrange(1 << 64))) & ((1 << 8 * width) - 1)
            if place + width <= len(data):
                data[place : place + width] = value.to_bytes(width, "little")
        begin = time.process_time()
        try:
            table = go_table(ElfView(memoryview(bytes(data))))
            if table is not None:
                everything(table)
            outcomes.add("read")
        except FormatError as error:
            assert "\n" not in str(error)
            outcomes.add("refused")
        assert time.process_time() - begin < SECONDS
    assert outcomes == {"read", "refused"}
