"""``hpcd memory``: which call paths made memory grow, and what held it: pages, and the heap."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from functools import partial

from hpcd.analysis.answers.call_groups import heap_json, memory_json
from hpcd.analysis.calls.memory import (
    MemoryStretches,
    ProcessMemory,
    measure_memory,
    memory_by_time,
    recorded_pages,
)
from hpcd.analysis.calls.process_heap import measure_heap
from hpcd.analysis.database import open as open_database
from hpcd.analysis.database.seen_processes import seen_part
from hpcd.cli.command import Command
from hpcd.cli.options import add_database_argument, add_limit_option, chosen_limit
from hpcd.cli.output.heap_table import HEAP_HEADING, heap_heading, heap_rows
from hpcd.cli.output.tree_tables import Row, TextOutput, amount_rows, print_answer
from hpcd.model.calls import Group
from hpcd.wording import bytes_text, fixed

_HEADING = "Pages by the path that touched them first, whatever allocated them."
_FIGURES = {
    "at_peak": "at peak", "at_end": "at end", "touched": "touched", "huge": "huge",
    "remote": "remote", "mapped": "mapped", "released": "released",
}  # fmt: skip

_OVER_TIME = {
    "held": "at end", "peak": "peak", "touched": "touched", "mapped": "mapped",
    "released": "released",
}  # fmt: skip


class MemoryCommand(Command):
    """Show which call paths made the memory of processes grow, and what held it at its peak.

    Of each process, by call path: bytes that were held at the peak and at the end by pages first
    touched there, bytes touched there in all and of these by huge pages and on another NUMA node
    than that of the CPU, and bytes mapped and given back by system calls; with --by time what all
    processes held together in each stretch of time. Recorded by hpcd attach, run and profile with
    --memory. With --heap: bytes allocated by call path, and of these what was held at the end,
    leaks among it, and when the process held most.
    """

    name = "memory"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_database_argument(parser, nargs="?")
        parser.add_argument(
            "--by",
            choices=("path", "time"),
            default="path",
            help="what pages are listed by: the call path of each process that touched them first,"
            " or when, all processes together (default: path)",
        )
        add_limit_option(parser, "call paths of each process")
        parser.add_argument("--width", type=int, metavar="N", help="columns")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        limit = chosen_limit(args)
        with open_database(args.database) as db:
            if args.by == "time":
                return _print_stretches(memory_by_time(db), args)
            heaps = measure_heap(db) if db.calls.of_group(Group.HEAP) else []
            processes = [] if heaps and not recorded_pages(db) else measure_memory(db)
            page = TextOutput(args.width)
            part = seen_part(db, [process.process for process in processes or heaps]).sentence()
            if args.json:
                answer = {"seen": part, "processes": [memory_json(one, limit) for one in processes]}
                if heaps:
                    answer["heap"] = [heap_json(heap, limit) for heap in heaps]
                page.write([json.dumps(answer), "\n"])
                return 0
            if part:
                page.sentences([f"part of a run: {part}"])
            if heaps:
                page.sentences([HEAP_HEADING])
            for heap in heaps:
                page.sentences(["", heap_heading(heap)])
                page.table(heap_rows(heap, limit, page.width))
            if processes:
                page.sentences([_HEADING])
            for process in processes:
                page.sentences(["", _heading(process)])
                page.table(_rows(process, limit, page.width))
        return 0


def _print_stretches(stretches: MemoryStretches, args: argparse.Namespace) -> int:
    figures = [(head, getattr(stretches, name).tolist()) for name, head in _OVER_TIME.items()]
    return print_answer(
        args, lambda: stretches, (), partial(amount_rows, figures, "time", stretches.name, None)
    )


def _heading(process: ProcessMemory) -> str:
    return (
        f"{process.name} ({process.pid}): peak {bytes_text(process.peak)} at"
        f" {fixed(process.peak_ns / 1e9, 3)} s, {bytes_text(process.at_end)} at the end,"
        f" {bytes_text(process.touched)} touched{_on_nodes(process)}"
    )


def _rows(process: ProcessMemory, limit: int | None, width: int) -> Iterator[Row]:
    paths = process.paths
    figures = [(head, getattr(paths, name).tolist()) for name, head in _FIGURES.items()]
    return amount_rows(figures, "path", paths.name, limit, width)


def _on_nodes(process: ProcessMemory) -> str:
    nodes = sorted(process.by_numa_node.items())
    if not nodes:
        return ""
    if len(nodes) == 1:
        where = f", all on NUMA node {nodes[0][0]}"
    else:
        parts = (f"{bytes_text(size)} on node {node}" for node, size in nodes)
        where = f" (NUMA: {', '.join(parts)})"
    if not process.remote:
        return where
    return f"{where}; {bytes_text(process.remote)} from CPUs of another node"
