"""Recorded calls in OTF2 exports, as others' readers show them: messages, collectives, files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import otf2
import pytest

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.calls.totals import UNKNOWN, total_calls
from hpcd.analysis.database.check import check_database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.messages.database_calls import communication
from hpcd.interchange.otf2 import otf2_files
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.calls import CalledFunction, CalledObject, CallValue, Group, ValueKind
from hpcd.model.identity import Event, Host, Process, Thread
from tests.support.called import ranks_that_call
from tests.support.imported import imported
from tests.support.otf2_calls import ArchivedCalls, read_otf2_calls
from tests.support.perfetto_rules import parsed

WORLD = "MPI_COMM_WORLD"
RANKS, ROUNDS = 4, 10


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ranks_that_call(tmp_path_factory.mktemp("called"), ranks=RANKS, rounds=ROUNDS)


def exported(database: Path, output: Path, *options: str) -> Path:
    assert main(["export", str(database), "--format", "otf2", "-o", str(output), *options]) == 0
    return output


def by_file(database: Path) -> dict[tuple[str, str], list[int]]:
    """Operations of ``hpcd calls --io --by file`` that move bytes, as the archive has them."""
    with hpcd.analysis.open(database) as db:
        sums = {}
        for name, mode in (("read", "READ"), ("written", "WRITE")):
            functions = [
                function for function in db.calls.of_group("io")
                if any(value.name in (name, "moved") for value in function.values)
            ]  # fmt: skip
            totals = total_calls(db, "file", functions)
            for at, file in enumerate(totals.name):
                if volume := int(getattr(totals, name)[at]):
                    sums[file, mode] = [int(totals.calls[at]), volume]
        return sums


def test_phases_are_in_traces(database: Path, tmp_path: Path) -> None:
    """Rank 2 works from 20 to 25 ms of each round."""
    wanted = [("work n=3", 100 * turn + 20, 100 * turn + 25) for turn in range(ROUNDS)]
    paths = {}
    for kind in ("firefox", "perfetto", "otf2"):
        paths[kind] = tmp_path / kind
        options = ["--format", kind, "-o", str(paths[kind]), "--phases", "work(n)"]
        assert main(["export", str(database), *options]) == 0
    profile = json.loads(paths["firefox"].read_text())
    names = profile["shared"]["stringArray"]
    values = [
        [(names[name], begin, end)
         for name, begin, end in zip(marks["name"], marks["startTime"], marks["endTime"],
                                     strict=True)]
        for marks in (thread["markers"] for thread in profile["threads"])
    ]  # fmt: skip
    assert values == [[], [], wanted, []]
    trace = parsed(paths["perfetto"])
    origin = trace.packet[0].clock_snapshot.clocks[0].timestamp
    tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in trace.packet}
    slices = [packet for packet in trace.packet if packet.HasField("track_event")]
    assert [(begin.track_event.name, (begin.timestamp - origin) / 1e6,
             (end.timestamp - origin) / 1e6)
            for begin, end in zip(slices[::2], slices[1::2], strict=True)] == wanted  # fmt: skip
    (own,) = {packet.track_event.track_uuid for packet in slices}
    assert tracks[tracks[own].parent_uuid].thread.tid == 102
    with otf2.reader.open(str(paths["otf2"] / "traces.otf2")) as archive:
        locations = [location.name for location in archive.definitions.locations]
    assert locations[2] == "rank 2"
    if shutil.which("otf2-marker"):
        anchor = paths["otf2"] / "traces.otf2"
        shown = subprocess.run(["otf2-marker", anchor], capture_output=True, text=True, check=True)
        marker = r'^MARKER +Time: (\d+), Duration (\d+), Scope: LOCATION:2, Text: "(.*)"$'
        marks = re.findall(marker, shown.stdout, re.MULTILINE)
        assert [
            (name, int(time) / 1e6, (int(time) + int(duration)) / 1e6)
            for time, duration, name in marks
        ] == wanted
    refused = ["export", str(database), "--format", "csv", "-o", str(tmp_path / "csv")]
    assert main([*refused, "--phases", "work"]) == 2


def test_messages_and_files_are_those_of_the_database(database: Path, tmp_path: Path) -> None:
    archive = read_otf2_calls(exported(database, tmp_path / "out"))
    with hpcd.analysis.open(database) as db:
        known = communication(db)
        messages, volume = known.point_to_point.dense(RANKS)
        collectives = known.by_function()
    for ends in (archive.sent, archive.received):
        count, size = np.zeros((RANKS, RANKS)), np.zeros((RANKS, RANKS))
        for (source, target, communicator, tag, length), times in ends.items():
            assert (communicator, tag) == (WORLD, 7)
            place = int(source.removeprefix("rank ")), int(target.removeprefix("rank "))
            count[place] += times
            size[place] += times * length
        np.testing.assert_array_equal(count, messages)
        np.testing.assert_array_equal(size, volume)
    (row,) = collectives
    key = "MPI_Allreduce", "ALLREDUCE", WORLD, 0xFFFFFFFF
    assert archive.collectives == {key: row.calls} and archive.passed == {key: row.bytes}
    assert archive.moved == by_file(database)
    assert archive.members == {WORLD: [tuple(f"rank {rank}" for rank in range(RANKS))]}
    assert archive.unfinished == 0
    for function in ("MPI_Send", "MPI_Recv", "MPI_Allreduce", "write"):
        assert archive.contexts[function] == {function}


@pytest.mark.skipif(not shutil.which("otf2-print"), reason="needs otf2-tools")
def test_otf2_print_and_imports_know_the_calls(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = exported(database, tmp_path / "out")
    done = subprocess.run(
        ["otf2-print", str(output / "traces.otf2")], capture_output=True, text=True, check=True
    )
    assert not done.stderr
    kinds = Counter(re.findall(r"^((?:MPI|IO)_\w+) ", done.stdout, re.MULTILINE))
    assert kinds == {
        "MPI_SEND": RANKS * ROUNDS, "MPI_RECV": RANKS * ROUNDS,
        "MPI_COLLECTIVE_BEGIN": RANKS * ROUNDS, "MPI_COLLECTIVE_END": RANKS * ROUNDS,
        "IO_OPERATION_BEGIN": 2 * ROUNDS, "IO_OPERATION_COMPLETE": 2 * ROUNDS,
    }  # fmt: skip
    with hpcd.analysis.open(database) as db:
        _, volume = communication(db).point_to_point.dense(RANKS)
    lengths = re.findall(r"^MPI_SEND .*Length: (\d+)", done.stdout, re.MULTILINE)
    assert sum(map(int, lengths)) == volume.sum()
    result = imported(output, tmp_path / "m")
    assert not result.left_out
    # Operations on files are calls again, of the same functions, in the same call paths.
    merge([tmp_path / "m"], tmp_path / "again", workers=1)
    assert check_database(tmp_path / "again") == []
    assert by_file(tmp_path / "again") == by_file(database)
    assert by_path(tmp_path / "again") == by_path(database)
    assert messages_of(tmp_path / "again", capsys) == messages_of(database, capsys)


def messages_of(database: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the document of ``hpcd messages``: wait states, delays, severities and call paths."""
    capsys.readouterr()
    assert main(["messages", str(database), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document.pop("implementation") and document.pop("database") and document["waits"]
    # Each database numbers its contexts and trace lines.
    for wait in document["waits"]:
        del wait["node"], wait["delaying_node"], wait["worst"]
    return dict(document)


def by_path(database: Path) -> dict[str, tuple[int, float, int]]:
    """Calls of input and output by call path: how many, how long, bytes."""
    with hpcd.analysis.open(database) as db:
        totals = total_calls(db, "path", db.calls.of_group("io"))
    columns = totals.calls, totals.seconds.round(9), totals.read + totals.written
    return dict(zip(totals.name, zip(*(one.tolist() for one in columns), strict=True), strict=True))


def test_parts_have_the_calls_that_lie_in_them(database: Path, tmp_path: Path) -> None:
    """Rounds of 100 ms: two of ten; ranks 1 and 2 of four, whose peers have names all the same."""
    options = ["--filter", "time=0.2-0.4", "--filter", "rank=1-2"]
    archive = read_otf2_calls(exported(database, tmp_path / "out", *options))
    assert {(source, target): times for (source, target, *_), times in archive.sent.items()} == {
        ("rank 1", "rank 2"): 2, ("rank 2", "rank 3"): 2,
    }  # fmt: skip
    assert {target for _, target, *_ in archive.received} == {"rank 1", "rank 2"}
    assert archive.members == {WORLD: [tuple(f"rank {rank}" for rank in range(RANKS))]}
    assert archive.moved == {("a:1 -> b:2", "READ"): [2, 200]}
    options = ["--filter", "procedure=output"]
    archive = read_otf2_calls(exported(database, tmp_path / "output", *options))
    assert not archive.sent and not archive.collectives and len(archive.moved) == 2


def test_processes_of_ranks_have_their_numbers(tmp_path: Path) -> None:
    """Which Pipit takes for ranks; the launcher, whose line is the first, comes behind them."""
    writer = MeasurementWriter(tmp_path / "m", Host("host", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_clock_pair(10**9, 10**18)
    for line, rank in enumerate((None, 1, 0)):
        writer.add_process(Process(line, 100 + line, 1, "app", "", (), 0, 10**9, "job", rank, 2))
        writer.add_thread(Thread(line, line, 100 + line, "app", 10**9))
    lines = np.arange(3, dtype=np.uint32)
    writer.add_records(lines, np.full(3, 10**9, np.uint64), np.zeros(3, np.uint32), 0)
    writer.close()
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with otf2.reader.open(str(exported(tmp_path / "db", tmp_path / "out") / "traces.otf2")) as t:
        names = [group.name for group in t.definitions.location_groups]
    assert names == ["rank 0 app 102", "rank 1 app 101", "app 100"]


FILE, ERROR = CallValue("file", ValueKind.OBJECT), CallValue("error", ValueKind.ERROR)
FUNCTIONS = {
    "openat": (FILE, CallValue("bytes", ValueKind.BYTES), ERROR),
    "close": (FILE, CallValue("bytes", ValueKind.BYTES), ERROR),
    "read": (FILE, CallValue("read", ValueKind.BYTES), ERROR, CallValue("asked", ValueKind.BYTES)),
    "write": (FILE, CallValue("written", ValueKind.BYTES), ERROR),
    "sendfile": (FILE, CallValue("moved", ValueKind.BYTES), ERROR,
                 CallValue("other", ValueKind.OBJECT)),
    "fsync": (FILE, CallValue("bytes", ValueKind.BYTES), ERROR),
}  # fmt: skip


def files_of(folder: Path, calls: list[tuple[int, str, tuple[int, ...]]]) -> ArchivedCalls:
    """Return the archive of an export of calls (line, function, values), 1 ms long, one every 2 ms,
    of two threads of a process and of another process (line 2)."""
    writer = MeasurementWriter(folder / "m", Host("host", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_clock_pair(10**9, 10**18)
    for number, owned in ((0, (0, 1)), (1, (2,))):
        writer.add_process(Process(number, 100 + number, 1, "app", "", (), 0, 10**9))
        for line in owned:
            writer.add_thread(Thread(line, number, 100 + line, f"t{line}", 10**9, 2 * 10**9))
    for number, (name, values) in enumerate(FUNCTIONS.items()):
        writer.add_function(CalledFunction(number, name, "", Group.IO, values))
    for number, name in ((1, "/a"), (2, "/b")):
        writer.add_object(CalledObject(number, "file", name, {}))
    value = np.zeros((len(calls), 6), np.uint64)
    for at, (_, _, numbers) in enumerate(calls):
        value[at, : len(numbers)] = numbers
    recorded = Calls(
        np.array([line for line, *_ in calls], np.uint32),
        np.arange(len(calls), dtype=np.uint64) * 2_000_000 + 10**9,
        np.full(len(calls), 10**6, np.uint64), np.zeros(len(calls), np.uint32),
        np.array([list(FUNCTIONS).index(name) for _, name, _ in calls], np.uint16),
        np.ones(len(calls), np.uint32), value,
    )  # fmt: skip
    writer.add_calls(recorded.in_order())
    writer.close()
    merge([folder / "m"], folder / "db", workers=1)
    archive = read_otf2_calls(exported(folder / "db", folder / "out"))
    assert archive.unfinished == 0
    volume = {key: total for key, (_, total) in archive.moved.items() if total}
    assert volume == {key: total for key, (_, total) in by_file(folder / "db").items()}
    return archive


def test_handles_last_from_open_to_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where calls are read two at a time."""
    monkeypatch.setattr(otf2_files, "_CALLS_AT_ONCE", 2)
    archive = files_of(
        tmp_path,
        [
            (0, "write", (1, 10)),  # Open before the recording began.
            (0, "openat", (1, 0, 0)),
            (1, "read", (1, 20, 0, 64)),
            (1, "openat", (1, 0, 0)),
            (0, "close", (1,)),
            (0, "fsync", (1,)),
            (0, "close", (1,)),
            (1, "openat", (1, 0, 13)),  # Failed.
            (0, "openat", (1, 0, 0)),
            (2, "openat", (2, 0, 0)),
            (2, "sendfile", (2, 30, 0, 1)),  # To /b, from /a.
            (2, "close", (2,)),
            (2, "read", (0, 5)),
            (2, "read", (2, 0, 5)),  # Failed; of a descriptor that was duplicated.
        ],
    )
    assert archive.moved == {
        ("/a", "WRITE"): [1, 10], ("/a", "READ"): [2, 50], ("/a", "FLUSH"): [1, 0],
        ("/b", "WRITE"): [1, 30], ("/b", "READ"): [1, 0], (UNKNOWN, "READ"): [1, 5],
    }  # fmt: skip
    # In the one process two of its own, and one that was there; in the other one that was there.
    assert Counter(archive.handles["/a"]) == {
        "opened": 2, "before": 2, "IoCreateHandle": 2, "IoDestroyHandle": 1,
    }  # fmt: skip
    assert Counter(archive.handles["/b"]) == {
        "opened": 1, "before": 1, "IoCreateHandle": 1, "IoDestroyHandle": 1,
    }  # fmt: skip
    assert archive.handles[UNKNOWN] == ["before"]
