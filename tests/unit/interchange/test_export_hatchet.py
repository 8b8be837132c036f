"""Exports read by Hatchet's own readers: costs by procedure, and inclusive ones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import hatchet
import pytest

import hpcd.analysis
import hpcd.interchange
from hpcd.__main__ import main
from hpcd.analysis.database import Database
from hpcd.analysis.merge.stages import merge
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.identity import Event, Host
from tests.support.made import TWO_RANKS, make


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Database:
    path = tmp_path_factory.mktemp("hatchet") / "db"
    return hpcd.analysis.open(make(path, TWO_RANKS, weight=2))


def exported(db: Database, tmp_path: Path, kind: str) -> Path:
    output = tmp_path / "out"
    assert main(["export", str(db.path), "--format", kind, "-o", str(output)]) == 0
    return output


def costs(frame: Any, metric: str) -> Counter[str]:
    """Exclusive costs by procedure, of what a reader made."""
    table = frame.dataframe.reset_index()
    sums: Counter[str] = Counter()
    for name, cost in zip(table["name"], table[metric], strict=True):
        # TAU's names have " [{file} ...]" after them, HPCToolkit's places "file:line".
        sums[str(name).split(" [{")[0]] += float(cost)
    return +sums


def wanted(db: Database, metric: str) -> Counter[str]:
    sums: Counter[str] = Counter()
    for node, cost in enumerate(db.metrics.exclusive(metric).tolist()):
        sums[db.procedure_names[db.procedure_of_node[node]]] += cost
    return +sums


def test_the_literal_form(db: Database, tmp_path: Path) -> None:
    literal = json.loads(exported(db, tmp_path, "hatchet").read_text())
    frame = hatchet.GraphFrame.from_literal(literal)
    ours = hpcd.interchange.graph_frame(db)
    assert len(frame.graph) == len(ours.graph)
    assert "0.520 [all]" in frame.tree(metric_column="time (inc)")
    assert "0.420 dot" in frame.tree()
    assert costs(frame, frame.default_metric) == pytest.approx(wanted(db, "cpu_time"))
    for metric in db.metrics.names:
        assert costs(frame, metric) == pytest.approx(wanted(db, metric))
        inclusive = sorted(frame.dataframe[f"{metric} (inc)"])
        assert inclusive == pytest.approx(sorted(ours.dataframe[f"{metric} (inc)"]))


def test_tau_profiles(db: Database, tmp_path: Path) -> None:
    frame = hatchet.GraphFrame.from_tau(str(exported(db, tmp_path, "tau")))
    # Hatchet's own names of TAU's metrics; times in µs.
    columns = {"cpu_time": ("time", 1e-6), "blocked_time": ("BLOCKED_TIME", 1e-6)}
    for metric, (column, unit) in {**columns, "records": ("RECORDS", 1)}.items():
        read = {name: cost * unit for name, cost in costs(frame, column).items()}
        assert read == pytest.approx(wanted(db, metric))


def test_an_hpctoolkit_database(db: Database, tmp_path: Path) -> None:
    """CPU time alone: of a database with several metrics Hatchet mistakes which is which."""
    output = tmp_path / "out"
    command = ["export", str(db.path), "--format", "hpctoolkit", "--metric", "cpu_time"]
    assert main([*command, "-o", str(output)]) == 0
    frame = hatchet.GraphFrame.from_hpctoolkit_latest(str(output))
    (root,) = frame.graph.roots
    total = float(frame.dataframe.loc[root, frame.inc_metrics[0]].sum())
    assert total == pytest.approx(sum(wanted(db, "cpu_time").values()))


def test_an_hpctoolkit_database_without_samples(tmp_path: Path) -> None:
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "ns", 1e6, "cpu_time", 1000))
    writer.add_clock_pair(10**9, 2 * 10**18)
    writer.close()
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with Database(tmp_path / "db") as db:
        output = exported(db, tmp_path, "hpctoolkit")
    frame = hatchet.GraphFrame.from_hpctoolkit_latest(str(output))
    assert frame.dataframe["time (inc)"].tolist() == [0.0]
