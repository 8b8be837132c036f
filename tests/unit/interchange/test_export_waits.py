"""Tests that exports of traces have the waits that were recorded one by one, with their wakers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcd.__main__ import main
from tests.support.perfetto_rules import parsed
from tests.support.waiting_threads import threads_that_wait

_HOLDER = "app 100 · holder 101"
# tid, begin, end (ms), who ended it
_WAITS = [
    (100, 20.0, 80.0, _HOLDER),
    (101, 40.0, 60.0, "an interrupt of nvme0q1"),
    (102, 10.0, 30.0, "a thread that is not recorded"),
    (102, 35.0, 50.0, "sshd 70, which is not recorded"),
    (102, 60.0, 90.0, "a timer: it asked to sleep"),
]


@pytest.fixture(scope="module")
def waits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of threads that wait for one another."""
    return threads_that_wait(tmp_path_factory.mktemp("waits"))


def exported(database: Path, kind: str, output: Path, *options: str) -> Path:
    words = ["export", str(database), "--format", kind, "-o", str(output), *options]
    assert main(words) == 0
    return output


class PerfettoEvents:
    """The events of a trace, each as (tid, ms, name), by their types; times since the origin."""

    def __init__(self, path: Path) -> None:
        trace = parsed(path)
        origin = trace.packet[0].clock_snapshot.clocks[0].timestamp
        tracks = {
            packet.track_descriptor.uuid: packet.track_descriptor
            for packet in trace.packet
            if packet.HasField("track_descriptor")
        }
        self.slices: list[tuple[int, float, float, str]] = []
        self.flows: dict[int, list[tuple[int, float, str]]] = {}
        self.ends: dict[int, list[tuple[int, float, str]]] = {}
        open_slices: dict[int, tuple[float, str]] = {}
        for packet in trace.packet:
            if not packet.HasField("track_event"):
                continue
            event, time = packet.track_event, (packet.timestamp - origin) / 1e6
            track = tracks[event.track_uuid]
            assert track.name == "waits"
            tid = tracks[track.parent_uuid].thread.tid
            if event.type == event.TYPE_SLICE_BEGIN:
                open_slices[event.track_uuid] = time, event.name
            elif event.type == event.TYPE_SLICE_END:
                self.slices.append((tid, *_reordered(open_slices.pop(event.track_uuid), time)))
            for flow in event.flow_ids:
                self.flows.setdefault(flow, []).append((tid, time, event.name))
            for flow in event.terminating_flow_ids:
                self.ends.setdefault(flow, []).append((tid, time, event.name))
                assert event.track_uuid in open_slices  # inside of the wait
        assert not open_slices


def _reordered(begun: tuple[float, str], end: float) -> tuple[float, float, str]:
    return begun[0], end, begun[1]


def test_perfetto_has_slices_and_flows_from_wakers(waits: Path, tmp_path: Path) -> None:
    events = PerfettoEvents(exported(waits, "perfetto", tmp_path / "out"))
    assert events.slices == [(*wait[:3], f"wait: {wait[3]}") for wait in _WAITS]
    (flow,) = events.flows
    assert events.flows == {flow: [(101, 80.0, "wakes app 100")]}
    assert events.ends == {flow: [(100, 80.0, f"woken by {_HOLDER}")]}


def test_a_waker_that_is_not_exported_is_named_without_a_flow(waits: Path, tmp_path: Path) -> None:
    """Nor is a wait that a window cuts exported."""
    only = ["--filter", "tid=100", "--filter", "time=0-0.085"]
    events = PerfettoEvents(exported(waits, "perfetto", tmp_path / "out", *only))
    assert events.slices == [(100, 20.0, 80.0, f"wait: {_HOLDER}")]
    assert not events.flows and not events.ends
    only = ["--filter", "time=0-0.07"]
    events = PerfettoEvents(exported(waits, "perfetto", tmp_path / "cut", *only))
    assert events.slices == [(*wait[:3], f"wait: {wait[3]}") for wait in _WAITS if wait[2] < 70]


def test_firefox_has_markers_with_the_waker_and_its_stack(waits: Path, tmp_path: Path) -> None:
    profile = json.loads(exported(waits, "firefox", tmp_path / "out").read_text())
    shared = profile["shared"]
    (schema,) = profile["meta"]["markerSchema"]
    assert {"marker-chart", "marker-table"} <= set(schema["display"])
    markers, stacks = [], []
    for thread in profile["threads"]:
        marks = thread["markers"]
        assert {len(column) for name, column in marks.items() if name != "length"} == {
            marks["length"]
        }
        for begin, end, name, data in zip(
            marks["startTime"], marks["endTime"], marks["name"], marks["data"], strict=True
        ):
            assert shared["stringArray"][name] == "wait"
            assert data["type"] == schema["name"]
            markers.append((thread["tid"], begin, end, data["waker"]))
            if "cause" in data:
                stacks.append((begin, data["cause"]["time"], _frames(shared, data["cause"])))
    assert markers == _WAITS
    assert stacks == [(20.0, 80.0, ["main", "unlock"])]


def _frames(shared: dict[str, Any], cause: dict[str, Any]) -> list[str]:
    """Names of the frames of a stack, the outermost first."""
    stack, names = cause["stack"], []
    table, frames, functions = shared["stackTable"], shared["frameTable"], shared["funcTable"]
    while True:
        function = frames["func"][table["frame"][stack]]
        names.append(shared["stringArray"][functions["name"][function]])
        if not table["prefixOffset"][stack]:
            break
        stack -= table["prefixOffset"][stack]
    return names[::-1]
