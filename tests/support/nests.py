"""The loops of tests/programs/nests.c, as its comments say and as they are found."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np

from hpcd.analysis.structure import ScopeKind, StructureReader
from hpcd.analysis.structure.structure_cache import StructureCache
from tests.support.paths import ROOT

PROGRAM = ROOT / "tests/programs/nests.c"
_COMMENT = re.compile(r"// loop (\w+)(?: in (\w+))?(, gone)?$")


class Truth:
    """Loops by name: ``lines`` any of which names it, ``parent`` the loop around it or ""."""

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}
        self.parent: dict[str, str] = {}
        self.gone: set[str] = set()
        """Those that optimisation may remove."""
        for number, text in enumerate(PROGRAM.read_text().splitlines(), 1):
            match = _COMMENT.search(text)
            if match:
                name = match[1]
                self.lines[number] = name
                self.parent[name] = match[2] or ""
                if match[3]:
                    self.gone.add(name)


TRUTH = Truth()


def nests(path: Path) -> dict[tuple[str, str], int]:
    """How many scopes each (loop, loop around it) of a compiled program has."""
    with (
        tempfile.TemporaryDirectory() as folder,
        StructureReader(StructureCache(Path(folder)), workers=1) as reader,
    ):
        structure = reader.everything(path)
    assert not structure.notes
    forest = structure.forest
    pairs: dict[tuple[str, str], int] = {}

    def name(scope: int) -> str:
        file, line = forest.place(scope)
        assert file in (str(PROGRAM), ""), file
        return TRUTH.lines.get(line, f"line {line}")

    for scope in np.flatnonzero(forest.kind == ScopeKind.LOOP).tolist():
        around = [
            ancestor
            for ancestor in forest.path(scope)[1:]
            if forest.kind[ancestor] == ScopeKind.LOOP
        ]
        pair = name(scope), name(around[0]) if around else ""
        pairs[pair] = pairs.get(pair, 0) + 1
    return pairs
