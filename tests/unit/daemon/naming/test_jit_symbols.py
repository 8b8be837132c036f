"""Names of code made at run time, from files a runtime writes."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hpcd.daemon.naming.jit_symbols import (
    ROUND_BYTES,
    JitFiles,
    Symbols,
    _header_size,
    holders,
    holding,
    parse_perf_map,
    read_records,
)


def parse_jitdump(data: bytes) -> list[tuple[int, int, str]]:
    """Code loads of a jitdump file, moves applied; ends at the first record that makes no sense."""
    by_index: dict[int, tuple[int, int, str]] = {}
    symbols: Symbols = []
    if start := _header_size(data):
        read_records(data[start:], by_index, symbols)
    assert len(symbols) >= len(by_index)
    return list(by_index.values())


def record(kind: int, body: bytes) -> bytes:
    return struct.pack("<IIQ", kind, 16 + len(body), 7) + body


def load(address: int, size: int, index: int, name: str) -> bytes:
    head = struct.pack("<IIQQQQ", 1, 1, address, address, size, index)
    return record(0, head + name.encode() + b"\0" + bytes(size))


HEADER = struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 1, 0, 0)


def test_perf_map() -> None:
    text = b"7f00 10 LazyCompile:~main app.js:1\nnonsense\n7f20 zz x\n7f30 8 two words\n"
    assert parse_perf_map(text) == [
        (0x7F00, 16, "LazyCompile:~main app.js:1", 0),
        (0x7F30, 8, "two words", text.index(b"7f30")),
    ]


def test_jitdump_loads_and_moves() -> None:
    move = record(1, struct.pack("<IIQQQQQ", 1, 1, 0, 0x1000, 0x5000, 32, 1))
    data = HEADER + load(0x1000, 32, 1, "first") + load(0x2000, 16, 2, "second") + move
    assert sorted(parse_jitdump(data)) == [(0x2000, 16, "second"), (0x5000, 32, "first")]


def test_hostile_files_give_something_or_nothing() -> None:
    rng = random.Random(4)
    good = HEADER + b"".join(load(0x1000 * i, 32, i, f"f{i}") for i in range(1, 20))
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        assert len(parse_jitdump(bytes(data[: rng.randrange(len(data))]))) < 20
        parse_perf_map(bytes(data))
    assert parse_jitdump(b"") == [] == parse_jitdump(b"\x7fELF" + bytes(100))


def test_only_what_was_sampled_is_named() -> None:
    symbols = [(0x100, 16, "old", 1), (0x200, 16, "b", 2), (0x108, 8, "new", 3)]
    addresses = np.array([0x105, 0x10F, 0x110, 0x300], np.uint64)
    assert holding(symbols, addresses) == [symbols[0], symbols[2]]
    assert holders(symbols, addresses).tolist() == [0, 2, -1, -1]


@pytest.fixture
def map_file() -> Iterator[Path]:
    """The map this process's runtime would write."""
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    yield path
    path.unlink(missing_ok=True)


def names(files: JitFiles, addresses: list[int], uid: int | None = None) -> list[str]:
    user = os.getuid() if uid is None else uid
    symbols = files.symbols(1, os.getpid(), user, np.array(addresses, np.uint64))
    return [name for _, _, name, _ in symbols]


def test_a_map_that_grows_is_read_as_it_grows(map_file: Path) -> None:
    files = JitFiles()
    assert names(files, [0x105]) == []
    map_file.write_text("100 10 first\n")
    assert names(files, [0x105]) == ["first"]
    with map_file.open("a") as file:
        file.write("200 10 second\n100 10 recompiled\n")
    files.new_round()
    assert sorted(names(files, [0x105, 0x205])) == ["first", "recompiled", "second"]
    files.new_round()
    assert names(files, [0x105, 0x205]) == []
    files.close()


def test_a_line_of_a_map_holds_since_it_was_written(map_file: Path) -> None:
    files = JitFiles()
    since: dict[str, int] = {}

    def look() -> dict[str, int]:
        files.new_round()
        rows = files.symbols(1, os.getpid(), os.getuid(), np.array([0x105], np.uint64))
        # What was written before may be found again, and is the same then.
        new = {name: time for _, _, name, time in rows if since.setdefault(name, time) == time}
        assert len(new) == len(rows)
        return new

    # The clock of a file's times is one of ticks.
    begin = time.monotonic_ns() - 20_000_000
    map_file.write_text("100 10 first\n")
    assert look().keys() == {"first"}
    with map_file.open("a") as file:
        file.write("100 10 between\n100 10 second\n")
    assert "between" not in look()
    # A time that was set is never in the future, nor before the last one.
    for when in (1, 1 << 40):
        with map_file.open("a") as file:
            file.write(f"100 10 {when}\n")
        os.utime(map_file, (when, when))
        look()
    # All is new in a file that is written anew.
    map_file.write_text("100 10 last\n")
    assert look().keys() == {"last"}
    assert list(since) == ["first", "second", "1", str(1 << 40), "last"]
    times = [begin, *since.values(), time.monotonic_ns() + 1]
    assert times == sorted(times)
    files.close()


def test_a_line_that_many_parts_of_a_map_repeat_is_one_symbol(map_file: Path) -> None:
    line = b"100 10 %d" + b" " * 1000 + b"\n"
    map_file.write_bytes(b"".join(line % number for number in range(3000)))
    files = JitFiles()
    repeated: list[str] = []
    for _ in range(8):
        files.new_round()
        repeated += names(files, [0x105])
    assert repeated == ["2999"]
    files.close()


def test_a_map_that_is_written_when_the_process_ends_is_read() -> None:
    """Its folder is found as long as the process lives: by then it must be held."""
    process = subprocess.Popen(["/bin/sleep", "60"])
    path = Path(f"/tmp/perf-{process.pid}.map")
    held, late = JitFiles(), JitFiles()
    try:
        held.hold(1, process.pid, os.getuid())
        path.write_text("100 10 last\n")
        process.kill()
        process.wait()
        arguments = (1, process.pid, os.getuid(), np.array([0x105], np.uint64))
        assert [name for _, _, name, _ in held.symbols(*arguments)] == ["last"]
        assert late.symbols(*arguments) == []
    finally:
        process.kill()
        path.unlink(missing_ok=True)
        held.close()
        late.close()


def test_a_map_of_any_size_is_read_a_part_at_a_time(map_file: Path) -> None:
    """64 MiB of the shortest lines, read at once, are a gigabyte and seconds."""
    map_file.write_bytes(b"100 10 first\n" + b"9 1 x\n" * ((3 << 20) // 6))
    files = JitFiles()
    rounds = 0
    while not names(files, [0x105]):
        files.new_round()
        rounds += 1
    assert rounds >= map_file.stat().st_size // ROUND_BYTES - 1
    files.close()


def test_what_is_no_map_of_its_user_is_not_read(map_file: Path) -> None:
    secret = map_file.with_suffix(".secret")
    try:
        secret.write_text("100 10 secret\n")
        map_file.symlink_to(secret)
        assert names(JitFiles(), [0x105]) == []
        map_file.unlink()
        os.mkfifo(map_file)
        assert names(JitFiles(), [0x105]) == []
        map_file.unlink()
        # Root's own, for a process of another user's: what all may read, as perf has it.
        secret.rename(map_file)
        if os.getuid() == 0:
            map_file.chmod(0o600)
            assert names(JitFiles(), [0x105], uid=48_002) == []
            map_file.chmod(0o644)
            assert names(JitFiles(), [0x105], uid=48_002) == ["secret"]
        with map_file.open("r+") as file:
            file.truncate(1 << 40)
        assert names(JitFiles(), [0x105]) == []
    finally:
        secret.unlink(missing_ok=True)


def test_long_records_and_those_that_are_cut_off() -> None:
    long = load(0x1000, 2 << 20, 1, "long") + load(0x900000, 16, 2, "after")
    by_index: dict[int, tuple[int, int, str]] = {}
    symbols: Symbols = []
    first = read_records(long[: 1 << 20], by_index, symbols)
    assert first > 1 << 20 and [name for _, _, name in by_index.values()] == ["long"]
    assert read_records(long[first:], by_index, symbols) == len(long) - first
    assert symbols == [(0x1000, 2 << 20, "long", 7), (0x900000, 16, "after", 7)]
    assert [name for _, _, name in by_index.values()] == ["long", "after"]
