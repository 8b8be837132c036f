"""Options that several verbs share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hpcd.cli.result_store import database_argument
from hpcd.errors import UsageError


def add_database_argument(parser: argparse.ArgumentParser, *, nargs: str | None = None) -> None:
    """Add ``database``, or ``databases`` where ``nargs`` lets there be several: a path or the name
    of a result. Where there need be none (``?``) the latest result is meant."""
    optional = nargs == "?"
    parser.add_argument(
        "databases" if nargs == "+" else "database",
        nargs=nargs,
        type=database_argument,
        metavar="DB",
        help="database of hpcd merge, or name of a result"
        + (" (default: the latest result)" if optional else ""),
    )


def add_repeatable(
    parser: argparse.ArgumentParser, flag: str, metavar: str, meaning: str, **more: Any
) -> None:
    """Add an option that may be given several times: a list, empty where it is not given."""
    parser.add_argument(flag, action="append", default=[], metavar=metavar, help=meaning, **more)


def add_percent_option(parser: argparse.ArgumentParser, meaning: str, default: float = 1.0) -> None:
    """Add ``--percent``, below which rows are left out."""
    parser.add_argument(
        "--percent", type=float, default=default, metavar="P",
        help=f"{meaning} (default: %(default)g)",
    )  # fmt: skip


def add_native_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--native``: the frames of interpreters are shown."""
    parser.add_argument(
        "--native",
        action="store_true",
        help="show the frames of Python's interpreter, which are folded into the Python functions"
        " that they run",
    )


def add_limit_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--limit``, how many of ``what`` a table shows."""
    parser.add_argument(
        "--limit",
        type=int,
        default=20,
        metavar="N",
        help=f"{what} to show, 0 for all (default: %(default)s)",
    )


def chosen_limit(args: argparse.Namespace) -> int | None:
    """The ``--limit`` given, None for all. Raises :class:`UsageError`."""
    if args.limit < 0:
        raise UsageError("--limit must not be negative")
    return args.limit or None


def add_context_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--scopes`` and ``--job``: what a context is, and of which job."""
    parser.add_argument(
        "--scopes",
        action="store_true",
        help="treat inlined calls and loops as contexts, where debug information describes them",
    )
    parser.add_argument("--job", metavar="NAME", help="job to analyse (default: the costliest)")


def add_partial_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--partial``: totals of recordings that saw different parts are compared."""
    parser.add_argument(
        "--partial",
        action="store_true",
        help="compare totals although a recording saw only a part of its processes",
    )


def add_source_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--source``: where source files are, if not where they were compiled."""
    add_repeatable(
        parser, "--source", "FOLDER",
        "also look for source files below FOLDER, by the longest matching end of their paths",
        type=Path,
    )  # fmt: skip


def add_tree_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--depth``, ``--width`` and ``--json``: how a tree is printed."""
    parser.add_argument("--depth", type=int, metavar="N", help="levels to show (default: all)")
    parser.add_argument("--width", type=int, metavar="N", help="columns (default: the terminal's)")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, children nested"
    )


def check_ranges(args: argparse.Namespace, *percentages: str) -> None:
    """Raise :class:`UsageError` unless each of ``percentages`` is from 0 to 100 and depth >= 1."""
    for name in percentages:
        if not 0 <= getattr(args, name) <= 100:
            raise UsageError(f"--{name} must be between 0 and 100")
    depth = getattr(args, "depth", None)
    if depth is not None and depth < 1:
        raise UsageError("--depth must be at least 1")
