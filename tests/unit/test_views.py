"""Views with scopes, filters, hot paths; what the report makes of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.database import Database
from hpcd.analysis.filters import Filter, below, matching
from hpcd.analysis.formula import parse_formula
from hpcd.analysis.merge import merge
from hpcd.analysis.views import bottom_up, flat, hot_path, make_view, top_down
from hpcd.errors import UsageError
from tests.unit.test_merge import write_measurement
from tests.unit.test_report import chains, database

SAMPLES = [
    ((("main", 1), ("solve", 1), ("dot", 1)), 60),
    ((("main", 1), ("solve", 2), ("wait", 1)), 10),
    ((("main", 2), ("wait", 1), ("schedule", 1)), 25),
    ((("main", 3), ("fib", 1), ("fib", 2)), 5),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return database(tmp_path_factory.mktemp("views"), SAMPLES)


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    with hpcd.analysis.open(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    write_measurement(folder / "m", ranks=(0, 1, 2), threads=2, events=2)
    merge([folder / "m"], folder / "db")
    return folder / "db"


def test_without_structure_views_are_those_of_procedures(db: Database) -> None:
    for kind, plain in (("top-down", top_down), ("flat", flat), ("bottom-up", bottom_up)):
        assert chains(make_view(db, kind), db) == chains(plain(db), db)
    lines = make_view(db, "lines")
    assert chains(lines, db) == chains(flat(db), db)
    with pytest.raises(UsageError, match="no loops are known"):
        make_view(db, "loops")


def test_filters_of_procedures_and_modules(db: Database) -> None:
    def samples(*texts: str) -> float:
        return float(make_view(db, "top-down", only=Filter.parse(texts)).total[0])

    assert samples("procedure=solve") == 70
    assert samples("procedure=wait") == 35
    assert samples("procedure=wait", "procedure=fib") == 40
    assert samples("procedure=so*", "procedure=di?") == 70
    assert samples("module=*kernel*") == 25
    assert samples("procedure=solve", "module=*kernel*") == 0
    # A thread's record is where it was when the window opened, too.
    assert samples("time=0-0.0305") in (30, 31)
    assert samples("time=0-0.02", "time=0.01-0.0305") in (30, 31)
    assert samples("time=0.05-") == pytest.approx(50, abs=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("procedure=nobody", "no procedure nobody$"),
        ("procedure=slove", r"no procedure slove; did you mean solve\?"),
        ("procedure=FI", r"no procedure FI; did you mean fib\?"),
        ("module=nothing", "no module nothing"),
        ("rank=7", "no such rank"),
        ("rank=x", "ranks are numbers"),
        ("rank=3-1", "ranks are numbers"),
        ("time=2-1", "ends before"),
        ("time=1", "BEGIN-END"),
        ("time=.-.", "BEGIN-END"),
        ("color=red", "procedure="),
        ("procedure=", "procedure="),
    ],
)
def test_filters_that_fit_nothing_or_say_nothing(db: Database, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_view(db, "top-down", only=Filter.parse([text]))


def test_filters_of_ranks_add_up(ranks: Path) -> None:
    with hpcd.analysis.open(ranks) as db:
        whole = Filter().exclusive(db)
        parts = [Filter.parse([f"rank={each}"]).exclusive(db) for each in ("0", "1-2")]
        assert np.allclose(parts[0] + parts[1], whole)
        assert parts[0].any() and parts[1].any()
        assert np.allclose(Filter.parse(["rank=0,1-2"]).exclusive(db), whole)
        half = db.duration_ns / 2e9
        halves = [Filter.parse([f"time={each}"]).exclusive(db) for each in
                  (f"-{half:.9f}", f"{half:.9f}-")]  # fmt: skip
        assert np.allclose(halves[0] + halves[1], whole)


def test_contexts_below(db: Database) -> None:
    solve = matching(db, ["solve"])
    inside = below(db.cct, solve)
    for node in range(len(db.cct)):
        names = [db.procedures.name[db.procedure_of_node[each]] for each in db.cct.path(node)]
        assert bool(inside[node]) == ("solve" in names)


def test_the_hot_path_goes_where_half_of_it_goes(db: Database) -> None:
    view = make_view(db, "top-down")
    names = [db.procedures.name[view.procedure[each]] for each in hot_path(view, 0)]
    assert names == ["[all]", "main", "solve", "dot"]
    view = make_view(db, "bottom-up")
    names = [db.procedures.name[view.procedure[each]] for each in hot_path(view, 0)]
    assert names == ["[all]", "dot", "solve", "main"]


def test_derived_metrics_are_columns_of_every_view(db: Database) -> None:
    formula = parse_formula("rest = samples - 900 * cpu_time", db.metrics.names, db.metrics.units)
    for kind in ("top-down", "flat", "bottom-up", "lines"):
        view = make_view(db, kind, derived=[formula])
        for costs in (view.inclusive, view.exclusive):
            cpu = db.metrics.number("cpu_time")
            assert np.allclose(costs[-1], costs[0] - 900 * costs[cpu])


def test_rows_of_csv_say_what_the_tree_says(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["report", str(path), "--percent", "0", "--metric", "ms = cpu_time * 1000"]
    assert main([*options, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert main([*options, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["derived"] == {"ms": "ms = cpu_time * 1000"} and told["metric"] == "ms"
    pending = [told["tree"]]
    found = []
    while pending:
        node = pending.pop()
        pending += node["children"]
        found.append((node["name"], node["inclusive"]["ms"], node["exclusive"]["ms"]))
    costs = ("ms inclusive (s)", "ms exclusive (s)")
    printed = [(row["name"], *(float(row[each]) for each in costs)) for row in rows]
    assert sorted([*printed, found[0]]) == sorted(found)


def test_ratios_have_no_shares(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ratio = "mean = cpu_time / samples"
    assert main(["report", str(path), "--metric", ratio, "--metric", "cpu_time"]) == 0
    text = capsys.readouterr().out
    (line,) = [each for each in text.splitlines() if each.endswith("dot")]
    assert line.split()[-4:] == ["0.001", "0.001", "├", "dot"]
    assert main(["report", str(path), "--metric", "x = cpu_time ** 2"]) == UsageError.exit_code
    assert "a formula has" in capsys.readouterr().err


def test_the_hot_path_alone_is_printed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(path), "--hot-path", "--metric", "samples"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [each.split()[-1] for each in lines[-3:]] == ["main", "solve", "dot"]
