"""Exports read by Pipit, where it is installed: from its repository, since PyPI has no release."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.messages.database_calls import communication
from tests.support.called import ranks_that_call
from tests.support.made import TWO_RANKS, make

pipit = pytest.importorskip("pipit", reason="Pipit (hpcgroup/pipit) is not installed")
if not hasattr(pipit, "Trace"):
    pytest.skip("the installed pipit is not hpcgroup/pipit", allow_module_level=True)


def exported(database: Path, kind: str, output: Path) -> str:
    assert main(["export", str(database), "--format", kind, "-o", str(output)]) == 0
    return str(output)


def test_samples_and_messages_of_otf2(tmp_path: Path) -> None:
    database = ranks_that_call(tmp_path)
    trace = pipit.Trace.from_otf2(exported(database, "otf2", tmp_path / "out"), num_processes=1)
    with hpcd.analysis.open(database) as db:
        messages, volume = communication(db).point_to_point.dense(4)
        samples, seconds = (
            float(db.metrics.exclusive(name).sum()) for name in ("records", "cpu_time")
        )
    np.testing.assert_array_equal(trace.comm_matrix("count"), messages)
    np.testing.assert_array_equal(trace.comm_matrix("size"), volume)
    sent_and_received = trace.comm_by_process()
    np.testing.assert_array_equal(sent_and_received["Sent"], volume.sum(axis=1))
    np.testing.assert_array_equal(sent_and_received["Received"], volume.sum(axis=0))
    taken = trace.events[trace.events["Name"] == "CallingContextSample"]
    assert len(taken) == samples
    weights = [sum(output["attributes"].values()) for output in taken["Attributes"]]
    assert sum(weights) / 1e9 == pytest.approx(seconds)
    names = Counter(trace.events["Name"])
    assert names["MpiCollectiveEnd"] == 40 and names["IoOperationComplete"] == 20


def test_call_paths_over_time_of_hpctoolkit(tmp_path: Path) -> None:
    """At every record the trace is in the call path of that record, on every rank; Pipit leaves
    all frames at the last one."""
    database = make(tmp_path / "db", TWO_RANKS)
    trace = pipit.Trace.from_hpctoolkit(exported(database, "hpctoolkit", tmp_path / "out"))
    events = trace.events
    with hpcd.analysis.open(database) as db:
        began = events["Timestamp (ns)"].min() - min(
            int(db.records(line).time[0]) for line in range(len(db.lines))
        )
        for line in db.lines:
            mine = events[events["Process"] == line.rank]
            paths: dict[int, list[str]] = {}
            stack: list[str] = []
            for time, kind, name in zip(
                mine["Timestamp (ns)"], mine["Event Type"], mine["Name"], strict=True
            ):
                if kind == "Enter":
                    stack.append(name)
                else:
                    assert stack.pop() == name
                paths[int(time - began)] = stack.copy()
            times = np.array(list(paths))
            records = db.records(line.number)
            lasting = np.flatnonzero(records.value > 0)
            lasting = lasting[records.time[lasting] < times[-1]]
            assert len(lasting) > 50
            for time, node in zip(records.time[lasting], records.node[lasting], strict=True):
                at = times[np.searchsorted(times, time, "right") - 1]
                names = [db.procedure_names[db.procedure_of_node[n]] for n in db.cct.path(node)]
                assert paths[int(at)][-len(names) :] == names, (line.rank, time)
