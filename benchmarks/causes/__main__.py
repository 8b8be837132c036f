"""Scores all programs, or some: ``python -m benchmarks.causes [--json] [PROGRAM ...]``.

A line for each program as soon as it was recorded, so that a run that is ended early has results.
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
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        folder = options.keep or Path(name)
        folder.mkdir(exist_ok=not options.keep)
        for one in results(folder, options.programs):
            score[one.cause, one.verdict] += 1
            text = f"{one.verdict:8}{one.program:24}{one.planted:8.3f}  {one.text}"
            print(json.dumps(vars(one)) if options.json else text, flush=True)
    if not options.json:
        for (cause, verdict), count in sorted(score.items()):
            print(f"{cause}: {verdict} {count}")


if __name__ == "__main__":
    main()
