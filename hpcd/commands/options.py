"""Options that several verbs share."""

from __future__ import annotations

import argparse
from pathlib import Path

from hpcd.errors import UsageError


def add_context_options(parser: argparse.ArgumentParser) -> None:
    """Whose contexts, and what is one."""
    parser.add_argument(
        "--scopes",
        action="store_true",
        help="inlined calls and loops are contexts, where debug information tells of them",
    )
    parser.add_argument("--job", metavar="NAME", help="the job (default: the costliest)")


def add_source_option(parser: argparse.ArgumentParser) -> None:
    """Where source files are, if not where they were compiled."""
    parser.add_argument(
        "--source",
        action="append",
        default=[],
        type=Path,
        metavar="FOLDER",
        help="look for source files here too, by as much of their paths as fits",
    )


def add_tree_options(parser: argparse.ArgumentParser) -> None:
    """How a tree is printed."""
    parser.add_argument("--depth", type=int, metavar="N", help="levels to show (default: all)")
    parser.add_argument("--width", type=int, metavar="N", help="columns (default: the terminal's)")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, children nested"
    )


def check_ranges(args: argparse.Namespace, *percentages: str) -> None:
    """Raise :class:`UsageError` unless these are between 0 and 100, and the depth one there is."""
    for name in percentages:
        if not 0 <= getattr(args, name) <= 100:
            raise UsageError(f"--{name} is between 0 and 100")
    if args.depth is not None and args.depth < 1:
        raise UsageError("--depth is at least 1")
