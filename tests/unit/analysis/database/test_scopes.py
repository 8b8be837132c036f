"""Scopes in a database: stored as merge found them, checked, and damage is said."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.analysis.database.check import check_database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.profile.views import SCOPE_VIEWS, make_view
from hpcd.errors import FormatError
from hpcd.model.scope import ScopeKind
from tests.support.compiled import PROGRAM, compiled


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples all over a program with debug information."""
    return compiled(tmp_path_factory.mktemp("scopes"))


def test_every_node_has_its_innermost_scope(database: Path) -> None:
    assert not check_database(database)
    with hpcd.analysis.open(database) as db:
        scopes = db.scopes
        assert np.array_equal(np.load(database / "cct/scope.npy"), db.scope_of_node)
        kinds = {ScopeKind(kind) for kind in scopes.kind[1:].tolist()}
        assert kinds == {ScopeKind.INLINED, ScopeKind.LOOP, ScopeKind.STATEMENT}
        assert "Field::relax(double)" in scopes.name
        where = dict(zip(db.procedures.name, db.procedures.file, strict=True))
        assert where["main"] == where["solve(Field&, int)"] == str(PROGRAM)
        for kind in SCOPE_VIEWS:
            view = make_view(db, kind)
            assert view.total[0] == db.metrics.inclusive("records")[0]
            assert (view.parent[1:] < np.arange(1, len(view))).all()
            if kind != "loops":
                # No sample is lost by standing in a scope, none counted twice.
                assert view.exclusive[0].sum() == view.total[0] or kind == "bottom-up"


def test_the_database_is_the_same_with_more_workers(database: Path, tmp_path: Path) -> None:
    merge([database.parent / "m"], tmp_path / "db", workers=2)
    for name in ("hpcd.sqlite", "cct/scope.npy"):
        assert (tmp_path / "db" / name).read_bytes() == (database / name).read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE scope SET parent = id WHERE id = 2",
        "UPDATE scope SET kind = 'room' WHERE id = 1",
        "UPDATE scope SET procedure = 100000 WHERE id = 1",
        "UPDATE scope SET source_line = 'x' WHERE id = 1",
        "DELETE FROM scope WHERE id = 1",
        "DELETE FROM scope",
        "UPDATE scope SET procedure = procedure + 1",
    ],
)
def test_damaged_scopes_are_said(database: Path, tmp_path: Path, damage: str) -> None:
    copy = tmp_path / "db"
    shutil.copytree(database, copy)
    tables = sqlite3.connect(copy / "hpcd.sqlite")
    with tables:
        tables.execute(damage)
    tables.close()
    assert [finding for finding in check_database(copy) if "scope" in finding.what]
    with hpcd.analysis.open(copy) as db:
        try:
            make_view(db, "top-down")
        except FormatError as error:
            assert "scope" in str(error)
