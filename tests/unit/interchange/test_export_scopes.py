"""Inlined calls and source lines in exports, compared with the database's scopes one by one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.database import Database
from hpcd.interchange.output.context_table import Detail
from hpcd.interchange.output.export_selection import ExportSelection
from hpcd.model.scope import ScopeKind
from tests.support.compiled import PROGRAM, compiled
from tests.support.exports import READERS


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples all over a program with debug information."""
    return compiled(tmp_path_factory.mktemp("export-scopes"))


def inlined_around(db: Database, scope: int) -> list[int]:
    """The inlined calls around a scope, outermost first."""
    around = []
    while scope:
        if db.scopes.kind[scope] == ScopeKind.INLINED:
            around.append(scope)
        scope = int(db.scopes.parent[scope])
    return around[::-1]


def names_of(db: Database, node: int) -> tuple[str, ...]:
    names: list[str] = []
    for step in db.cct.path(node).tolist():
        names.append(db.procedure_names[db.procedure_of_node[step]])
        around = inlined_around(db, int(db.scope_of_node[step]))
        names += [db.scopes.name[scope] for scope in around]
    return tuple(names)


@pytest.mark.parametrize("kind", READERS)
def test_inlined_calls_are_frames(database: Path, tmp_path: Path, kind: str) -> None:
    output = tmp_path / "out"
    words = ["export", str(database), "--format", kind, "-o", str(output)]
    assert main([*words, "--metric", "cpu_time"]) == 0
    exported = {path: cost for path, cost in READERS[kind](output)["cpu_time"].items() if cost}
    with hpcd.analysis.open(database) as db:
        expected: Counter[tuple[str, ...]] = Counter()
        cost = db.metrics.exclusive("cpu_time")
        for node in np.flatnonzero(cost).tolist():
            expected[names_of(db, node)] += float(cost[node])
        # Without inlined calls a path has the entry and a procedure.
        assert max(map(len, expected)) > 2
    if kind == "tau":
        # Names that TAU would read otherwise are escaped.
        expected = Counter({tuple(n.replace(" C ", " \\x43 ") for n in path): value
                            for path, value in expected.items()})  # fmt: skip
    assert exported == pytest.approx(dict(expected), abs=1e-9)


def test_speedscope_has_the_source_file_of_a_frame_if_it_is_known(
    database: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    assert main(["export", str(database), "--format", "speedscope", "-o", str(output)]) == 0
    frames = {
        frame.pop("name"): frame for frame in json.loads(output.read_text())["shared"]["frames"]
    }
    with hpcd.analysis.open(database) as db:
        lines = dict(zip(db.procedures.name, db.procedures.line.tolist(), strict=True))
    for name in ("main", "solve(Field&, int)"):
        assert frames[name] == {"file": str(PROGRAM), "line": lines[name]}
    assert {} in frames.values()


def test_frames_have_the_line_that_is_executed(database: Path) -> None:
    with hpcd.analysis.open(database) as db:
        table = ExportSelection(db).contexts(Detail.PLACE)
        scopes = db.scopes
        lines = 0
        for node in range(1, len(db.cct)):
            scope = int(db.scope_of_node[node])
            around = inlined_around(db, scope)
            context = int(table.of_node[node])
            # The innermost frame is at the statement, each one around it at the call inlined in it.
            sites = [scope, *reversed(around)]
            for site in sites:
                frame = int(table.frame[context])
                known = scopes.kind[site] != ScopeKind.INLINED or site != scope
                if site and known and scopes.file[site]:
                    assert table.frames.file[frame] == scopes.file[site]
                    assert table.frames.line[frame] == scopes.line[site]
                    lines += 1
                context = int(table.parent[context])
        assert lines > len(db.cct)
