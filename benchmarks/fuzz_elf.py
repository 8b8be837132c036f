"""Mutated ELF files against the table builder: none may crash it, hold it up or fill memory.

    python benchmarks/fuzz_elf.py [--files 100000] [--seed 1] [FILE...]

Each mutant is made from (seed, number) alone, so a finding can be made again with ``--first N
--files 1``. Batches run in a child process with an address space limit; the child reports what
each mutant did, and a child that dies is itself a finding. A mutant passes when
:func:`~hpcd.daemon.unwind.table.build_table` returns, or raises ``FormatError``, within a second.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import resource
import signal
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from hpcd.daemon.unwind.elf import ElfView
from hpcd.daemon.unwind.table import build_table, pack_table, unpack_table

from hpcd.errors import FormatError

LIMIT_SECONDS = 1.0
MEMORY_LIMIT = 1 << 30  # what the worker process gets
BATCH = 500

# Values at which counts, offsets and signs go wrong.
EDGES = (
    0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF,
    0x80000000, 0xFFFFFFF0, 0xFFFFFFFF, 1 << 32, 1 << 40, 1 << 47, (1 << 63) - 1, 1 << 63,
    (1 << 64) - 4096, (1 << 64) - 1,
)  # fmt: skip


@dataclass(frozen=True)
class Original:
    """A file to mutate, and where its interesting parts are: (offset, size)."""

    name: str
    data: bytes
    headers: list[tuple[int, int]]
    frames: list[tuple[int, int]]
    code: list[tuple[int, int]]


def original(name: str, data: bytes) -> Original:
    """Find the parts of an ELF file."""
    phoff, shoff = struct.unpack_from("<QQ", data, 32)
    phnum, shnum = struct.unpack_from("<H", data, 56)[0], struct.unpack_from("<H", data, 60)[0]
    headers = [(0, 64), (phoff, 56 * phnum), (shoff, 64 * shnum)]
    elf = ElfView(memoryview(data))
    parts = elf.sections.values()
    frames = [(s.offset, s.size) for s in parts if "eh_frame" in s.name or "debug_fr" in s.name]
    others = [(s.offset, s.size) for s in parts if s.name in (".symtab", ".dynsym")]
    notes = [(s.offset, s.size) for s in parts if s.name.startswith(".note")]
    code = [(s.offset, s.size) for s in parts if s.executable]
    headers = [(at, size) for at, size in headers + notes + others if size]
    return Original(name, data, headers, [part for part in frames if part[1]], code)


def mutate(source: Original, random_: random.Random) -> bytes:
    """One mutant: a few changes, most of them where the decoder reads."""
    data = bytearray(source.data)
    for _ in range(random_.choice((1, 1, 1, 2, 3, 8, 40))):
        random_.choice(_CHANGES)(data, source, random_)
    return bytes(data)


def _inside(parts: list[tuple[int, int]], data: bytearray, random_: random.Random) -> int:
    at, size = random_.choice(parts) if parts else (0, len(data))
    return min(at + random_.randrange(size), len(data) - 1) if len(data) else 0


def _header_field(data: bytearray, source: Original, random_: random.Random) -> None:
    at = _inside(source.headers, data, random_) & ~random_.choice((1, 3, 7))
    width = random_.choice((1, 2, 4, 8))
    value = random_.choice(EDGES) if random_.random() < 0.6 else random_.randrange(len(source.data))
    data[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def _frame_bytes(data: bytearray, source: Original, random_: random.Random) -> None:
    at = _inside(source.frames, data, random_)
    length = random_.choice((1, 1, 2, 4, 16))
    data[at : at + length] = random_.randbytes(length)


def _frame_field(data: bytearray, source: Original, random_: random.Random) -> None:
    """A length or a pointer to a CIE, where these usually stand."""
    at = _inside(source.frames, data, random_) & ~3
    data[at : at + 4] = (random_.choice(EDGES) & 0xFFFFFFFF).to_bytes(4, "little")


def _frame_splice(data: bytearray, source: Original, random_: random.Random) -> None:
    if source.frames:
        start, size = random_.choice(source.frames)
        length = random_.randrange(1, 256)
        a, b = random_.randrange(size), random_.randrange(size)
        piece = bytes(data[start + a : start + a + length])
        data[start + b : start + b + len(piece)] = piece


def _flip(data: bytearray, source: Original, random_: random.Random) -> None:
    if data:
        data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)


def _code_bytes(data: bytearray, source: Original, random_: random.Random) -> None:
    at = _inside(source.code, data, random_)
    data[at : at + 8] = random_.randbytes(8)


def _cut(data: bytearray, source: Original, random_: random.Random) -> None:
    if random_.random() < 0.3:
        del data[random_.randrange(len(data) + 1) :]


def _long_number(data: bytearray, source: Original, random_: random.Random) -> None:
    at = _inside(source.frames, data, random_)
    length = random_.choice((3, 9, 10, 30))
    data[at : at + length] = b"\xff" * (length - 1) + b"\x7f"


_CHANGES: tuple[Callable[[bytearray, Original, random.Random], None], ...] = (
    _header_field, _header_field, _header_field, _frame_bytes, _frame_bytes, _frame_field,
    _frame_splice, _flip, _code_bytes, _cut, _long_number,
)  # fmt: skip


def mutant(sources: list[Original], seed: int, number: int) -> tuple[Original, bytes]:
    """Mutant ``number``, always the same for one seed and one list of sources."""
    source = sources[number % len(sources)]
    return source, mutate(source, random.Random(seed << 40 | number))


class TooSlow(BaseException):  # noqa: N818 - not an Exception: nothing may catch it on the way
    """A mutant took over :data:`LIMIT_SECONDS`."""


def _alarm(signum: int, frame: object) -> None:
    raise TooSlow


def attempt(data: bytes) -> tuple[str, float]:
    """("table", "refused" or a finding, seconds) of one mutant."""
    start = time.perf_counter()
    try:
        unpack_table(pack_table(build_table(memoryview(data))))
        result = "table"
    except FormatError:
        result = "refused"
    except TooSlow:
        result = "too slow"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        last = traceback.extract_tb(error.__traceback__)[-1]
        result = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
    return result, time.perf_counter() - start


@dataclass
class Outcome:
    """What became of some mutants."""

    results: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, str]] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)
    peak_mb: float = 0.0


def run_batch(sources: list[Original], seed: int, first: int, count: int) -> Outcome:
    """Try mutants first..first+count, in this process."""
    outcome = Outcome()
    for number in range(first, first + count):
        _, data = mutant(sources, seed, number)
        signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS)
        result, seconds = attempt(data)
        signal.setitimer(signal.ITIMER_REAL, 0)
        outcome.results[result] += 1
        if result not in ("table", "refused"):
            outcome.findings.append((number, result))
        outcome.slowest = max(outcome.slowest, (seconds, number))
    outcome.peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return outcome


def _confine() -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, _alarm)


def vdso() -> bytes:
    """The kernel's shared object, as mapped here."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            return ctypes.string_at(start, end - start)
    return b""


def default_sources() -> list[Original]:
    """The vDSO and some small programs and libraries of this machine."""
    names = (
        "/usr/bin/true", "/usr/bin/env", "/lib/x86_64-linux-gnu/libdl.so.2",
        "/lib/x86_64-linux-gnu/libanl.so.1", "/lib/x86_64-linux-gnu/libz.so.1",
    )  # fmt: skip
    found = [("vdso", vdso())] + [(n, Path(n).read_bytes()) for n in names if Path(n).exists()]
    return [original(name, data) for name, data in found if data]


def main() -> int:
    """Run the soak and print a summary; the exit code is 1 when there are findings."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("sources", nargs="*", type=Path)
    options = parser.parse_args()
    sources = [original(str(p), p.read_bytes()) for p in options.sources] or default_sources()
    total = Outcome()
    start = time.perf_counter()
    end = options.first + options.files
    for first in range(options.first, end, BATCH):
        count = min(BATCH, end - first)
        # One child at a time: two would slow each other down and so blame innocent mutants.
        with ProcessPoolExecutor(1, initializer=_confine) as pool:
            try:
                part = pool.submit(run_batch, sources, options.seed, first, count).result()
            except BrokenProcessPool:
                total.results["died"] += count
                total.findings.append((first, f"the child died within {count} mutants"))
                continue
        total.results += part.results
        total.findings += part.findings
        total.slowest = max(total.slowest, part.slowest)
        total.peak_mb = max(total.peak_mb, part.peak_mb)
    seconds = time.perf_counter() - start
    print(f"{options.files} mutants of {len(sources)} files, seed {options.seed}, {seconds:.0f} s")
    for result, count in total.results.most_common():
        print(f"  {count:8} {result}")
    print(f"  slowest {total.slowest[0]:.3f} s (mutant {total.slowest[1]})")
    print(f"  peak resident memory {total.peak_mb:.0f} MB")
    for number, what in total.findings[:20]:
        print(f"  mutant {number} of {sources[number % len(sources)].name}: {what}")
    return 1 if total.findings else 0


if __name__ == "__main__":
    sys.exit(main())
