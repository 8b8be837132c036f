"""Databases as pandas and Arrow tables, Hatchet and Thicket trees; and the documented examples."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest

import hpcd.analysis
import hpcd.interchange
from hpcd.analysis.database import Database
from hpcd.analysis.profile.filters import Filter
from hpcd.errors import PlatformError, UsageError
from hpcd.interchange.tables.data_frames import TABLES
from tests.support.made import TWO_RANKS, make
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks that compute and wait, with a helper thread each."""
    path = tmp_path_factory.mktemp("frames") / "db"
    return make(path, TWO_RANKS, helper=True, weight=2)


@pytest.fixture
def db(database: Path) -> Database:
    return hpcd.analysis.open(database)


def totals(db: Database, filters: list[str]) -> dict[str, float]:
    exclusive = Filter.parse(filters).exclusive(db)
    return dict(zip(db.metrics.names, exclusive.sum(axis=1).tolist(), strict=True))


@pytest.mark.parametrize("filters", [[], ["rank=1"], ["time=0.05-0.3"]], ids=" ".join)
@pytest.mark.parametrize("table", ["costs", "trace"])
def test_tables_add_up_to_the_reports_totals(db: Database, table: str, filters: list[str]) -> None:
    frame = hpcd.interchange.pandas_frame(db, table, filters)
    arrow = hpcd.interchange.arrow_table(db, table, filters)
    assert len(frame) == arrow.num_rows > 0
    for metric, total in totals(db, filters).items():
        assert frame[metric].sum() == pytest.approx(total)
        assert sum(arrow[metric].to_pylist()) == pytest.approx(total)


@pytest.mark.parametrize("table", TABLES)
def test_pandas_and_arrow_have_the_same_rows(db: Database, table: str) -> None:
    frame = hpcd.interchange.pandas_frame(db, table)
    arrow = hpcd.interchange.arrow_table(db, table)
    assert list(frame.columns) == arrow.column_names
    for name in frame.columns:
        values = [None if value is None or value != value else value for value in frame[name]]
        ranks = name == "rank"
        assert [None if ranks and str(v) == "<NA>" else v for v in values] == arrow[
            name
        ].to_pylist()


def test_the_documented_columns_are_those_there_are(db: Database) -> None:
    page = (ROOT / "docs/python.md").read_text()
    for table in TABLES:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{table}` |"))
        named = [word for word in row.split("`")[1::2] if word != table]
        columns = [
            name for name in hpcd.interchange.pandas_frame(db, table).columns
            if name not in db.metrics.names or table == "metrics"
        ]  # fmt: skip
        assert named == columns


def test_arrow_batches_are_made_as_they_are_read(db: Database) -> None:
    reader = hpcd.interchange.arrow_batches(db, "trace", metrics=["cpu_time"])
    first = reader.read_next_batch()
    assert 0 < first.num_rows < reader.read_all().num_rows + first.num_rows
    assert first.schema.field("cpu_time").metadata == {b"unit": b"s"}


def test_what_there_is_not_is_said_in_one_line(db: Database) -> None:
    with pytest.raises(UsageError, match="did you mean costs"):
        hpcd.interchange.pandas_frame(db, "cots")
    with pytest.raises(UsageError, match="no metric"):
        hpcd.interchange.arrow_table(db, "costs", metrics=["cycles"])
    with pytest.raises(AttributeError):
        hpcd.analysis.no_such_name  # noqa: B018


def test_a_missing_library_is_named(db: Database) -> None:
    script = (
        "import sys; sys.modules['hatchet'] = None\n"
        "import hpcd.analysis as a, hpcd.interchange as i\n"
        "from hpcd.errors import PlatformError\n"
        f"db = a.open({str(db.path)!r})\n"
        "try: i.graph_frame(db)\n"
        "except PlatformError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "a GraphFrame needs hatchet: pip install llnl-hatchet\n"
    assert PlatformError.exit_code == 5


@pytest.mark.parametrize("by_line", [False, True])
def test_hatchet_has_each_metric_exclusive_and_inclusive(db: Database, by_line: bool) -> None:
    frame = hpcd.interchange.graph_frame(db, by_line=by_line)
    assert frame.exc_metrics == db.metrics.names
    table = frame.dataframe.reset_index()
    for metric, total in totals(db, []).items():
        assert table[metric].sum() == pytest.approx(total)
        root = table[table["name"] == "[all]"]
        assert root[f"{metric} (inc)"].sum() == pytest.approx(total)
    if by_line:
        assert frame.dataframe.index.names == ["node", "rank", "thread"]
        of_rank = table[(table["rank"] == 1) & (table["name"] == "[all]")]
        wanted = totals(db, ["rank=1"])["cpu_time"]
        assert of_rank["cpu_time (inc)"].sum() == pytest.approx(wanted)
        frame.drop_index_levels(np.sum)
        assert frame.dataframe["cpu_time"].sum() == pytest.approx(totals(db, [])["cpu_time"])
    # Hatchet's own sums over the tree are ours.
    own = frame.dataframe["cpu_time (inc)"].to_dict()
    if not by_line:
        frame.update_inclusive_columns()
        assert frame.dataframe["cpu_time (inc)"].to_dict() == pytest.approx(own)


def test_hatchet_finds_call_paths(db: Database) -> None:
    frame = hpcd.interchange.graph_frame(db, metrics=["cpu_time"])
    selected = frame.filter(lambda row: row["name"] == "dot" and row["cpu_time"] > 0.2)
    assert [node.frame["name"] for node in selected.dataframe.index if
            selected.dataframe.loc[node, "cpu_time"] > 0.2] == ["dot"]  # fmt: skip
    paths = {tuple(node.frame["name"] for node in path)
             for node in frame.graph.traverse() for path in [node.path()]}  # fmt: skip
    assert ("[all]", "main", "solve", "dot", "solve", "dot") in paths


def test_a_thicket_has_a_profile_for_each_run(db: Database, database: Path) -> None:
    other = hpcd.analysis.open(database)
    runs = hpcd.interchange.thicket([db, other], metrics=["cpu_time"])
    per_run = runs.dataframe["cpu_time"].groupby(level="profile").sum()
    assert per_run.tolist() == pytest.approx([totals(db, [])["cpu_time"]] * 2)
    assert runs.metadata["ranks"].tolist() == [2, 2]
    with pytest.raises(UsageError):
        hpcd.interchange.thicket([])


@pytest.mark.parametrize(
    ("script", "databases", "says"),
    [("hottest.py", 1, "main > solve > dot"), ("ranks.py", 1, "cpu_time"), ("runs.py", 2, "solve")],
)
def test_the_documented_scripts_run(database: Path, script: str, databases: int, says: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs/examples" / script, *[str(database)] * databases],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


def test_the_notebook_runs(database: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(ROOT / "docs/analysis.ipynb", as_version=4)
    nbformat.validate(notebook)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) > 3
    script = tmp_path / "notebook.py"
    script.write_text("\n\n".join(cells))
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "DB": str(database), "MPLBACKEND": "agg"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
