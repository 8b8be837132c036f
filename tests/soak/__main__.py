"""Tests that take too long for every day: ``make soak``, or ``python -m tests.soak [NAME ...]``.

Each prints what it did and what it found; the exit code is 1 when anything was found.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

SANITIZED = ("measurements", "databases", "imports", "requests")
"""Those that change what hpcd reads."""
NAMES = (
    "kills",
    "storage",
    *SANITIZED,
    "messages",
    "unwind",
    "rules",
    "mappings",
    "findings",
    "floods",
    "hour",
    "hostile",
)


def main() -> int:
    """Run them one after another."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, help="how often, instead of as often as is promised")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--sanitized", action="store_true",
        help=f"on kernels built with sanitizers: {', '.join(SANITIZED)}, unless names are given",
    )  # fmt: skip
    args = parser.parse_args()
    if args.sanitized:
        return _run_sanitized(args)
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


def _run_sanitized(args: argparse.Namespace) -> int:
    from tests.support.sanitized import run_sanitized

    rounds = [f"--rounds={args.rounds}"] if args.rounds else []
    with tempfile.TemporaryDirectory() as folder:
        return run_sanitized(
            Path(folder), "tests.soak", *(args.names or SANITIZED), f"--seed={args.seed}", *rounds,
            root=Path.cwd(), capture=False,
        ).returncode  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
