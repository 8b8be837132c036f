"""Statistics of contexts over lines, against numpy's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.analysis.database import Database
from hpcd.analysis.merge.stages import merge
from hpcd.errors import UsageError
from tests.support.random_measurements import write_measurement


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """A small database."""
    write_measurement(tmp_path / "a", ranks=(0, 1, 2), threads=2, events=2, weighted=True)
    write_measurement(tmp_path / "b", seed=1, host="node1", ranks=(3, 4), events=2, records=20)
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "db", workers=1)
    with hpcd.analysis.open(tmp_path / "db") as opened:
        yield opened


def by_hand(db: Database, metric: str) -> np.ndarray:
    """float64[nodes, lines]: inclusive."""
    table = np.zeros((len(db.cct), len(db.lines)))
    for line in range(len(db.lines)):
        nodes, values = db.metrics.by_line(metric, line)
        own = np.zeros(len(db.cct))
        own[nodes] = values
        table[:, line] = db.cct.inclusive(own)
    return table


@pytest.mark.parametrize("metric", ["records", "cpu_time", "misses"])
def test_statistics_of_every_context(db: Database, metric: str) -> None:
    table = by_hand(db, metric)
    frame = db.frame(
        "SELECT node_statistic.* FROM node_statistic JOIN metric ON metric.id = metric"
        f" WHERE name = '{metric}'"
    ).set_index("node")
    assert frame.index.tolist() == np.flatnonzero(table.any(axis=1)).tolist()
    for node, row in frame.iterrows():
        values = table[node]
        assert row["trace_lines"] == np.count_nonzero(values)
        for name, expected in (
            ("mean", values.mean()), ("min", values.min()), ("max", values.max()),
            ("stddev", values.std()), ("cv", values.std() / values.mean()),
            ("min_trace_line", values.argmin()), ("max_trace_line", values.argmax()),
        ):  # fmt: skip
            assert row[name] == pytest.approx(expected, rel=1e-9, abs=1e-12), name


def test_one_context_over_lines_ranks_jobs_and_hosts(db: Database) -> None:
    table = by_hand(db, "cpu_time")
    ranks = db.lines.rank
    for node in range(len(db.cct)):
        assert np.allclose(db.metrics.over_lines("cpu_time", node), table[node])
        own = db.metrics.over_contexts("cpu_time", np.arange(len(db.cct)) == node)
        assert np.isclose(own.sum(), db.metrics.exclusive("cpu_time")[node])
        statistics = db.statistics("cpu_time", node, by="rank")
        expected = np.array([table[node][ranks == rank].sum() for rank in range(5)])
        assert list(statistics.name) == [str(rank) for rank in range(5)]
        assert np.allclose(statistics.value, expected)
        if expected.any():
            assert statistics.cv == pytest.approx(expected.std() / expected.mean())
        assert (statistics.most, statistics.least) == (expected.argmax(), expected.argmin())
        assert statistics.max == pytest.approx(expected.max())
        assert statistics.mean * 5 == pytest.approx(statistics.sum)
    hosts = db.statistics("cpu_time", 0, by="host")
    assert list(hosts.name) == ["node0", "node1"]
    assert hosts.sum == pytest.approx(table[0].sum())
    former = db.statistics("cpu_time", 0, by="node")
    assert (list(former.name), former.value.tolist()) == (list(hosts.name), hosts.value.tolist())
    assert list(db.statistics("cpu_time", 0, by="job").name) == ["job"]
    assert len(db.statistics("cpu_time", 0).value) == len(db.lines)
    with pytest.raises(UsageError, match="not by week"):
        db.statistics("cpu_time", 0, by="week")
