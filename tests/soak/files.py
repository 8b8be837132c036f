"""Measurements with bytes changed: read and checked without a crash, a hang or much memory."""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hpcd.errors import HpcdError
from hpcd.measurement.check import check_measurement
from hpcd.measurement.reader import open_measurement

ROUNDS = 100_000
_MEMORY_KIB = 1 << 20
_SLOW_SECONDS = 10.0


def run(rounds: int, seed: int) -> list[str]:
    """Run the test; return what was wrong."""
    choice = random.Random(seed)
    findings = []
    before_all = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        command = [sys.executable, "-c", "sum(range(3_000_000))"]
        subprocess.run(
            [sys.executable, "-m", "hpcd", "run", "-o", str(model), "--", *command],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        (segment,) = model.glob("segment-*.hpcd")
        whole = segment.read_bytes()
        path = Path(folder) / "m"
        path.mkdir()
        for number in range(rounds):
            (path / segment.name).write_bytes(_mutate(whole, choice))
            before = time.monotonic()
            try:
                with open_measurement(path) as measurement:
                    for part in measurement.record_chunks():
                        len(part)
                    measurement.cct.depth()
                if number % 10 == 0:
                    check_measurement(path)
            except HpcdError as error:
                if "\n" in str(error):
                    findings.append(f"round {number}: an error of several lines")
            except Exception as error:
                findings.append(f"round {number}: {error!r}")
                shutil.copy(path / segment.name, f"/tmp/finding-{number}.hpcd")
            if time.monotonic() - before > _SLOW_SECONDS:
                findings.append(f"round {number}: took {time.monotonic() - before:.0f} s")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_all
    if grown > _MEMORY_KIB:
        findings.append(f"memory grew by {grown >> 10} MiB")
    return findings


def _mutate(whole: bytes, choice: random.Random) -> bytes:
    """Bytes flipped, cut, put in, repeated or lost; every other time with right checksums."""
    data = bytearray(whole)
    for _ in range(choice.randint(1, 4)):
        at, length = choice.randrange(len(data)), choice.randint(1, 64)
        kind = choice.randrange(5)
        if kind == 0:
            data[at] ^= 1 << choice.randrange(8)
        elif kind == 1:
            del data[at : at + length]
        elif kind == 2:
            data[at:at] = choice.randbytes(length)
        elif kind == 3:
            data[at:at] = data[at : at + 4096]
        else:
            del data[at:]
        if not data:
            return b""
    return _mended(data) if choice.random() < 0.5 else bytes(data)


def _mended(data: bytearray) -> bytes:
    """Chunk headers and payloads get checksums that match, so that what is in them is looked at."""
    import struct
    import zlib

    at = 32
    while at + 32 <= len(data) and data[at : at + 4] == b"CHNK":
        (stored,) = struct.unpack_from("<I", data, at + 8)
        body = bytes(data[at + 32 : at + 32 + stored])
        struct.pack_into("<I", data, at + 24, zlib.crc32(body))
        struct.pack_into("<I", data, at + 28, zlib.crc32(bytes(data[at : at + 28])))
        at += 32 + (stored + 7 & ~7)
    return bytes(data)
