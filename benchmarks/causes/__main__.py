"""Scores all programs, or some: ``python -m benchmarks.causes [--json] [PROGRAM ...]``.

A line for each program as soon as it was recorded, so that a run that is ended early has results:
the verdict, the amount planted, by what part a thread's CPU time and its time without a CPU differ
at most from the kernel's count, and the first sentence. With ``--keep`` recordings stay.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.causes import results
from benchmarks.workloads import scratch


def main() -> None:
    """Print the results, and with no ``--json`` the score."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.causes", description=__doc__)
    parser.add_argument("--json", action="store_true", help="each result as a JSON object")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="a new one for the recordings")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("recording needs root")
    score: Counter[tuple[str, str]] = Counter()
    cpu = runnable = 0.0
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        folder = options.keep or Path(name)
        folder.mkdir(exist_ok=not options.keep)
        for one in results(folder, options.programs):
            score[one.cause, one.verdict] += 1
            cpu, runnable = max(cpu, one.cpu_differs), max(runnable, one.runnable_differs)
            differs = f"{one.cpu_differs:8.2%}{one.runnable_differs:8.2%}"
            text = f"{one.verdict:8}{one.program:24}{one.planted:8.3f}{differs}  {one.text}"
            print(json.dumps(vars(one)) if options.json else text, flush=True)
    if not options.json:
        for (cause, verdict), count in sorted(score.items()):
            print(f"{cause}: {verdict} {count}")
        print(
            f"from the kernel's count of a thread: CPU time {cpu:.2%}, without a CPU {runnable:.2%}"
        )


if __name__ == "__main__":
    main()
