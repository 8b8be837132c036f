"""Mutated ELF files against the table builder: none may crash it, hold it up or fill memory.

    python -m benchmarks.fuzz_elf [--files 100000] [--seed 1] [FILE...]

Each mutant is made from (seed, number) alone, so a finding can be made again with ``--first N
--files 1``. Batches run in a child process with an address space limit; the child reports what
each mutant did, and a child that dies is itself a finding. A mutant passes when
:func:`~hpcd.daemon.unwind.table_builder.build_table` returns, or raises ``FormatError``, within a
second of
CPU time: by the clock, a busy machine makes innocent mutants look slow. What blocks without using
the CPU is ended by the clock all the same.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.elf_mutations import (
    Original,
    TooSlow,
    attempt,
    default_sources,
    mutant,
    original,
)

LIMIT_SECONDS = 1.0
_BLOCKED_SECONDS = 60.0
MEMORY_LIMIT = 1 << 30  # what the worker process gets
BATCH = 2000


def _alarm(signum: int, frame: object) -> None:
    raise TooSlow


@dataclass
class Outcome:
    """Counts of how some mutants ended."""

    results: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, str]] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)
    peak_mb: float = 0.0


def run_batch(sources: list[Original], seed: int, first: int, count: int) -> Outcome:
    """Try mutants first..first+count, in this process."""
    outcome = Outcome()
    for number in range(first, first + count):
        _, data = mutant(sources, seed, number)
        signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, _BLOCKED_SECONDS)
        result, seconds = attempt(data)
        signal.setitimer(signal.ITIMER_PROF, 0)
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
    signal.signal(signal.SIGPROF, _alarm)


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
    print(f"  slowest {total.slowest[0]:.3f} s of CPU time (mutant {total.slowest[1]})")
    print(f"  peak resident memory {total.peak_mb:.0f} MB")
    for number, what in total.findings[:20]:
        print(f"  mutant {number} of {sources[number % len(sources)].name}: {what}")
    return 1 if total.findings else 0


if __name__ == "__main__":
    sys.exit(main())
