"""All benchmarks, or those named on the command line.

python -m benchmarks [slowdown collector walk whole waits imbalance compare churn newcomers
                      node merge render viewer]
"""

from __future__ import annotations

import importlib
import os
import sys

from rich.console import Console

# The ELF benchmarks take arguments of their own and are run by name.
NAMES = (
    "collector",
    "walk",
    "whole",
    "slowdown",
    "waits",
    "imbalance",
    "compare",
    "churn",
    "newcomers",
    "node",
    "merge",
    "render",
    "viewer",
)


def main() -> None:
    """Run them one after another."""
    if os.geteuid() != 0:
        sys.exit("benchmarks load BPF programs and need root: sudo make bench")
    console = Console(width=None if sys.stdout.isatty() else 120)
    for name in sys.argv[1:] or NAMES:
        console.print(importlib.import_module(f"benchmarks.{name}").run())


if __name__ == "__main__":
    main()
