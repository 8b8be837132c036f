"""Profiles pushed to a receiver, read there by opentelemetry-proto's classes and Go's pprof."""

from __future__ import annotations

import contextlib
import gzip
import json
import pwd
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from hpcd.__main__ import main
from hpcd.analysis.live import label_profiles
from hpcd.analysis.live.label_profiles import OTHERS, ProfileFollower
from hpcd.analysis.live.recent_window import Live
from hpcd.analysis.symbols.confined_naming import ConfinedNaming
from hpcd.cli.verbs.push import limited_memory, read_headers
from hpcd.elf.elf_file import ElfFile
from hpcd.errors import FormatError, HpcdError, UsageError
from hpcd.interchange.pprof import profile_push
from hpcd.interchange.pprof.profile_push import Pusher
from hpcd.interchange.pprof.profile_push import Receiver as Target
from hpcd.interchange.protobuf import encode_varint, encode_varints
from hpcd.measurement.chunk import (
    SEGMENT_HEADER_BYTES,
    ChunkKind,
    encode_chunk,
    read_payload,
    scan,
)
from hpcd.measurement.identity_columns import table_of
from hpcd.measurement.reader import open_measurement
from hpcd.model.identity import Event, ModuleKind
from hpcd.startup.isolation import python_command, python_environment
from tests.support.pushed import (
    MS,
    PROCESSES,
    Costs,
    Recorder,
    otlp_costs,
    otlp_message,
)
from tests.support.receiver import Received, Receiver
from tests.support.viewer import python_program


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "m")


@pytest.fixture
def measurement(recorder: Recorder, tmp_path: Path) -> Path:
    recorder.record()
    recorder.writer.close()
    return tmp_path / "m"


def read_otlp(request: Received) -> Costs:
    """Costs in ns by call path, by labels and sample type; the message's rules are checked."""
    tables = otlp_message(request).dictionary
    strings = list(tables.string_table)
    assert strings[0] == "" and len(set(strings)) == len(strings)
    for table in (tables.mapping_table, tables.location_table, tables.function_table,
                  tables.link_table, tables.attribute_table, tables.stack_table):  # fmt: skip
        assert table[0] == type(table[0])()
        assert len({entry.SerializeToString() for entry in table}) == len(table)
    return otlp_costs(request)


def test_otlp_has_costs_by_labels(measurement: Path) -> None:
    with Receiver() as receiver:
        assert main(["push", str(measurement), "--to", receiver.url]) == 0
        (request,) = receiver.requests
    costs = read_otlp(request)
    user = pwd.getpwuid(0).pw_name
    work, sleep = ("main", "work"), ("main", "sleep")
    odd = ("4000000", "", "", PROCESSES[4][0], "cpu")
    assert costs == {
        (user, "17", "0", "solver", "cpu"): {work: 300 * MS},
        (user, "17", "0", "solver", "blocked"): {sleep: 40 * MS},
        (user, "17", "1", "solver", "cpu"): {work: 200 * MS},
        (user, "17", "1", "solver", "blocked"): {sleep: 10 * MS},
        (user, "", "", "sh", "cpu"): {work: 11 * MS},
        odd: {work: 7 * MS},
    }
    assert b"password" not in gzip.decompress(request.body)


def test_pprof_is_read_by_go(measurement: Path, tmp_path: Path) -> None:
    with Receiver() as receiver:
        assert main(["push", str(measurement), "--to", receiver.url, "--format", "pprof"]) == 0
        requests = list(receiver.requests)
    assert len(requests) == 4
    user = pwd.getpwuid(0).pw_name
    named = {}
    for number, request in enumerate(requests):
        where = urlsplit(request.path)
        assert where.path == "/ingest"
        query = {key: value for key, (value,) in parse_qs(where.query).items()}
        assert query["format"] == "pprof" and query["sampleRate"] == "1000"
        assert int(query["from"]) < int(query["until"])
        assert re.fullmatch(r'[\w.-]+\{(\w+=[^{},="\n]*,?)*\}', query["name"]), query["name"]
        file = tmp_path / f"{number}.pb.gz"
        file.write_bytes(request.body)
        raw = subprocess.run(
            ["go", "tool", "pprof", "-raw", str(file)], capture_output=True, text=True, check=True,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PPROF_TMPDIR": str(tmp_path)},
        ).stdout  # fmt: skip
        named[query["name"]] = raw
    rank = named[f"solver{{host=node7,user={user},job=17,rank=1,command=solver}}"]
    assert "PeriodType: cpu nanoseconds" in rank and "Period: 1000000" in rank
    assert "cpu/nanoseconds[dflt] blocked/nanoseconds runnable/nanoseconds" in rank
    assert "200000000          0          0: 1 2" in rank
    assert "rank:[1]" in rank and f"user:[{user}]" in rank and "work" in rank


def test_python_functions_have_file_and_line_and_are_folded(tmp_path: Path) -> None:
    python_program(tmp_path)
    with Receiver() as receiver:
        assert main(["push", str(tmp_path / "m"), "--to", receiver.url]) == 0
        assert main(["push", str(tmp_path / "m"), "--to", receiver.url, "--format", "pprof"]) == 0
        otlp, pprof = receiver.requests
    document = otlp_message(otlp)
    tables = document.dictionary
    strings = tables.string_table
    (profile,) = document.resource_profiles[0].scope_profiles[0].profiles
    costs = {}
    for sample in profile.samples:
        locations = tables.stack_table[sample.stack_index].location_indices
        lines = [tables.location_table[at].lines[0] for at in reversed(locations)]
        functions = [tables.function_table[line.function_index] for line in lines]
        costs[tuple(strings[one.name_strindex] for one in functions)] = sum(sample.values)
    assert costs[("<module>", "main", "solve")] == 750 * MS
    assert len(costs) == 2
    places = set()
    for location in tables.location_table:
        kinds = [tables.attribute_table[at] for at in location.attribute_indices]
        if [strings[kind.key_strindex] for kind in kinds] == ["profile.frame.type"]:
            assert [kind.value.string_value for kind in kinds] == ["cpython"]
            (line,) = location.lines
            function = tables.function_table[line.function_index]
            file = strings[function.filename_strindex]
            places.add((strings[function.name_strindex], file, line.line))
    source = str(tmp_path / "app.py")
    expected = {("<module>", 6), ("main", 5), ("main", 6), ("solve", 2)}
    assert places == {(name, source, line) for name, line in expected}
    file = tmp_path / "p.pb.gz"
    file.write_bytes(pprof.body)
    raw = subprocess.run(
        ["go", "tool", "pprof", "-raw", str(file)], capture_output=True, text=True, check=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PPROF_TMPDIR": str(tmp_path)},
    ).stdout  # fmt: skip
    assert f"solve {source}:2" in raw


def test_each_push_has_what_came_since(recorder: Recorder, tmp_path: Path) -> None:
    recorder.record()
    with Receiver() as receiver:
        follower = ProfileFollower(tmp_path / "m")
        reported: list[str] = []
        pusher = Pusher(follower, Target(receiver.url, "otlp", {}), 1.0, reported.append)
        pusher.push()
        pusher.push()  # nothing new
        recorder.record()
        recorder.record()
        pusher.push()
        one, two = map(read_otlp, receiver.requests)
        assert {key: sum(paths.values()) * 2 for key, paths in one.items()} == {
            key: sum(paths.values()) for key, paths in two.items()
        }
        late = ProfileFollower(tmp_path / "m", from_now=True)
        assert late.collect() is None
        recorder.writer.close()
        pusher.run(threading.Event())
        assert follower.measurement.ended and len(receiver.requests) == 2
        assert (pusher.sent, pusher.lost, reported) == (2, 0, [])


def test_a_receiver_that_is_away_gets_it_later(recorder: Recorder, tmp_path: Path) -> None:
    recorder.record()
    follower = ProfileFollower(tmp_path / "m")
    reported: list[str] = []
    with Receiver() as receiver:
        pusher = Pusher(follower, Target(receiver.url, "otlp", {}), 1.0, reported.append)
        receiver.answers.extend([503, 200, 200, 400])
        pusher.push()
        assert pusher.sent == 0 and "503" in reported[0]
        recorder.record()
        pusher.push()
        assert pusher.sent == 2 and "again" in reported[1]
        first, again, _ = receiver.requests
        assert first.body == again.body
        recorder.record()
        pusher.push()
        assert pusher.lost == 1 and "400" in reported[2]
    recorder.record()
    pusher.push()
    assert len(reported) == 4 and "refused" in reported[3]
    recorder.writer.close()


def test_what_waits_is_bounded(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_push, "_MAX_WAITING", 1000)
    follower = ProfileFollower(tmp_path / "m")
    pusher = Pusher(follower, Target("http://127.0.0.1:1", "otlp", {}), 1.0, lambda line: None)
    for _ in range(5):
        recorder.record()
        pusher.push()
    assert pusher.lost >= 3 and pusher.sent == 0
    recorder.writer.close()


def test_of_many_series_the_least_are_one(
    measurement: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_profiles, "_MOST_SERIES", 3)
    profiles = ProfileFollower(measurement).collect()
    assert profiles is not None
    assert [series.labels.command for series in profiles.series] == ["solver", "solver", OTHERS]
    assert sum(int(series.value[0].sum()) for series in profiles.series) == 518 * MS


@pytest.mark.parametrize("scale", [float(1 << 59), float(1 << 70), 5e-324, float("nan")])
def test_costs_without_end_are_bounded(measurement: Path, scale: float) -> None:
    with open_measurement(measurement) as opened:
        assert opened.index
        chunks = opened.index["chunks"]
        events = [replace(event, scale=scale) for event in opened.events.values()]
    with (measurement / "segment-000000.hpcd").open("ab") as segment:
        payload = json.dumps(table_of(Event, events)).encode()
        segment.write(encode_chunk(ChunkKind.EVENT, payload, chunks))
    profiles = ProfileFollower(measurement).collect()
    with contextlib.closing(Live(measurement, 5.0)) as live:
        top = live.snapshot()
    assert (profiles is not None) == (top.blocked_s > 0) == (1 < scale < 1 << 60)
    if profiles:
        assert all(int(series.value.min()) >= 0 for series in profiles.series)


def test_records_of_a_line_that_is_not_described_have_no_process(measurement: Path) -> None:
    segment = measurement / "segment-000000.hpcd"
    data = segment.read_bytes()
    chunks = [(ChunkKind(head.kind), read_payload(data, head)) for head in scan(data, len(data))]
    at = next(at for at, (kind, _) in enumerate(chunks) if kind == ChunkKind.THREAD)
    table = json.loads(chunks[at][1])
    table["line"][0] = table["line"][1]
    chunks[at] = (ChunkKind.THREAD, json.dumps(table).encode())
    segment.write_bytes(data[:SEGMENT_HEADER_BYTES] + b"".join(
        encode_chunk(kind, payload, number) for number, (kind, payload) in enumerate(chunks)
    ))  # fmt: skip
    profiles = ProfileFollower(measurement).collect()
    assert profiles is not None and "" in {series.labels.user for series in profiles.series}
    with contextlib.closing(Live(measurement, 5.0)) as live:
        assert live.snapshot().blocked_s > 0


def test_a_push_has_two_gigabytes_of_memory(recorder: Recorder, tmp_path: Path) -> None:
    recorder.record()
    with Receiver() as receiver:
        command = python_command("-m", "hpcd", "push", str(tmp_path / "m"), "--to", receiver.url)
        with subprocess.Popen(command, env=python_environment()) as process:
            receiver.wait_for(1)
            limits = Path(f"/proc/{process.pid}/limits").read_text()
            process.terminate()
    assert process.returncode == 0
    assert re.search(rf"^Max data size +{2 << 30} ", limits, re.MULTILINE)
    with pytest.raises(HpcdError, match="need more than 2048 MiB"), limited_memory():
        bytearray(3 << 30)


def test_headers_are_sent_and_their_values_never_shown(
    measurement: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = tmp_path / "headers"
    headers.write_text("# a comment\nAuthorization: Bearer s3cret\nX-Scope-OrgID: 7\n")
    with Receiver() as receiver:
        command = ["push", str(measurement), "--to", receiver.url, "--headers", str(headers)]
        assert main([*command, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "to": receiver.url, "format": "otlp", "requests": len(receiver.requests), "lost": 0,
        }  # fmt: skip
        assert receiver.requests[0].headers["authorization"] == "Bearer s3cret"
        assert receiver.requests[0].headers["x-scope-orgid"] == "7"
    headers.write_text("Bearer s3cret\n")
    assert main(command) == UsageError.exit_code
    assert "line 1" in (output := capsys.readouterr().err) and "s3cret" not in output
    headers.write_bytes(b"A: b\rc: d\x00\n")
    with pytest.raises(UsageError):
        read_headers(headers)


@pytest.mark.parametrize(
    "url", ["collector:4318", "ftp://x", "http://", "http://x:99999", "http://u:p@x", "http://[x"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        Target(url, "otlp", {})


def test_varints_in_bulk_are_those_one_by_one() -> None:
    random = np.random.default_rng(0)
    for low, high in ((0, 1), (0, 300), (1 << 56, 1 << 62), (1_700_000_000 * 10**9, 1 << 61)):
        values = random.integers(low, high, 50)
        assert encode_varints(values) == [encode_varint(value) for value in values.tolist()]
    assert encode_varints(np.zeros(0, np.int64)) == []


def test_confined_names_are_those_of_the_file(tmp_path: Path) -> None:
    """The interpreter's own: a process that may open nothing names its code."""
    path = Path(sys.executable).resolve()
    with ElfFile.open(path) as elf:
        build_id = elf.build_id()
        starts = elf.function_spans()[0][:50]
    naming = ConfinedNaming()
    try:
        names = naming.namer(ModuleKind.ELF, str(path), build_id, []).names(starts)
        assert len(names) == 50 and any(not name.startswith("[") for name in names)
        with pytest.raises(FormatError, match="changed"):
            naming.names(str(path), "00" * 20, starts)
        # What is no regular file is not opened, what is no ELF file costs its names.
        for odd in ("/dev/zero", str(tmp_path), "/etc/passwd", "no\0file"):
            nameless = naming.namer(ModuleKind.ELF, odd, "", []).names(starts[:1])
            assert nameless[0].startswith("[")
    finally:
        naming.close()
