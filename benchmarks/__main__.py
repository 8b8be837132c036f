"""All benchmarks, or those named on the command line.

python -m benchmarks [--smallest] [slowdown collector walk whole short from_start startup waits
                                   switches what_if imbalance io_calls_cost probe_cost
                                   heap_cost hung_job questions python_frames
                                   python_programs causes compare churn
                                   newcomers node merge check exports render viewer]

With --smallest each does as little as it can: whether it still works is all that shows.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from rich.console import Console

from benchmarks.workloads import SMALLEST

# The ELF benchmarks take arguments of their own and are run by name.
NAMES = (
    "collector",
    "walk",
    "whole",
    "short",
    "from_start",
    "startup",
    "slowdown",
    "waits",
    "switches",
    "what_if",
    "imbalance",
    "io_calls_cost",
    "compare",
    "hung_job",
    "questions",
    "causes",
    "probe_cost",
    "python_frames",
    "python_programs",
    "heap_cost",
    "churn",
    "newcomers",
    "node",
    "merge",
    "check",
    "exports",
    "render",
    "viewer",
)


def main() -> None:
    """Run them one after another."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--smallest", action="store_true", help="see only whether they work")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    options = parser.parse_args()
    if options.smallest:
        os.environ[SMALLEST] = "1"
    if os.geteuid() != 0:
        sys.exit("benchmarks load BPF programs and need root: sudo make bench")
    console = Console(width=None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", "120")))
    for name in options.names or NAMES:
        console.print(importlib.import_module(f"benchmarks.{name}").run())


if __name__ == "__main__":
    main()
