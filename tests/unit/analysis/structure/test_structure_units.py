"""Some compile units of a program say what all of them say, of the addresses they are asked for."""

from __future__ import annotations

import random
import subprocess
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.structure import reader_worker
from hpcd.analysis.structure.dwarf import compile_units
from hpcd.analysis.structure.dwarf.debug_scopes import ModuleLines
from hpcd.array_types import U64
from hpcd.elf.elf_file import ElfFile
from hpcd.errors import FormatError
from tests.support.paths import ROOT

INLINED = ROOT / "tests/programs/inlined.cpp"
OTHER = "int {name}(int x) {{ return x + {n}; }}\n"


@pytest.fixture(scope="module", params=["none", "zlib"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One big unit between two small ones; debug information as it is, and compressed."""
    folder = tmp_path_factory.mktemp("units")
    for number, name in enumerate(("before", "after")):
        (folder / f"{name}.cpp").write_text(OTHER.format(name=name, n=number))
    sources = [folder / "before.cpp", INLINED, folder / "after.cpp"]
    command = [
        "g++",
        "-g",
        f"-gz={request.param}",
        "-O2",
        *map(str, sources),
        "-o",
        str(folder / "program"),
    ]
    subprocess.run(command, check=True)
    return folder / "program"


def addresses_of(program: Path, name: str) -> U64:
    """Those of a procedure."""
    listing = subprocess.run(
        ["nm", "-SC", program], capture_output=True, text=True, check=True
    ).stdout
    (row,) = [line.split() for line in listing.splitlines() if line.split()[-1] == name]
    return np.arange(int(row[0], 16), int(row[0], 16) + int(row[1], 16), dtype=np.uint64)


def lines_of(program: Path, wanted: U64 | None) -> ModuleLines:
    with program.open("rb") as file:
        return reader_worker.lines(file.fileno(), program.name, wanted)


def told(lines: ModuleLines, addresses: U64) -> list[list[tuple[str, str, int]]]:
    forest = lines.forest
    return [
        [(forest.label(ancestor), *forest.place(ancestor)) for ancestor in forest.path(int(scope))]
        for scope in lines.scope_of(addresses)
    ]


@pytest.fixture(autouse=True)
def few_units_are_worth_leaving_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_units, "_WORTH", 1)


def test_units_that_are_not_asked_for_are_left_out(program: Path) -> None:
    whole = lines_of(program, None)
    names = ("before(int)", "after(int)", "main")
    before, after, main = (addresses_of(program, name) for name in names)
    first = lines_of(program, before)
    assert not first.known.is_everything and first.known.holds(before).all()
    assert not first.known.holds(main).any() and not first.known.holds(after).any()
    assert told(first, before) == told(whole, before)
    assert len(first.forest) < len(whole.forest) / 2
    both = first.with_others(lines_of(program, after))
    for addresses in (before, after):
        assert both.known.holds(addresses).all()
        assert told(both, addresses) == told(whole, addresses)
    assert set(both.scope_of(main).tolist()) == {-1}
    # Between the units there is nothing, and that is known then.
    gap = np.ones(1, np.uint64)
    nothing = lines_of(program, gap)
    assert nothing.known.holds(gap).all() and set(nothing.scope_of(gap).tolist()) == {-1}


def test_procedures_that_are_not_asked_for_are_left_out_of_big_units(program: Path) -> None:
    whole = lines_of(program, None)
    main = addresses_of(program, "main")
    some = lines_of(program, main)
    assert not some.known.is_everything and some.known.holds(main).all()
    assert told(some, main) == told(whole, main)
    assert len(some.forest) < len(whole.forest) / 2
    # What was left out is there when it is asked for, beside what was known before.
    every = whole.start[:-1]
    outside = every[~some.known.holds(every)]
    assert len(outside) > 100
    for selected in (outside[::2], outside):
        some = some.with_others(lines_of(program, selected))
        assert some.known.holds(selected).all()
    assert told(some, every) == told(whole, every)


def test_damaged_units_are_left_as_they_are(program: Path, tmp_path: Path) -> None:
    wanted = addresses_of(program, "main")
    with ElfFile.open(program) as elf:
        sections = [
            section for section in elf.sections if section.name in (".debug_info", ".debug_abbrev")
        ]
    data = program.read_bytes()
    chance = random.Random(1)
    path = tmp_path / "damaged"
    for _ in range(100):
        damaged = bytearray(data)
        section = chance.choice(sections)
        for _ in range(3):
            at = section.offset + chance.randrange(section.size)
            damaged[at] = chance.randrange(256)
        path.write_bytes(damaged)
        # What is compressed has a checksum, too.
        with path.open("rb") as file, ElfFile.open(path) as elf, suppress(FormatError):
            _, covered = compile_units.some_units(file.fileno(), elf, wanted)
            assert covered.is_everything or covered.holds(wanted).all()


def test_ranges_that_contradict_each_other_are_not_believed(program: Path, tmp_path: Path) -> None:
    wanted = addresses_of(program, "before(int)")
    with ElfFile.open(program) as elf:
        (section,) = [section for section in elf.sections if section.name == ".debug_aranges"]
    data = bytearray(program.read_bytes())
    for at in range(section.offset, section.offset + section.size, 3):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        path = tmp_path / "damaged"
        path.write_bytes(damaged)
        with path.open("rb") as file, ElfFile.open(path) as elf:
            _, covered = compile_units.some_units(file.fileno(), elf, wanted)
        assert covered.is_everything or covered.holds(wanted).all()
