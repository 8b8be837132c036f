"""The measurement format: round trips, damage, hostile input, a writer that dies."""

from __future__ import annotations

import errno
import io
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcd.errors import FormatError, HpcdError, NotFoundError, StorageError
from hpcd.measurement import codec
from hpcd.measurement.call_codec import Calls, encode_calls
from hpcd.measurement.check import check_measurement
from hpcd.measurement.chunk import ChunkKind, encode_chunk
from hpcd.measurement.reader import open_measurement
from hpcd.measurement.summary import SampleCounts, Summary
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.calls import MAX_VALUES
from hpcd.model.cct import CCT
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from hpcd.model.waits import WAIT

HOST = Host("node1", "boot", "6.1", "x86_64", 2)


def late_call(begin: int, duration: int) -> bytes:
    """A chunk with a call at some time."""
    one = np.ones(1, np.uint64)
    return encode_calls(Calls(
        one.astype(np.uint32), begin * one, duration * one, one.astype(np.uint32),
        one.astype(np.uint16), one.astype(np.uint32), np.ones((1, MAX_VALUES), np.uint64),
    ))  # fmt: skip


def write(path: Path, records: int = 5000, *, seed: int = 1, rounds: int = 3) -> MeasurementWriter:
    """A measurement that looks like a real one, not yet closed."""
    rng = np.random.default_rng(seed)
    writer = MeasurementWriter(path, HOST, options={"frequency": 997})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 997))
    writer.add_process(Process(1, 100, 1, "app", "/bin/app", ("app", "-x"), 0, 5, "job", 0, 2))
    writer.add_module(Module(1, ModuleKind.ELF, "/bin/app", "abcd"))
    writer.add_symbols(1, [(0, 16, "main")])
    for line in range(4):
        writer.add_thread(Thread(line, 1, 100 + line, "app", 10))
    time = 10**9
    for _ in range(rounds):
        first = writer.add_nodes(np.zeros(0, np.uint32), np.zeros(0, np.uint64))
        ids = np.arange(first, first + 300)
        writer.add_nodes(
            (rng.random(300) * ids).astype(np.uint32),
            rng.integers(0, 1 << 30, 300).astype(np.uint64) | np.uint64(1 << 40),
        )
        times = time + np.sort(rng.integers(0, 10**9, records)).astype(np.uint64)
        writer.add_records(
            rng.integers(0, 4, records).astype(np.uint32),
            times,
            rng.integers(0, first + 300, records).astype(np.uint32),
            0,
        )
        writer.add_clock_pair(time, time + 10**18)
        time += 10**9
        writer.flush(Summary(samples=SampleCounts(taken=records)))
    return writer


@pytest.fixture
def measurement(tmp_path: Path) -> Path:
    write(tmp_path / "m").close(Summary(samples=SampleCounts(taken=15000)))
    return tmp_path / "m"


def count(path: Path) -> int:
    with open_measurement(path) as opened:
        return sum(len(part) for part in opened.record_chunks())


def test_what_a_full_disk_does_not_take_is_bounded_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcd.measurement.writer._KEEP_RECORDS", 1000)
    writer = write(tmp_path / "m", 500, rounds=1)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    one = np.zeros(400, np.uint32)
    # Nothing more can be written to any file, as if the disk were full.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, unlimited[1]))
    try:
        for second in range(5):
            times = np.full(400, (2 + second) * 10**9, np.uint64)
            with pytest.raises(StorageError):
                writer.add_records(one, times, one, 0)
                writer.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    writer.close()
    kept = count(tmp_path / "m") - 500
    assert 0 < kept <= 1000
    assert kept + writer.dropped_storage == 5 * 400


columns = st.integers(1, 200).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 5), min_size=n, max_size=n),
        st.lists(st.integers(0, 2**50), min_size=n, max_size=n),
        st.lists(st.integers(0, 2**32 - 1), min_size=n, max_size=n),
        st.lists(st.integers(0, 2**16 - 1), min_size=n, max_size=n),
        st.lists(st.integers(0, 2**63), min_size=n, max_size=n),
    )
)


@given(columns, st.booleans(), st.sets(st.integers(0, 2), max_size=2))
def test_records_round_trip(data: tuple[list[int], ...], waits: bool, lasting: set[int]) -> None:
    line, time, node, event, value = (np.array(column, np.uint64) for column in data)
    if waits:
        # Short values and few events, as recordings have.
        event, value = event % 3, value % 1000
    order = np.lexsort((time, line))
    line, time, node, event, value = (column[order] for column in (line, time, node, event, value))
    decoded = codec.decode_records(
        codec.encode_records(
            (line.astype(np.uint32), time, node.astype(np.uint32), event.astype(np.uint16), value),
            lasting,
        )
    )
    assert (np.repeat(decoded.line, np.diff(decoded.start)) == line).all()
    assert (decoded.time_ns == time // 1000 * 1000).all()
    assert (decoded.node == node).all()
    assert (decoded.event == event).all()
    assert (decoded.value == value).all()


def test_times_after_waits_take_fewer_bytes() -> None:
    random = np.random.default_rng(0)
    count = 6000
    event = np.arange(count) % 2
    value = np.where(event == 1, random.integers(2, 60_000, count), 1).astype(np.uint64)
    # What follows a wait begins where it ends.
    step = np.where(event == 1, value, 1003).astype(np.uint64) * np.uint64(1000)
    time = np.cumsum(step) - step
    columns = (np.zeros(count, np.uint32), time, np.ones(count, np.uint32), event.astype(np.uint16))
    sizes = [
        len(encode_chunk(ChunkKind.RECORDS, codec.encode_records((*columns, value), lasting), 0))
        for lasting in ((), (1,))
    ]
    assert sizes[1] < sizes[0] * 0.6


@given(st.integers(1, 1 << 20), st.lists(st.tuples(st.integers(1, 999), st.integers(0, 2**64 - 1))))
def test_nodes_round_trip(first: int, rows: list[tuple[int, int]]) -> None:
    ids = np.arange(first, first + len(rows))
    parent = np.maximum(ids - np.array([back for back, _ in rows], np.int64), 0).astype(np.uint32)
    frame = np.array([value for _, value in rows], np.uint64)
    start, parents, frames = codec.decode_nodes(codec.encode_nodes(first, parent, frame))
    assert start == first and (parents == parent).all() and (frames == frame).all()


@given(st.binary(max_size=300))
def test_decoders_take_any_bytes(data: bytes) -> None:
    for decode in (codec.decode_records, codec.decode_nodes):
        try:
            decode(data)
        except FormatError:
            continue


def test_what_was_written_is_read(measurement: Path) -> None:
    with open_measurement(measurement) as opened:
        assert opened.closed and opened.damage == []
        assert opened.host == HOST and opened.options == {"frequency": 997}
        assert opened.processes[1].command == ("app", "-x") and opened.processes[1].rank == 0
        assert opened.modules[1].kind is ModuleKind.ELF
        assert opened.symbols == {1: [(0, 16, "main")]}
        assert sorted(opened.threads) == [0, 1, 2, 3]
        assert opened.clock_pairs.shape == (3, 2)
        assert len(opened.cct) == 901
        opened.cct.validate("test")
    assert count(measurement) == 15000
    assert check_measurement(measurement) == []
    assert measurement.stat().st_mode & 0o777 == 0o700


def test_later_rows_replace_earlier_ones(tmp_path: Path) -> None:
    writer = write(tmp_path / "m")
    writer.add_thread(Thread(1, 1, 101, "renamed", 10, 99))
    writer.close()
    with open_measurement(tmp_path / "m") as opened:
        assert opened.threads[1].name == "renamed" and opened.threads[1].end_ns == 99


def test_segments_rotate(tmp_path: Path) -> None:
    writer = MeasurementWriter(tmp_path / "m", HOST, options={}, segment_bytes=4096)
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time"))
    writer.add_process(Process(1, 1, 0, "a", "", (), 0, 0))
    writer.add_thread(Thread(0, 1, 1, "a", 0))
    rng = np.random.default_rng(0)
    for i in range(20):
        times = np.sort(rng.integers(0, 10**9, 1000)).astype(np.uint64) + np.uint64(i * 10**9)
        writer.add_records(np.zeros(1000, np.uint32), times, np.zeros(1000, np.uint32), 0)
        writer.flush()
    writer.close()
    assert len(list((tmp_path / "m").iterdir())) > 3
    assert count(tmp_path / "m") == 20000
    assert check_measurement(tmp_path / "m") == []


def test_reading_while_it_is_written(tmp_path: Path) -> None:
    writer = write(tmp_path / "m")
    with open_measurement(tmp_path / "m") as opened:
        assert not opened.closed and opened.being_written
        assert sum(len(part) for part in opened.record_chunks()) == 15000
        writer.add_records(
            np.zeros(7, np.uint32), np.arange(7, dtype=np.uint64) + np.uint64(10**12),
            np.zeros(7, np.uint32), 0,
        )  # fmt: skip
        writer.flush()
        assert opened.refresh()
        assert sum(len(part) for part in opened.record_chunks()) == 15007
        writer.close()
        assert opened.refresh() and opened.closed and not opened.being_written


def test_existing_or_impossible_output(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    for path in (tmp_path / "m", tmp_path / "missing" / "m", Path("/proc/nothing")):
        with pytest.raises(StorageError):
            MeasurementWriter(path, HOST, options={})


def test_segments_follow_the_directory_not_its_name(tmp_path: Path) -> None:
    """An attacker who owns the folder moves the measurement and puts a link in its place."""
    victim = tmp_path / "victim"
    victim.mkdir()
    writer = MeasurementWriter(tmp_path / "m", HOST, options={}, segment_bytes=4096)
    (tmp_path / "m").rename(tmp_path / "moved")
    (tmp_path / "m").symlink_to(victim)
    for number in range(3):
        writer.add_process(Process(number, 1, 0, os.urandom(5000).hex(), "", (), 0, 0))
        writer.flush()
    writer.close()
    assert not list(victim.iterdir())
    assert len(list((tmp_path / "moved").iterdir())) > 1


def test_what_is_no_measurement(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        open_measurement(tmp_path / "missing")
    with pytest.raises(FormatError):
        open_measurement(Path("/etc/passwd"))
    with pytest.raises(FormatError):
        open_measurement(tmp_path)
    (tmp_path / "segment-000000.hpcd").write_bytes(os.urandom(5000))
    with pytest.raises(FormatError):
        open_measurement(tmp_path)


def test_truncated_anywhere_the_rest_is_read(measurement: Path, tmp_path: Path) -> None:
    data = (measurement / "segment-000000.hpcd").read_bytes()
    whole = count(measurement)
    for cut in random.Random(1).sample(range(400, len(data)), 60):
        copy = tmp_path / "cut"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        (copy / "segment-000000.hpcd").write_bytes(data[:cut])
        with open_measurement(copy) as opened:
            assert not opened.closed
            assert 0 <= sum(len(part) for part in opened.record_chunks()) <= whole
            assert opened.cct.validate("cut") is None


def test_mutated_files_never_crash(measurement: Path, tmp_path: Path) -> None:
    original = bytearray((measurement / "segment-000000.hpcd").read_bytes())
    rng = random.Random(2)
    copy = tmp_path / "mutated"
    copy.mkdir()
    for _ in range(600):
        data = bytearray(original)
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(len(data))
            data[at] = rng.choice((0, 0xFF, rng.randrange(256), data[at] ^ 1 << rng.randrange(8)))
        (copy / "segment-000000.hpcd").write_bytes(data)
        try:
            check_measurement(copy)
        except HpcdError:
            continue


def test_hostile_contents_behind_good_checksums(measurement: Path, tmp_path: Path) -> None:
    """A forger can write checksums too: ids out of range, wrong types, nonsense columns."""
    rng = random.Random(3)
    head = (measurement / "segment-000000.hpcd").read_bytes()
    payloads = [
        b"[]", b"{}", b"null", b"[1]", b'[{"id": -1}]', b'[{"id": "x"}]', b"[" * 5000, b"\xff",
        b'{"node": 3, "options": 4}', b'{"1": [[1]]}', b'[{"line": 99999999999999999999}]',
        b'[[1e400, 2]]', bytes(100), *(rng.randbytes(rng.randrange(200)) for _ in range(30)),
    ]  # fmt: skip
    copy = tmp_path / "forged"
    copy.mkdir()
    with open_measurement(measurement) as opened:
        chunks = opened.index["chunks"] if opened.index else 0
    for kind in ChunkKind:
        for payload in payloads:
            forged = head + encode_chunk(kind, payload, chunks)
            (copy / "segment-000000.hpcd").write_bytes(forged)
            check_measurement(copy)


@pytest.mark.parametrize(
    ("kind", "payload", "why"),
    [
        (ChunkKind.CLOCK, b"[[1e308, 2]]", "clock readings are out of range"),
        (ChunkKind.CLOCK, b"[[1180591620717411303424, 2]]", "clock readings are out of range"),
        (ChunkKind.CLOCK, b"[[1, -1]]", "clock readings are out of range"),
        (ChunkKind.SYMBOLS, b'{"1": [[0, -1], [16, 16], ["a", "b"]]}', "symbols are out of range"),
        (
            ChunkKind.SYMBOLS,
            b'{"1": [[0], [9223372036854775808], ["a"]]}',
            "symbols are out of range",
        ),
        (ChunkKind.CALLS, late_call(1 << 60, 1), "times are out of range"),
        (ChunkKind.CALLS, late_call(1, 1 << 60), "durations are out of range"),
    ],
)
def test_numbers_out_of_range_cost_their_chunk(
    measurement: Path, tmp_path: Path, kind: ChunkKind, payload: bytes, why: str
) -> None:
    with open_measurement(measurement) as opened:
        assert opened.index
        chunks, clock, symbols = opened.index["chunks"], opened.clock_pairs, opened.symbols
    copy = tmp_path / "forged"
    copy.mkdir()
    segment = (measurement / "segment-000000.hpcd").read_bytes()
    (copy / "segment-000000.hpcd").write_bytes(segment + encode_chunk(kind, payload, chunks))
    assert any(why in finding.what for finding in check_measurement(copy))
    with open_measurement(copy) as opened:
        assert list(opened.call_chunks()) == []
        assert opened.clock_pairs.tolist() == clock.tolist()
        assert opened.symbols == symbols


@pytest.mark.parametrize(("path", "sound"), [(5, True), (1 << 20, False), (1 << 63, False)])
def test_a_wait_was_ended_in_a_node_that_there_is(
    tmp_path: Path, path: int, *, sound: bool
) -> None:
    writer = write(tmp_path / "m")
    writer.add_function(WAIT)
    one = np.ones(1, np.uint32)
    value = np.array([[1, 1, path, 0, 0, 0]], np.uint64)
    function, time = np.full(1, WAIT.id, np.uint16), np.full(1, 10**9, np.uint64)
    writer.add_calls(Calls(one, time, time, one, function, one, value))
    writer.close()
    with open_measurement(tmp_path / "m") as opened:
        taken = [calls.value.tolist() for calls in opened.call_chunks(waits=True)]
        assert taken == ([value.tolist()] if sound else [])
        assert sound or "unknown node" in opened.damage[0]


def test_a_killed_writer_loses_only_what_it_had_not_flushed(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, '.')\n"
        "from pathlib import Path\nfrom tests.unit.measurement.test_measurement import write\n"
        "write(Path(sys.argv[1]), 200, rounds=100000)\n"
    )
    for attempt in range(2):
        path = tmp_path / str(attempt)
        process = subprocess.Popen([sys.executable, "-c", script, str(path)])
        segment = path / "segment-000000.hpcd"
        target = 2000 + 53_757 * attempt
        while not segment.exists() or segment.stat().st_size < target:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert [
            finding
            for finding in check_measurement(path)
            if finding.fatal and "torn" not in finding.what
        ] == []
        assert count(path) % 200 == 0


def test_full_disk_keeps_the_recorded_and_retries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = write(tmp_path / "m")
    real = os.write
    room = [100]

    def scarce(fd: int, data: bytes) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(fd, bytes(data)[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", scarce)
    records = 1000
    writer.add_records(
        np.zeros(records, np.uint32), np.arange(records, dtype=np.uint64) * np.uint64(10**6),
        np.zeros(records, np.uint32), 0,
    )  # fmt: skip
    with pytest.raises(StorageError, match="no space"):
        writer.flush()
    assert count(tmp_path / "m") == 15000
    room[0] = 1 << 30
    writer.flush()
    writer.close()
    assert count(tmp_path / "m") == 16000
    assert all("backwards" in finding.what for finding in check_measurement(tmp_path / "m"))


def test_cct_views() -> None:
    cct = CCT(np.array([0, 0, 1, 1, 2], np.uint32), np.array([0, 5, 6, 7, 8], np.uint64))
    assert cct.depth().tolist() == [0, 1, 2, 2, 3]
    assert cct.inclusive(np.array([0.0, 1, 2, 4, 8])).tolist() == [15, 15, 10, 4, 8]
    assert cct.path(4).tolist() == [1, 2, 4]
    assert cct.ancestor_at(2).tolist() == [0, 1, 2, 3, 2]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=60))
def test_inclusive_sums_subtrees(choices: list[int]) -> None:
    parent = [0] + [choice % (i + 1) for i, choice in enumerate(choices)]
    cct = CCT(np.array(parent, np.uint32), np.arange(len(parent), dtype=np.uint64))
    exclusive = np.arange(len(parent), dtype=np.float64)
    expected = exclusive.copy()
    for node in range(len(parent) - 1, 0, -1):
        expected[parent[node]] += expected[node]
    assert cct.inclusive(exclusive).tolist() == expected.tolist()


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=60), st.integers(1, 70))
def test_ancestors_are_those_on_the_path(choices: list[int], deepest: int) -> None:
    parent = [0] + [choice % (i + 1) for i, choice in enumerate(choices)]
    cct = CCT(np.array(parent, np.uint32), np.arange(len(parent), dtype=np.uint64))
    paths = [cct.path(node).tolist() for node in range(len(parent))]
    for depth in range(1, deepest + 1):
        expected = [path[min(depth, len(path)) - 1] if path else 0 for path in paths]
        assert cct.ancestor_at(depth).tolist() == expected


def test_a_chunk_that_claims_a_terabyte_costs_no_memory(tmp_path: Path) -> None:
    import struct
    import zlib

    from hpcd.measurement import chunk

    # A zstd frame with an 8-byte content size (RFC 8878, section 3.1.1.1) and one raw, empty block.
    frame = b"\x28\xb5\x2f\xfd" + b"\xe0" + struct.pack("<Q", 1 << 40) + b"\x01\x00\x00"
    path = tmp_path / "payload"
    path.write_bytes(frame)
    header = chunk.ChunkHeader(8, 1, len(frame), 100, 0, zlib.crc32(frame), 0)
    with path.open("rb") as file, pytest.raises(FormatError, match="another length"):
        chunk.read_payload(file, header)


def test_damage_of_a_payload_says_which_chunk_and_how(tmp_path: Path) -> None:
    from hpcd.measurement import chunk

    encoded = chunk.encode_chunk(chunk.ChunkKind.MODULE, b"[]" * 100, 0)
    path = tmp_path / "segment"
    for data, message in (
        (encoded[:-8], "MODULE chunk is cut off after"),
        (encoded[:-8] + b"\xff" * 8, "MODULE chunk: checksum of the payload does not match"),
    ):
        path.write_bytes(bytes(32) + data)
        (header,) = chunk.scan(io.BytesIO(bytes(32) + encoded), 32 + len(encoded))
        with path.open("rb") as file, pytest.raises(FormatError, match=message):
            chunk.read_payload(file, header)
