"""``hpcd memory``: which call paths made memory grow, and what held it at its peak."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from hpcd.analysis.calls.memory import ProcessMemory, measure_memory
from hpcd.analysis.database import open as open_database
from hpcd.analysis.profile.report import shorten
from hpcd.cli.command import Command
from hpcd.cli.options import add_database_argument, add_limit_option, chosen_limit
from hpcd.cli.output.sizes import size_text
from hpcd.cli.output.tree_tables import Page, Row

_MIN_NAME = 24
_FIGURES = ("at_peak", "at_end", "touched", "huge", "mapped", "released")


class MemoryCommand(Command):
    """Show which call paths made the memory of processes grow, and what held it at its peak.

    Of each process, by call path: bytes that were held at the peak and at the end by pages first
    touched there, bytes touched there in all and of these by huge pages, and bytes mapped and given
    back by system calls. Recorded by hpcd attach, run and profile with --memory.
    """

    name = "memory"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The options of ``hpcd memory``."""
        add_database_argument(parser, nargs="?")
        add_limit_option(parser, "call paths of each process")
        parser.add_argument("--width", type=int, metavar="N", help="columns")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        """Print the tables."""
        limit = chosen_limit(args)
        with open_database(args.database) as db:
            processes = measure_memory(db)
            page = Page(args.width)
            if args.json:
                page.write([json.dumps(_as_json(processes, limit)), "\n"])
                return 0
            for process in processes:
                page.table(_rows(process, limit, page.width))
        return 0


def _rows(process: ProcessMemory, limit: int | None, width: int) -> Iterator[Row]:
    yield Row(
        "",
        "",
        f"{process.name} ({process.pid}): peak {size_text(process.peak)}B at"
        f" {process.peak_ns / 1e9:.3f} s, {size_text(process.at_end)}B at the end,"
        f" {size_text(process.touched)}B touched",
    )
    heads = ("at peak", "at end", "touched", "huge", "mapped", "released")
    yield Row("".join(f"{head:>9} " for head in heads) + " ", "", "path")
    paths = process.paths
    for at in range(min(len(paths), limit or len(paths))):
        figures = "".join(
            f"{size_text(int(column[at])):>9} "
            for column in (getattr(paths, name) for name in _FIGURES)
        )
        name = shorten(paths.name[at], max(width - len(figures), _MIN_NAME))
        yield Row(figures + " ", "", name)
    if limit and len(paths) > limit:
        yield Row("", "", f"(not shown: {len(paths) - limit:,} more; --limit 0 for all)")


def _as_json(processes: list[ProcessMemory], limit: int | None) -> dict[str, list[dict[str, Any]]]:
    return {
        "processes": [
            {
                "name": process.name,
                "pid": process.pid,
                "touched": process.touched,
                "peak": process.peak,
                "peak_ns": process.peak_ns,
                "at_end": process.at_end,
                "paths": [
                    {
                        "path": process.paths.name[at],
                        "node": int(node),
                        **{name: int(getattr(process.paths, name)[at]) for name in _FIGURES},
                    }
                    for at, node in enumerate(process.paths.node[:limit].tolist())
                ],
            }
            for process in processes
        ]
    }
