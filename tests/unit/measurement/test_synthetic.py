"""``hpcd synth``: what it makes looks like what it was made from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.merge.stages import merge
from hpcd.array_types import U32
from hpcd.measurement.check import check_measurement
from hpcd.measurement.reader import open_measurement
from hpcd.measurement.synthetic import Shape, Synthesizer
from hpcd.measurement.synthetic_source import recorded_source
from hpcd.model.cct import CCT
from tests.support.paths import ROOT
from tests.support.random_measurements import long_measurement

RECORDINGS = ROOT / "tests/data/recordings"


def synth(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["synth", "--json", *arguments]) == 0
    printed: dict[str, object] = json.loads(capsys.readouterr().out)
    return printed


def test_sizes_are_as_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = synth(capsys, "-o", str(tmp_path / "s"), "--ranks", "10", "--ranks-per-node", "4",
                 "--records", "3000", "--contexts", "300", "--imbalance", "0.5")  # fmt: skip
    paths = sorted((tmp_path / "s").iterdir())
    assert [str(path) for path in paths] == printed["measurements"]
    assert (len(paths), printed["records"]) == (3, 30_000)
    assert all(check_measurement(path) == [] for path in paths)
    merge(paths, tmp_path / "db")
    with hpcd.analysis.open(tmp_path / "db") as db:
        assert db.lines.rank.tolist() == list(range(10))
        # Ends of intervals are entries of the trace, but no samples.
        query = "SELECT total FROM trace_line_metric WHERE metric = 0 ORDER BY trace_line"
        assert [total for (total,) in db.sql().execute(query)] == [3000] * 10
        assert 250 < len(db.cct) < 350
        busy = [len(np.unique(db.records(line).node)) for line in (0, 9)]
        assert busy[0] > busy[1]


def test_it_grows_from_a_recorded_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long_measurement(tmp_path / "m", records=5000)
    arguments = ["-o", str(tmp_path / "s"), "--scale-up", str(tmp_path / "m"), "--ranks", "3",
                 "--records", "20000", "--contexts", "200"]  # fmt: skip
    synth(capsys, *arguments)
    with (
        open_measurement(tmp_path / "m") as old,
        open_measurement(tmp_path / "s" / "node-00000") as new,
    ):
        assert new.events == old.events
        assert new.modules == old.modules
        assert 150 < len(new.cct) < 250
        gaps = [np.diff(np.concatenate([part.time_ns for part in database.record_chunks()
                                        if 0 in part.line])[:1000].astype(np.int64))
                for database in (old, new)]  # fmt: skip
        assert abs(np.median(gaps[0]) - np.median(gaps[1])) < 50_000


@pytest.mark.parametrize("name", ["mpi", "openmp", "build", "server"])
def test_what_benchmarks_grow_from_is_small_and_sound(name: str, tmp_path: Path) -> None:
    recording = RECORDINGS / name
    assert sum(path.stat().st_size for path in recording.iterdir()) < 300_000
    assert check_measurement(recording) == []
    source = recorded_source(recording)
    Synthesizer(Shape(8, 20_000, ranks_per_node=8), source).write(tmp_path / "m", 0)
    assert check_measurement(tmp_path / "m") == []
    with open_measurement(tmp_path / "m") as grown:
        events = np.concatenate([part.event for part in grown.record_chunks()])
        nodes = np.concatenate([part.node for part in grown.record_chunks()])
        frames = grown.cct.frame[nodes]
        # A recorder knows of the contexts that it has met.
        assert len(grown.cct) == len(ancestors(grown.cct, nodes))
    # As many waits as recorded, and what follows what stays as it was nearly always.
    intervals = [event.id for event in source.events if event.interval]
    assert abs(np.isin(events, intervals).mean() - np.isin(source.event, intervals).mean()) < 0.05
    before, after = (
        column[:-1] * np.uint64(31) ^ column[1:]
        for column in (source.tree.frame[source.node], frames)
    )
    assert np.isin(after, before).mean() > 0.85


def ancestors(tree: CCT, nodes: U32) -> set[int]:
    """``nodes``, and all on their paths."""
    reached, at = {0}, set(nodes.tolist())
    while at := at - reached:
        reached |= at
        at = {int(tree.parent[node]) for node in at}
    return reached


def test_what_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", "-o", str(tmp_path / "s"), "--ranks", "0"]) == 2
    assert main(["synth", "-o", str(tmp_path / "s"), "--imbalance", "2"]) == 2
    assert main(["synth", "-o", str(tmp_path)]) == 6
    assert main(["synth", "-o", str(tmp_path / "s"), "--scale-up", str(tmp_path / "none")]) == 8
    long_measurement(tmp_path / "m", records=20)
    assert main(["synth", "-o", str(tmp_path / "s"), "--scale-up", str(tmp_path / "m")]) == 2
    assert "to grow from" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()
