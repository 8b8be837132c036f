"""Views with scopes, filters, hot paths; what the report makes of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.database import Database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.profile import views
from hpcd.analysis.profile.filters import Filter, matching
from hpcd.analysis.profile.formula import parse_formula
from hpcd.analysis.profile.groups import CODE_GROUPS, GROUPINGS, group_costs
from hpcd.analysis.profile.report import Outline, text_lines
from hpcd.analysis.profile.views import hot_path, make_view
from hpcd.errors import UsageError
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.identity import Event, Host, Process, Thread
from hpcd.model.scope import ScopeKind
from tests.support.call_paths import chains, database
from tests.support.random_measurements import write_measurement

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


def test_without_structure_lines_are_procedures_and_there_are_no_loops(db: Database) -> None:
    lines = make_view(db, "lines")
    assert chains(lines, db) == chains(make_view(db, "flat"), db)
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
        ("pid=7,x", "pids are numbers"),
        ("comm=nothing", "no comm nothing"),
        ("color=red", "unknown filter 'color'; expected procedure"),
        ("procedure=", "filter procedure without a value"),
        ("time=900000-", "lasts 0"),
    ],
)
def test_filters_that_fit_nothing_or_say_nothing(db: Database, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_view(db, "top-down", only=Filter.parse([text]))


def test_filters_of_ranks_add_up(ranks: Path) -> None:
    with hpcd.analysis.open(ranks) as db:
        whole = Filter().exclusive(db)
        parts = [Filter.parse([f"rank={selected}"]).exclusive(db) for selected in ("0", "1-2")]
        assert np.allclose(parts[0] + parts[1], whole)
        assert parts[0].any() and parts[1].any()
        assert np.allclose(Filter.parse(["rank=0,1-2"]).exclusive(db), whole)
        half = db.duration_ns / 2e9
        halves = [Filter.parse([f"time={interval}"]).exclusive(db) for interval in
                  (f"-{half:.9f}", f"{half:.9f}-")]  # fmt: skip
        assert np.allclose(halves[0] + halves[1], whole)


@pytest.mark.parametrize("by", GROUPINGS)
def test_groups_add_up_to_the_whole(ranks: Path, by: str) -> None:
    with hpcd.analysis.open(ranks) as db:
        whole = Filter().exclusive(db).sum(axis=1)
        groups = group_costs(db, by)
        assert np.allclose(groups.cost.sum(axis=0), whole)
        assert groups.threads.sum() == (0 if by in CODE_GROUPS else len(db.lines))
        assert len(groups.name) == len(groups.details) == len(groups.cost)
        half = db.duration_ns / 2e9
        parts = [
            group_costs(db, by, Filter.parse([f"time={text}"])).cost.sum(axis=0)
            for text in (f"-{half:.9f}", f"{half:.9f}-")
        ]
        assert np.allclose(parts[0] + parts[1], whole)


def test_groups_of_what_a_filter_leaves(ranks: Path) -> None:
    with hpcd.analysis.open(ranks) as db:
        groups = group_costs(db, "rank", Filter.parse(["rank=1-2"]))
        assert [name.split()[-1] for name in groups.name] == ["1", "2"]
        for name, cost in zip(groups.name, groups.cost, strict=True):
            own = Filter.parse([f"rank={name.split()[-1]}"]).exclusive(db)
            assert np.allclose(cost, own.sum(axis=1))
        line = db.lines[0]
        (cost,) = group_costs(db, "thread", Filter.parse([f"tid={line.tid}"])).cost
        assert np.allclose(cost, Filter.parse([f"tid={line.tid}"]).exclusive(db).sum(axis=1))
        (name,) = group_costs(db, "comm", Filter.parse([f"comm={line.process}"])).name
        assert name == line.process


@pytest.mark.parametrize("by", ["comm", "job", "host", "user", "module"])
def test_groups_are_filters(ranks: Path, path: Path, by: str) -> None:
    """Also lines and code that have no name."""
    for measured in (ranks, path):
        with hpcd.analysis.open(measured) as db:
            groups = group_costs(db, by)
            for name, cost in zip(groups.name, groups.cost, strict=True):
                only = Filter.parse([f"{by}={name}"])
                assert np.allclose(only.exclusive(db).sum(axis=1), cost), name


def test_time_without_an_end_is_the_whole(tmp_path: Path) -> None:
    """A thread waits after its end was reported, while it leaves its memory."""
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "blocked", "ns", 1.0, "blocked_time", interval=True))
    writer.add_process(Process(0, 1, 0, "", "", (), 0, 1000))
    writer.add_thread(Thread(0, 0, 1, "", 1000, 5000))
    rows = ([0, 0], [2000, 6000], [0, 0], [0, 0], [1000, 9000])
    kinds = (np.uint32, np.uint64, np.uint32, np.uint16, np.uint64)
    writer.add_records(*(np.array(*row) for row in zip(rows, kinds, strict=True)))
    writer.close()
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with hpcd.analysis.open(tmp_path / "db") as db:
        whole = Filter.parse(["time=0-"]).exclusive(db).sum(axis=1)
        assert np.allclose(whole, Filter().exclusive(db).sum(axis=1))
        assert whole[db.metrics.number("blocked_time")] == pytest.approx(10_000e-9)


def test_groups_that_wait_are_shown_and_json_has_all(
    ranks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def table(*options: str) -> dict[str, Any]:
        assert main(["report", str(ranks), "--by", "thread", "--json", *options]) == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    with hpcd.analysis.open(ranks) as db:
        count = len(db.lines)
    whole = table()
    assert (len(whole["groups"]), whole["omitted"]) == (count, 0)
    costs = [group["cost"][whole["metric"]] for group in whole["groups"]]
    part = table("--percent", str(99.9 * costs[0] / sum(costs)))
    assert 0 < len(part["groups"]) < count
    assert len(part["groups"]) + part["omitted"] == count


def test_groups_of_ranks_need_ranks(db: Database) -> None:
    with pytest.raises(UsageError, match="no process has a rank"):
        group_costs(db, "rank")


def test_a_table_of_groups(ranks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(ranks), "--by", "rank", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert [group["threads"] for group in table["groups"]] == [2, 2, 2]
    costs = [group["cost"][table["metric"]] for group in table["groups"]]
    assert costs == sorted(costs, reverse=True)
    assert main(["report", str(ranks), "--by", "rank", "--percent", "0", "--width", "80"]) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split()[:2] == ["share", table["metric"]]
    assert len(rows) == 3 and all("rank" in row for row in rows)
    assert sum(float(row.split("%")[0]) for row in rows) == pytest.approx(100, abs=0.02)
    assert main(["report", str(ranks), "--by", "rank", "--hot-path"]) == UsageError.exit_code


def test_contexts_below(db: Database) -> None:
    solve = matching(db, ["solve"])
    inside = db.cct.below(solve)
    for node in range(len(db.cct)):
        names = [
            db.procedures.name[db.procedure_of_node[ancestor]] for ancestor in db.cct.path(node)
        ]
        assert bool(inside[node]) == ("solve" in names)


def test_the_hot_path_goes_where_half_of_it_goes(db: Database) -> None:
    view = make_view(db, "top-down")
    names = [db.procedures.name[view.procedure[ancestor]] for ancestor in hot_path(view, 0)]
    assert names == ["[all]", "main", "solve", "dot"]
    view = make_view(db, "bottom-up")
    names = [db.procedures.name[view.procedure[ancestor]] for ancestor in hot_path(view, 0)]
    assert names == ["[all]", "dot", "solve", "main"]


def test_derived_metrics_are_columns_of_every_view(db: Database) -> None:
    formula = parse_formula("rest = records - 900 * cpu_time", db.metrics.names, db.metrics.units)
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
    reported = json.loads(capsys.readouterr().out)
    assert reported["derived"] == {"ms": "ms = cpu_time * 1000"} and reported["metric"] == "ms"
    pending = [reported["tree"]]
    walked = []
    while pending:
        node = pending.pop()
        pending += node["children"]
        walked.append((node["name"], node["inclusive"]["ms"], node["exclusive"]["ms"]))
    costs = ("ms inclusive (s)", "ms exclusive (s)")
    printed = [(row["name"], *(float(row[cost]) for cost in costs)) for row in rows]
    assert sorted([*printed, walked[0]]) == sorted(walked)


def test_ratios_have_no_shares(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ratio = "mean = cpu_time / records"
    assert main(["report", str(path), "--metric", ratio, "--metric", "cpu_time"]) == 0
    text = capsys.readouterr().out
    (line,) = [text_line for text_line in text.splitlines() if text_line.endswith("dot")]
    assert line.split()[-4:] == ["0.001000", "0.001000", "├", "dot"]
    assert main(["report", str(path), "--metric", "x = cpu_time ** 2"]) == UsageError.exit_code
    assert "a formula has" in capsys.readouterr().err


def test_the_hot_path_alone_is_printed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(path), "--hot-path", "--metric", "records"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[-3:]] == ["main", "solve", "dot"]


def heading(path: Path, kind: str) -> str:
    with hpcd.analysis.open(path) as db:
        outline = Outline(make_view(db, kind), 0)
        return next(text_lines(db, outline, 80))[3]


def test_the_heading_of_a_report_names_its_view(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A view of contributing.md: a name and its kinds of scope.
    monkeypatch.setitem(views._SCOPES, "procedures", (ScopeKind.INLINED,))
    titles = {kind: heading(path, kind) for kind in ("bottom-up", "flat", "lines", "procedures")}
    assert titles == {
        "bottom-up": "records, bottom-up",
        "flat": "records, flat",
        "lines": "records, source lines",
        "procedures": "records, procedures",
    }
    with hpcd.analysis.open(path) as db:
        added, usual = make_view(db, "procedures"), make_view(db, "top-down")
        assert np.array_equal(added.cost(0), usual.cost(0))
