"""Names of code made at run time, from files a runtime writes."""

from __future__ import annotations

import random
import struct

import numpy as np

from hpcd.daemon.jit import named, parse_jitdump, parse_perf_map


def record(kind: int, body: bytes) -> bytes:
    return struct.pack("<IIQ", kind, 16 + len(body), 7) + body


def load(address: int, size: int, index: int, name: str) -> bytes:
    head = struct.pack("<IIQQQQ", 1, 1, address, address, size, index)
    return record(0, head + name.encode() + b"\0" + bytes(size))


HEADER = struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 1, 0, 0)


def test_perf_map() -> None:
    text = b"7f00 10 LazyCompile:~main app.js:1\nnonsense\n7f20 zz x\n7f30 8 two words\n"
    assert parse_perf_map(text) == [
        (0x7F00, 16, "LazyCompile:~main app.js:1"),
        (0x7F30, 8, "two words"),
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
    symbols = [(0x100, 16, "old"), (0x200, 16, "b"), (0x100, 16, "new")]
    addresses = np.array([0x105, 0x10F, 0x110, 0x300], np.uint64)
    assert named(symbols, addresses) == [(0x100, 16, "new")]
