"""Unwind tables from the decoder process, and their cache on disk."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcd.bpf.wire import BLOCK_WORDS
from hpcd.daemon.unwind import decoder_process, decoder_worker
from hpcd.daemon.unwind.decoder_process import DecodeError, Decoder
from hpcd.daemon.unwind.known_names import KnownNames
from hpcd.daemon.unwind.packed_table import (
    HEAD,
    VERSION,
    PackedTable,
    from_bytes,
    packed,
    to_bytes,
)
from hpcd.daemon.unwind.table_builder import build_table
from hpcd.daemon.unwind.table_cache import TableCache
from hpcd.daemon.unwind.work_limit import MOST_SECONDS, SECONDS, WorkLimit, seconds_for
from hpcd.errors import FormatError, HpcdError
from hpcd.sandbox.file_cache import LIMIT_SECONDS

PROGRAM = Path(sys.executable).resolve()
SMALL = Path("/usr/bin/true").resolve()
_CRC_AT = 12
_WORDS = st.integers(0, 300) | st.integers(0, (1 << 32) - 1)


def same(a: PackedTable, b: PackedTable) -> bool:
    return (
        (a.build_id, a.machine, a.base, a.segments, a.functions, a.bad, a.analysed)
        == (b.build_id, b.machine, b.base, b.segments, b.functions, b.bad, b.analysed)
        and np.array_equal(a.rows.words, b.rows.words)
        and np.array_equal(a.rows.group, b.rows.group)
        and np.array_equal(a.rules, b.rules)
    )


@pytest.fixture(scope="module")
def table() -> PackedTable:
    return packed(build_table(memoryview(SMALL.read_bytes())))


@pytest.fixture
def decoder(tmp_path: Path) -> Iterator[Decoder]:
    running = Decoder(TableCache(tmp_path))
    yield running
    running.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(("recorders", "decoders"), [(-20, 0), (3, 8)])
def test_it_has_the_usual_priority_at_most(decoder: Decoder, recorders: int, decoders: int) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, recorders)
    try:
        ask(decoder, SMALL)
        process = decoder._worker.process
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)
    assert process and os.getpriority(os.PRIO_PROCESS, process.pid) == decoders


def ask(decoder: Decoder, path: Path) -> PackedTable:
    fd = os.open(path, os.O_RDONLY)
    try:
        return decoder.table(fd, str(path))
    finally:
        os.close(fd)


def worker(decoder: Decoder) -> subprocess.Popen[bytes]:
    decoder.start()
    process = decoder._worker.process
    assert process
    return process


# --- the decoder process ---


def test_table_is_that_of_the_file(decoder: Decoder) -> None:
    assert same(ask(decoder, PROGRAM), packed(build_table(memoryview(PROGRAM.read_bytes()))))


def test_second_request_comes_from_the_cache(decoder: Decoder, tmp_path: Path) -> None:
    first = ask(decoder, SMALL)
    assert len(list((tmp_path / "unwind").glob("*.rows"))) == 1
    worker(decoder).kill()
    again = Decoder(TableCache(tmp_path))
    assert same(ask(again, SMALL), first)
    assert again._worker.process is None, "a file that is known takes no decoder"


def test_a_worker_with_nothing_to_do_ends(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = worker(decoder)
    decoder.rest()
    assert decoder._worker.process is first
    monkeypatch.setattr(decoder_process, "_IDLE_SECONDS", -1.0)
    decoder.rest()
    assert first.wait(60) and decoder._worker.process is None
    assert same(ask(decoder, SMALL), packed(build_table(memoryview(SMALL.read_bytes()))))


def test_names_that_were_found_once_take_no_decoder(decoder: Decoder, tmp_path: Path) -> None:
    libc = Path("/usr/lib/x86_64-linux-gnu/libc.so.6")
    ask(decoder, libc)
    rng = np.random.default_rng(1)
    some, rest = (np.unique(rng.integers(0, 1 << 21, 500).astype(np.uint64)) for _ in range(2))
    fd = os.open(libc, os.O_RDONLY)
    try:
        names = decoder.symbols(fd, "libc", some)
        again = Decoder(TableCache(tmp_path))
        assert again.symbols(fd, "libc", some) == names and len(names) > 50
        assert again._worker.process is None
        # Of what is near a known function the name is the one that the decoder would have given.
        with_known = again.symbols(fd, "libc", rest)
        afresh = Decoder(TableCache(tmp_path / "another"))
        assert with_known == afresh.symbols(fd, "libc", rest)
        again.close()
        afresh.close()
    finally:
        os.close(fd)


@pytest.mark.parametrize("data", [b"", b"[", b"[[], 3]", b'[[["a", 1, "b", 2]], []]', b"{}"])
def test_damaged_names_say_nothing(data: bytes) -> None:
    rows, missing = KnownNames(data).find(np.array([5], np.uint64))
    assert rows == [] and missing.tolist() == [5]


def test_a_file_that_was_changed_is_read_again(decoder: Decoder, tmp_path: Path) -> None:
    path = tmp_path / "library"
    path.write_bytes(SMALL.read_bytes())
    first = ask(decoder, path)
    with path.open("r+b") as file:
        file.seek(file.read().index(bytes.fromhex(first.build_id)))
        file.write(bytes(20))
    assert ask(decoder, path).build_id == 20 * "00"


@pytest.mark.parametrize("method", ["kept", "make"])
def test_a_file_that_is_written_to_while_it_is_read_is_read_again(
    method: str, decoder: Decoder, tmp_path: Path, table: PackedTable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = tmp_path / "library"
    path.write_bytes(SMALL.read_bytes())
    answer = decoder._ask_worker

    def answer_of_before(*words: Any) -> bytes:
        reply = answer(*words)
        with path.open("r+b") as file:
            file.seek(SMALL.read_bytes().index(bytes.fromhex(table.build_id)))
            file.write(bytes(20))
        return reply

    monkeypatch.setattr(decoder, "_ask_worker", answer_of_before)
    with path.open("rb") as file:
        before = getattr(decoder, method)(file.fileno(), "library")
    assert before is None or before.build_id == table.build_id
    monkeypatch.undo()
    assert ask(decoder, path).build_id == 20 * "00"


@pytest.mark.parametrize("kept", [b"", b"../x", b"\xff", b"0123"])
def test_a_damaged_build_id_is_read_again(decoder: Decoder, tmp_path: Path, kept: bytes) -> None:
    first = ask(decoder, SMALL)
    (path,) = (tmp_path / "unwind").glob("*.id")
    good = path.read_bytes()
    path.write_bytes(kept)
    assert same(ask(decoder, SMALL), first)
    assert path.read_bytes() == good


def test_vdso_in_memory(decoder: Decoder) -> None:
    lines = Path("/proc/self/maps").read_text().splitlines()
    region = next(line for line in lines if line.endswith("[vdso]")).split()[0]
    start, end = (int(part, 16) for part in region.split("-"))
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        memory.seek(start)
        image = memory.read(end - start)
    fd = os.memfd_create("vdso")
    try:
        os.write(fd, image)
        assert len(decoder.table(fd, "[vdso]").rows.words) > 10
    finally:
        os.close(fd)


@pytest.mark.parametrize("contents", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF" + bytes(4096)])
def test_foreign_file_is_refused_by_name(decoder: Decoder, tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(contents)
    with pytest.raises(DecodeError, match=r"notes\.txt"):
        ask(decoder, path)
    assert ask(decoder, SMALL)


def inert(folder: Path) -> Path:
    """An ELF file without an executable segment."""
    data = bytearray(SMALL.read_bytes())
    phoff, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    for at in range(phoff, phoff + 56 * count, 56):
        struct.pack_into("<I", data, at + 4, 4)  # readable only
    path = folder / "inert"
    path.write_bytes(data)
    return path


def test_a_failure_is_remembered_and_not_tried_again(decoder: Decoder, tmp_path: Path) -> None:
    """By build id, and by all recorders that have the cache."""
    path = inert(tmp_path)
    with pytest.raises(DecodeError, match="no executable segment"):
        ask(decoder, path)
    other = Decoder(TableCache(tmp_path))
    asked: list[bytes] = []
    real = other._ask

    def ask_and_note(request: bytes, *rest: Any, **more: Any) -> bytes:
        asked.append(request)
        return real(request, *rest, **more)

    other._ask = ask_and_note  # type: ignore[method-assign]
    try:
        with pytest.raises(DecodeError, match=r"inert: .*no executable segment"):
            ask(other, path)
    finally:
        other.close()
    assert asked == []


def test_cause_survives_and_so_does_the_worker(decoder: Decoder, tmp_path: Path) -> None:
    """An ELF file refused late, when numpy already looks into its mapping."""
    path = inert(tmp_path)
    process = worker(decoder)
    with pytest.raises(DecodeError, match=r"inert: .*no executable segment"):
        ask(decoder, path)
    assert worker(decoder) is process


def test_worker_that_hangs_costs_one_module(tmp_path: Path) -> None:
    decoder = Decoder(TableCache(tmp_path), timeout=0.3)
    try:
        stopped = worker(decoder)
        os.kill(stopped.pid, signal.SIGSTOP)
        with pytest.raises(DecodeError, match=r"true.*over 0\.3 s"):
            ask(decoder, SMALL)
        assert stopped.poll() is not None
        decoder._worker.timeout = 20.0
        assert ask(decoder, SMALL)
    finally:
        decoder.close()


def test_seconds_go_by_what_is_there_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    seconds = []
    for size, stored in ((1 << 40, 0), (1 << 40, 20 << 20), (1 << 40, 100 << 20)):
        with path.open("r+b") as file:
            if stored:
                os.posix_fallocate(file.fileno(), 0, stored)
            os.truncate(path, size)
            seconds.append(seconds_for(file.fileno()))
    assert seconds[:2] == [SECONDS, SECONDS]
    assert SECONDS < seconds[2] < MOST_SECONDS


def test_too_much_work_is_said_of_the_file() -> None:
    data = memoryview(PROGRAM.read_bytes())
    assert len(build_table(data, WorkLimit(60.0)).pc)
    with pytest.raises(FormatError, match="takes over 0 s of CPU time"):
        build_table(data, WorkLimit(0.0))


def test_large_files_have_a_worker_of_their_own(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has more time, and its limit of CPU time is not that of the other; it ends after each."""
    ended: list[Any] = []
    monkeypatch.setattr(decoder._large, "close", lambda: ended.append(decoder._large.process))
    with SMALL.open("rb") as file:
        assert decoder.kept(file.fileno(), "true") is None
        assert not decoder.is_large(file.fileno())
        table = decoder.make_large(file.fileno(), "true")
        assert same(decoder.table(file.fileno(), "true"), table)
    limits = []
    for process in (decoder._worker.process, *ended):
        assert process
        lines = Path(f"/proc/{process.pid}/limits").read_text().splitlines()
        limits.append(int(next(line for line in lines if "cpu time" in line).split()[-3]))
    assert limits == [60, 240]


def test_worker_killed_while_idle_costs_nothing(decoder: Decoder) -> None:
    process = worker(decoder)
    process.kill()
    process.wait()
    assert ask(decoder, SMALL)


def test_worker_that_dies_at_work_costs_one_module(decoder: Decoder, tmp_path: Path) -> None:
    process = worker(decoder)
    path = tmp_path / "fatal"
    path.write_bytes(PROGRAM.read_bytes())

    class Cutting(Decoder):
        def _ask(self, request: bytes, *rest: Any, **more: Any) -> bytes:
            if request == b"t":
                process.kill()
            return super()._ask(request, *rest, **more)

    decoder.__class__ = Cutting
    process.poll = lambda: None  # type: ignore[method-assign] # it dies after being looked at
    with pytest.raises(DecodeError, match=r"fatal.*died"):
        ask(decoder, path)
    decoder.__class__ = Decoder
    assert ask(decoder, path)


def test_worker_that_cannot_start_is_a_decode_error(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        with pytest.raises(DecodeError, match="true"):
            ask(decoder, SMALL)
    assert ask(decoder, SMALL)


def test_file_too_large_for_the_worker_costs_one_module(decoder: Decoder, tmp_path: Path) -> None:
    """Its .eh_frame claims 3 GiB, all there (a sparse file), against a limit of 1 GiB."""
    data = bytearray(SMALL.read_bytes())
    shoff = struct.unpack_from("<Q", data, 40)[0]
    count, names = struct.unpack_from("<HH", data, 60)
    strings = struct.unpack_from("<Q", data, shoff + 64 * names + 24)[0]
    for at in range(shoff, shoff + 64 * count, 64):
        name = strings + struct.unpack_from("<I", data, at)[0]
        if data[name : name + 10] == b".eh_frame\0":
            struct.pack_into("<QQ", data, at + 24, 0, 3 << 30)
    path = tmp_path / "large"
    path.write_bytes(data)
    os.truncate(path, 4 << 30)
    process = worker(decoder)
    with pytest.raises(DecodeError, match=r"large: .*MemoryError"):
        ask(decoder, path)
    assert ask(decoder, SMALL)
    assert worker(decoder) is process


@pytest.mark.parametrize("request_", [b"i", b"t"])
def test_a_file_that_is_cut_short_while_it_is_read_is_said_to_be(
    request_: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mapped it would end the decoder (SIGBUS), as often as its owner likes."""
    path = tmp_path / "library"
    path.write_bytes(PROGRAM.read_bytes())
    read = os.pread

    def read_and_cut(fd: int, size: int, offset: int) -> bytes:
        data = read(fd, size, offset)
        os.truncate(path, 64)
        return data

    monkeypatch.setattr(os, "pread", read_and_cut)
    with path.open("rb") as file, pytest.raises(FormatError, match="cut short"):
        decoder_worker.answer(ord(request_), file.fileno())
    assert path.stat().st_size == 64


def test_worker_is_confined(decoder: Decoder) -> None:
    process = worker(decoder)
    ask(decoder, SMALL)  # by its answer it has confined itself
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
        if ":\t" in line
    )
    assert status["NoNewPrivs"] == "1"
    limits = Path(f"/proc/{process.pid}/limits").read_text()
    wanted = {"data size": 1 << 30, "file size": 0, "core file size": 0, "open files": 32}
    for name, value in wanted.items():
        line = next(limit for limit in limits.splitlines() if limit.startswith(f"Max {name}"))
        assert line.split()[-3] == str(value), line
    assert "Max cpu time              unlimited            unlimited" not in limits


@pytest.mark.root
def test_worker_gives_up_root(decoder: Decoder) -> None:
    process = worker(decoder)
    ask(decoder, SMALL)
    status = Path(f"/proc/{process.pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == ["65534"] * 4
    assert fields["Gid"].split() == ["65534"] * 4
    assert fields["Groups"].split() == []
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0


# --- as bytes ---


def test_bytes_round_trip(table: PackedTable) -> None:
    assert same(from_bytes(to_bytes(table)), table)


def test_rows_that_lie_elsewhere_take_no_memory(table: PackedTable) -> None:
    written = to_bytes(table)
    tracemalloc.start()
    rest = from_bytes(written).without_rows()
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rest.segments == table.segments and rest.base == table.base
    assert most > 4 * len(table.rows.words) > 2 * kept


@settings(max_examples=300)
@given(st.data())
def test_damaged_bytes_are_refused(table: PackedTable, data: st.DataObject) -> None:
    written = bytearray(to_bytes(table))
    place = data.draw(st.integers(0, len(written) - 1))
    written[place] ^= data.draw(st.integers(1, 255))
    try:
        unpacked = from_bytes(bytes(written))
    except FormatError:
        return
    # Only the counts, which no checksum covers, may have changed.
    assert np.array_equal(unpacked.rows.words, table.rows.words)
    assert np.array_equal(unpacked.rows.group, table.rows.group)
    assert np.array_equal(unpacked.rules, table.rules)


@settings(max_examples=300)
@given(st.data())
def test_hostile_bytes_are_sound_or_refused(table: PackedTable, data: st.DataObject) -> None:
    """A worker that was taken over can make the checksum right; what it says must still fit."""
    written = to_bytes(table)
    head = bytearray(written[: HEAD.size])
    columns = bytearray(zstandard.ZstdDecompressor().decompress(written[HEAD.size :]))
    for _ in range(data.draw(st.integers(0, 4))):
        at = 4 * data.draw(st.integers(0, len(columns) // 4 - 1))
        struct.pack_into("<I", columns, at, data.draw(_WORDS))
    if data.draw(st.booleans()):
        struct.pack_into("<I", head, 4 * data.draw(st.integers(4, 13)), data.draw(_WORDS))
    body = zstandard.ZstdCompressor(level=1).compress(bytes(columns))
    struct.pack_into("<I", head, _CRC_AT, zlib.crc32(body))
    written = bytes(head) + body
    try:
        unpacked = from_bytes(bytes(written))
    except FormatError:
        return
    words, group = unpacked.rows
    ends = group + (words[group] & 0xFFFF)
    assert (ends > group).all() and int(ends.max()) <= len(words)
    assert (group // BLOCK_WORDS == (ends - 1) // BLOCK_WORDS).all()
    assert int((words >> 16).max()) <= len(unpacked.rules)


def test_frame_that_claims_a_petabyte_is_refused(table: PackedTable) -> None:
    frame = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 50) + b"\x01\0\0"
    written = bytearray(to_bytes(table)[: HEAD.size] + frame)
    struct.pack_into("<I", written, _CRC_AT, zlib.crc32(frame))
    with pytest.raises(FormatError):
        from_bytes(bytes(written))


# --- the cache ---


def stored(cache: TableCache, tmp_path: Path, table: PackedTable) -> Path:
    cache.store("0", table)
    (path,) = (tmp_path / "unwind").iterdir()  # and no part file beside it
    return path


def test_cache_round_trip(tmp_path: Path, table: PackedTable) -> None:
    cache = TableCache(tmp_path)
    assert cache.load("0", table.build_id) is None
    stored(cache, tmp_path, table)
    cached = TableCache(tmp_path).load("0", table.build_id)
    assert cached is not None
    assert same(cached, table)
    assert cache.load("1", table.build_id) is None, "another owner's claim to the build-id"


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign", "empty", "older"])
def test_damaged_cache_file_is_made_again(
    tmp_path: Path, table: PackedTable, decoder: Decoder, damage: str
) -> None:
    first = ask(decoder, SMALL)
    (path,) = (tmp_path / "unwind").glob("*.rows")
    good = path.read_bytes()
    path.write_bytes(
        {
            "cut": good[:-7],
            "flipped": good[:80] + bytes([good[80] ^ 4]) + good[81:],
            "foreign": b"SQLite format 3\0" + bytes(4096),
            "empty": b"",
            "older": good[:8] + struct.pack("<I", VERSION - 1) + good[12:],
        }[damage]
    )
    assert same(ask(decoder, SMALL), first)
    assert path.read_bytes() == good


def test_file_of_another_module_is_not_taken(tmp_path: Path, table: PackedTable) -> None:
    cache = TableCache(tmp_path)
    path = stored(cache, tmp_path, table)
    path.rename(path.with_name("0-00ff00ff.rows"))
    assert cache.load("0", "00ff00ff") is None


@pytest.mark.parametrize("build_id", ["../../etc/passwd", "", "a/b", "a\0b", "x" * 5000])
def test_names_from_targets_stay_in_the_directory(
    tmp_path: Path, table: PackedTable, build_id: str
) -> None:
    cache = TableCache(tmp_path / "cache")
    assert cache.load("0", build_id) is None
    table = named(table, build_id)
    cache.store("0", table)
    assert list(tmp_path.rglob("*.rows")) == []


def test_directory_others_may_write_is_not_used(tmp_path: Path, table: PackedTable) -> None:
    stored(TableCache(tmp_path), tmp_path, table)
    (tmp_path / "unwind").chmod(0o777)
    assert TableCache(tmp_path).load("0", table.build_id) is None


def test_symlinked_directory_is_not_used(tmp_path: Path, table: PackedTable) -> None:
    stored(TableCache(tmp_path), tmp_path, table)
    other = tmp_path / "other"
    other.mkdir()
    (other / "unwind").symlink_to(tmp_path / "unwind")
    assert TableCache(other).load("0", table.build_id) is None


def test_symlinked_and_writable_files_are_not_read(tmp_path: Path, table: PackedTable) -> None:
    cache = TableCache(tmp_path)
    path = stored(cache, tmp_path, table)
    path.chmod(0o666)
    assert cache.load("0", table.build_id) is None
    path.chmod(0o644)
    assert cache.load("0", table.build_id) is not None
    target = path.rename(tmp_path / "elsewhere")
    path.symlink_to(target)
    assert cache.load("0", table.build_id) is None


@pytest.mark.root
def test_file_of_another_user_is_not_read(tmp_path: Path, table: PackedTable) -> None:
    cache = TableCache(tmp_path)
    os.chown(stored(cache, tmp_path, table), 65534, 65534)
    assert cache.load("0", table.build_id) is None


def test_pipe_in_the_cache_does_not_block(tmp_path: Path, table: PackedTable) -> None:
    cache = TableCache(tmp_path)
    path = stored(cache, tmp_path, table)
    path.unlink()
    os.mkfifo(path)
    assert cache.load("0", table.build_id) is None


def test_cache_that_cannot_be_made_is_done_without(tmp_path: Path, table: PackedTable) -> None:
    (tmp_path / "unwind").write_text("in the way")
    cache = TableCache(tmp_path)
    cache.store("0", table)
    assert cache.load("0", table.build_id) is None


def named(table: PackedTable, build_id: str) -> PackedTable:
    return replace(table, build_id=build_id)


def kept(tmp_path: Path) -> set[str]:
    return {path.stem.split("-")[1] for path in (tmp_path / "unwind").iterdir()}


def test_least_recently_used_goes_when_the_cache_is_full(
    tmp_path: Path, table: PackedTable
) -> None:
    size = stored(TableCache(tmp_path), tmp_path, named(table, "a0")).stat().st_size
    cache = TableCache(tmp_path, limit_bytes=5 * size + size // 2, limit_seconds=1e12)
    for number in range(5):
        cache.store("0", named(table, f"a{number}"))
        os.utime(tmp_path / f"unwind/0-a{number}.rows", (10**9 + number, 10**9 + number))
    assert kept(tmp_path) == {"a0", "a1", "a2", "a3", "a4"}
    assert cache.load("0", "a0") is not None, "the oldest, but used just now"
    cache.store("0", named(table, "b"))
    assert kept(tmp_path) == {"a0", "a3", "a4", "b"}


def test_what_nobody_used_for_long_goes(tmp_path: Path, table: PackedTable) -> None:
    cache = TableCache(tmp_path)
    for build_id in ("abc", "def"):
        cache.store("0", named(table, build_id))
    long_ago = time.time() - LIMIT_SECONDS - 60
    left = tmp_path / "unwind/12345678.part"
    left.write_bytes(b"cut short")
    for path in (tmp_path / "unwind/0-abc.rows", left):
        os.utime(path, (long_ago, long_ago))
    TableCache(tmp_path).store("0", named(table, "ace"))
    assert {path.name for path in (tmp_path / "unwind").iterdir()} == {"0-def.rows", "0-ace.rows"}


def test_errors_are_shown_as_one_line(decoder: Decoder, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"MZ")
    with pytest.raises(HpcdError) as caught:
        ask(decoder, path)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 7


def test_nothing_is_imported_once_confined() -> None:
    """hpcd may be installed where nobody but root can read, such as below /root."""
    script = """
import sys
from hpcd.daemon.unwind import decoder_worker
decoder_worker.rehearse()
sys.path.clear(); sys.meta_path.clear(); sys.path_importer_cache.clear()
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        assert decoder_worker.answer(ord("i"), file.fileno())
        assert len(decoder_worker.answer(ord("t"), file.fileno())) > 1000
"""
    files = ["/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"]
    done = subprocess.run([sys.executable, "-c", script, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
