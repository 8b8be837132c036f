"""Names, lines, inlined calls and loops of programs in Rust and Go, against their sources."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.structure import ScopeKind, StructureReader
from hpcd.analysis.structure.structure_cache import StructureCache
from tests.support.paths import ROOT

PROGRAMS = ROOT / "tests/programs"
# How it is compiled; the source; the procedure's symbol has that in it.
LANGUAGES = {
    "rust": (["rustc", "-O", "-g"], "other.rs", "4Grid5relax"),
    "go": (["go", "build"], "other.go", "main.(*ring).turn"),
}
# Names, and what is in the line each is told by: of an inlined procedure, that of the call.
TOLD = {
    "rust": {
        "other::field::Grid::relax": "pub fn relax",
        "other::field::damped": "*value = damped(",
        "loop": "for value in",
    },
    "go": {
        "main.(*ring).turn": "func (r *ring) turn",
        "main.mixed": "sum += mixed(",
        "loop": "for i := 0",
    },
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_method_has_its_name_its_loop_and_what_was_inlined(tmp_path: Path, language: str) -> None:
    command, name, symbol = LANGUAGES[language]
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} here")
    source, program = PROGRAMS / name, tmp_path / "program"
    subprocess.run([*command, "-o", str(program), str(source)], check=True)
    listing = subprocess.run(
        ["nm", "-S", program], capture_output=True, text=True, check=True
    ).stdout
    (row,) = [line.split() for line in listing.splitlines() if symbol in line]
    low, size = int(row[0], 16), int(row[1], 16)
    with StructureReader(StructureCache(tmp_path / "cache"), workers=1) as reader:
        structure = reader.structure(program, np.arange(low, low + size, dtype=np.uint64))
    forest = structure.forest
    assert not structure.notes and bool((structure.scope >= 0).all())
    scopes = [scope for scope in range(len(forest)) if forest.kind[scope] != ScopeKind.STATEMENT]
    places = {forest.label(scope): forest.place(scope) for scope in scopes}
    lines = source.read_text().splitlines()
    for label, words in TOLD[language].items():
        (line,) = [number for number, text in enumerate(lines, 1) if words in text]
        assert places[label] == (str(source), line)
