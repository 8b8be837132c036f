"""Tests that take too long for every day: ``make soak``, or ``python -m tests.soak [NAME ...]``.

Each prints what it did and what it found; the exit code is 1 when anything was found.
"""

from __future__ import annotations

import argparse
import importlib
import sys

NAMES = (
    "kills",
    "storage",
    "files",
    "databases",
    "messages",
    "unwind",
    "mappings",
    "findings",
    "hour",
    "hostile",
)


def main() -> int:
    """Run them one after another."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, help="how often, instead of as often as is promised")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    total = 0
    for name in args.names or NAMES:
        soak = importlib.import_module(f"tests.soak.{name}")
        rounds = args.rounds or soak.ROUNDS
        findings = soak.run(rounds, args.seed)
        print(f"{name}: {rounds:,} rounds, {len(findings)} findings", flush=True)
        for finding in findings[:20]:
            print(f"  {finding}")
        total += len(findings)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
