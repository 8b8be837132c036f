"""Phases that recorded calls mark, against what walking records and calls one by one gives."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.calls.totals import total_calls
from hpcd.analysis.database import Database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.profile.filters import Filter
from hpcd.analysis.profile.groups import Groups, group_costs
from hpcd.analysis.profile.marked_phases import NO_PHASE, MarkedPhases
from hpcd.analysis.profile.time_segments import TimeSegments
from hpcd.analysis.profile.views import make_view
from hpcd.errors import UsageError
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame
from hpcd.model.calls import CalledFunction, CallValue, Group, ValueKind
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread

START, MS = 10**9, 10**6
FUNCTIONS = [
    CalledFunction(0, "solve", "/app", Group.PROBE, (CallValue("n", ValueKind.SIGNED),)),
    CalledFunction(1, "app:begin", "/app", Group.PROBE, (CallValue("step", ValueKind.NUMBER),)),
    CalledFunction(2, "app:end", "/app", Group.PROBE),
    CalledFunction(3, "write", "", Group.IO, (CallValue("written", ValueKind.BYTES, "B"),)),
]
NAMES = ["main", "solve", "io", "write"]
# Nodes: 1 main, 2 main/solve, 3 main/solve/solve, 4 main/io, 5 main/solve/write
PARENTS, FRAMES = [0, 1, 2, 1, 2], [0, 1, 1, 2, 3]

# (line, function, begin ms, length ms, node, value)
Call = tuple[int, int, float, float, int, int]
CALLS: list[Call] = [
    (0, 0, 10, 40, 2, 3),  # solve(3), and in it solve(-1)
    (0, 0, 20, 10, 3, -1),
    (0, 3, 25, 1, 3, 100),
    (0, 3, 40, 1, 5, 10),
    (0, 0, 60, 20, 2, 3),
    (0, 3, 90, 1, 4, 1000),
    (1, 1, 10, 0, 1, 7),
    (1, 1, 15, 0, 1, 8),
    (1, 2, 20, 0, 1, 0),
    (1, 2, 30, 0, 1, 0),
    (1, 2, 35, 0, 1, 0),  # ends nothing
    (1, 1, 50, 0, 1, 7),  # never ended
]


def database(folder: Path, calls: list[Call] = CALLS, weight: int = 1) -> Path:
    """Two threads of 100 ms: a sample a millisecond; the first waits from 45 to 65 ms."""
    writer = MeasurementWriter(folder / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "ns", 1e6, "cpu_time", 1000))
    writer.add_event(Event(1, "blocked", "ns", 1.0, "blocked_time", interval=True))
    writer.add_process(Process(0, 7, 1, "app", "/app", ("app",), 0, START, "job", 0, 1))
    writer.add_module(Module(1, ModuleKind.JIT, "[jit]", process=0))
    writer.add_symbols(1, [(n * 16, 16, name) for n, name in enumerate(NAMES)])
    writer.add_clock_pair(START, 2 * 10**18)
    for line in range(2):
        writer.add_thread(Thread(line, 0, 7 + line, "app", START, START + 100 * MS))
    writer.add_nodes(
        np.array(PARENTS, np.uint32),
        np.array([frame.module_frame(1, 16 * at + 1) for at in FRAMES], np.uint64),
    )
    rows = []
    for line in range(2):
        for ms in range(100):
            if line == 0 and 45 <= ms < 65:
                continue
            rows.append((line, START + ms * MS + MS // 2, _node(line, ms), 0, 1))
    rows.append((0, START + 45 * MS, 2, 1, 20 * MS))
    columns = np.array(sorted(rows), np.uint64).T
    writer.add_records(
        columns[0].astype(np.uint32), columns[1], columns[2].astype(np.uint32),
        columns[3].astype(np.uint16), columns[4],
    )  # fmt: skip
    for function in FUNCTIONS:
        writer.add_function(function)
    value = np.zeros((len(calls), 6), np.uint64)
    value[:, 0] = [call[5] % (1 << 64) for call in calls]
    table = np.array([call[:5] for call in calls]).reshape(-1, 5)
    writer.add_calls(
        Calls(
            table[:, 0].astype(np.uint32),
            (START + table[:, 2] * MS).astype(np.uint64),
            (table[:, 3] * MS).astype(np.uint64),
            table[:, 4].astype(np.uint32),
            table[:, 1].astype(np.uint16),
            np.full(len(calls), weight, np.uint32),
            value,
        )
    )
    writer.close()
    merge([folder / "m"], folder / "db", workers=1)
    return folder / "db"


def _node(line: int, ms: int) -> int:
    if line:
        return 1
    return 3 if 20 <= ms < 30 else 2 if 10 <= ms < 80 else 4


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return database(tmp_path_factory.mktemp("phases"))


def costs(db: Database, groups: Groups) -> dict[str, tuple[float, float]]:
    """CPU and blocked time in ms, by name."""
    at = [db.metrics.number(name) for name in ("cpu_time", "blocked_time")]
    return {
        name: tuple(np.round(1e3 * groups.cost[row, at], 6).tolist())
        for row, name in enumerate(groups.name)
    }


def test_time_within_calls_is_a_phase_and_the_innermost_counts(path: Path) -> None:
    with hpcd.analysis.open(path) as db:
        whole = Filter().exclusive(db).sum(axis=1)
        plain = group_costs(db, "phase=solve")
        assert costs(db, plain) == {NO_PHASE: (130, 10), "solve": (50, 10)}
        assert plain.calls is not None and plain.seconds is not None
        assert plain.calls.tolist() == [0, 3]
        assert plain.seconds.tolist() == pytest.approx(
            [0.139, 0.06]
        )  # threads end with their last sample
        by_value = group_costs(db, "phase=solve(n)")
        expected = {NO_PHASE: (130, 10), "solve n=3": (40, 10), "solve n=-1": (10, 0)}
        assert costs(db, by_value) == expected
        assert by_value.details[1]["values"] == {"n": 3}
        for groups in (plain, by_value, group_costs(db, "phase=app:begin(step)..app:end,write")):
            assert np.allclose(groups.cost.sum(axis=0), whole)
        # Chosen calls alone, with what is called within them.
        only = group_costs(db, "phase=solve(n=3)")
        assert costs(db, only)["solve n=3"] == (50, 10)


def test_two_calls_mark_a_phase_as_brackets_pair(path: Path) -> None:
    with hpcd.analysis.open(path) as db:
        paired = group_costs(db, "phase=app:begin(step)..app:end")
        assert costs(db, paired) == {
            NO_PHASE: (110, 20), "app:begin step=7": (65, 0), "app:begin step=8": (5, 0),
        }  # fmt: skip
        assert "until the end of their threads" in paired.notes[0]
        steps = group_costs(db, "phase=app:begin(step)..")
        assert costs(db, steps) == {
            NO_PHASE: (90, 20), "app:begin step=7": (55, 0), "app:begin step=8": (35, 0),
        }  # fmt: skip


def test_threads_that_mark_none_may_be_in_those_of_their_process(path: Path) -> None:
    with hpcd.analysis.open(path) as db:
        shared = group_costs(db, "phase=solve(n)@process")
        expected = {NO_PHASE: (70, 10), "solve n=3": (90, 10), "solve n=-1": (20, 0)}
        assert costs(db, shared) == expected
        assert shared.calls is not None and shared.calls.tolist() == [0, 2, 1]
        assert shared.threads.tolist() == [2, 2, 2]


def test_each_phase_can_be_named_alone(path: Path) -> None:
    with hpcd.analysis.open(path) as db:
        for text in ("solve(n)", "app:begin(step)..app:end@process", "write(written), s*lve"):
            phases = MarkedPhases(db, text)
            for name, alone in zip(phases.name[1:], phases.alone[1:], strict=True):
                assert MarkedPhases(db, alone).name == [NO_PHASE, name]


def test_phases_are_a_filter_that_goes_with_others(path: Path) -> None:
    with hpcd.analysis.open(path) as db:

        def cpu(*texts: str) -> float:
            total = Filter.parse(texts).exclusive(db)[db.metrics.number("cpu_time")].sum()
            by_rank = group_costs(db, "rank", Filter.parse(texts)).cost
            assert by_rank[:, db.metrics.number("cpu_time")].sum() == pytest.approx(total)
            return round(1e3 * float(total), 6)

        assert cpu("phase=solve") == 50
        assert cpu("phase=solve", "time=0.02-0.03") == 10
        assert cpu("phase=solve(n=-1)", "phase=app:begin..app:end") == 80
        assert cpu("phase=solve", "tid=8") == 0
        part = group_costs(db, "phase=solve(n)", Filter.parse(["time=0.025-", "tid=7"]))
        assert costs(db, part) == {NO_PHASE: (20, 10), "solve n=3": (30, 10), "solve n=-1": (5, 0)}
        assert part.calls is not None and part.calls.tolist() == [0, 2, 1]


def test_calls_are_told_by_the_phase_they_begin_in(path: Path) -> None:
    with hpcd.analysis.open(path) as db:
        totals = total_calls(db, "phase=solve(n)", [db.calls.find("write")])
        assert dict(zip(totals.name, totals.written.tolist(), strict=True)) == {
            NO_PHASE: 1000, "solve n=-1": 100, "solve n=3": 10,
        }  # fmt: skip


def test_contexts_are_split_by_a_value(path: Path) -> None:
    with hpcd.analysis.open(path) as db:
        cpu = db.metrics.number("cpu_time")
        for kind in ("top-down", "flat", "bottom-up"):
            view = make_view(db, kind, split=MarkedPhases(db, "solve(n)"))
            assert np.allclose(view.total, Filter().exclusive(db).sum(axis=1))
            names = [view.entities.label(int(at)) for at in view.procedure]
            seen = Counter[tuple[str, str]]()
            for node, name in enumerate(names):
                seen[names[view.parent[node]], name] += round(1e3 * view.exclusive[cpu, node])
            outer = "main" if kind == "top-down" else "[all]"
            assert seen[outer, "solve [n=3]"] == 40
            assert seen["solve" if kind == "top-down" else "[all]", "solve [n=-1]"] == 10
            assert seen[outer, "solve"] == 0
        steps = make_view(db, "top-down", split=MarkedPhases(db, "app:begin(step).."))
        labels = [steps.entities.label(int(at)) for at in steps.procedure]
        assert round(1e3 * steps.inclusive[cpu, labels.index("main [app:begin step=8]")]) == 35


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=24))
@settings(max_examples=60)
def test_the_innermost_is_the_one_that_began_last(spans: list[tuple[int, int]]) -> None:
    begin = np.array([at for at, _ in spans], np.int64)
    end = begin + np.array([length for _, length in spans], np.int64)
    segments = TimeSegments.innermost(begin, end, np.arange(1, len(spans) + 1))
    assert (segments.begin < segments.end).all() and (segments.end[:-1] <= segments.begin[1:]).all()
    for moment in range(45):
        around = [n for n in range(len(spans)) if begin[n] <= moment < end[n]]
        best = max(around, key=lambda n: (begin[n], -end[n], n), default=-1)
        assert segments.at(np.array([moment]))[0] == best + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slove", r"no calls of slove were recorded; did you mean solve\?"),
        ("solve(m)", "have no value m; recorded are n"),
        ("solve(n=5)", "no call of solve has n=5"),
        ("app:begin", "'app:begin..NAME' names what ends the phase"),
        ("solve(", "phase 'solve[(]': expected FUNCTION"),
        ("", "expected FUNCTION"),
        ("solve()", "expected FUNCTION"),
    ],
)
def test_what_marks_no_phase_is_refused(path: Path, text: str, message: str) -> None:
    with hpcd.analysis.open(path) as db, pytest.raises(UsageError, match=message):
        MarkedPhases(db, text)


def test_calls_that_were_not_recorded_are_noted(tmp_path: Path) -> None:
    with hpcd.analysis.open(database(tmp_path, CALLS[:1], weight=4)) as db:
        groups = group_costs(db, "phase=solve")
        assert groups.calls is not None and groups.calls[1] == 4
        assert groups.notes[0].startswith("of solve 3 calls were not recorded")


def test_the_report_has_phases(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(path), "--by", "phase=solve(n)"]) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split()[-4:] == ["threads", "calls", "time", "phase=solve(n)"]
    assert rows[0].endswith(NO_PHASE)
    assert rows[1].split()[-6:] == ["1", "2", "50.0", "ms", "solve", "n=3"]
    assert main(["report", str(path), "--by", "phase=solve(n)", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert [group["name"] for group in table["groups"]] == [NO_PHASE, "solve n=3", "solve n=-1"]
    assert table["groups"][1]["values"] == {"n": 3} and table["notes"] == []
    assert main(["report", str(path), "--split", "solve(n)", "--percent", "0"]) == 0
    assert "solve [n=-1]" in capsys.readouterr().out
    assert main(["calls", str(path), "--by", "phase=solve"]) == 0
    assert NO_PHASE in capsys.readouterr().out
    for wrong in (["--by", "colour"], ["--split", "solve", "--by", "rank"],
                  ["--split", "solve(n)", "--view", "loops"]):  # fmt: skip
        assert main(["report", str(path), *wrong]) == UsageError.exit_code
    assert main(["export", str(path), "--filter", "phase=solve", "-o", "x"]) == UsageError.exit_code
