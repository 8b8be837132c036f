"""``hpcd list``: the jobs and ranks running on this node."""

from __future__ import annotations

import argparse
import json
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hpcd.commands.base import Command
from hpcd.daemon.jobs import Role
from hpcd.daemon.survey import Running, survey

# Where there is no terminal to fit: enough to see what a command is.
_PIPE_WIDTH = 160


class List(Command):
    """Show the MPI and batch jobs of this node: their ranks, launchers and helper processes.

    Ranks are found from what Open MPI, MPICH and Slurm tell them. CPU is what a process has used
    since it began, and how many CPUs that kept busy on average. Without root, other users' jobs
    are unknown.
    """

    name = "list"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "-a", "--all", action="store_true", help="processes outside of any job, too"
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, args: argparse.Namespace) -> int:
        found = [each for each in survey() if args.all or each.place.job or each.container]
        if args.json:
            print(json.dumps({"processes": [as_json(each) for each in found]}))
            return 0
        if not found:
            print("no MPI job, batch job or container runs on this node")
            return 0
        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=_PIPE_WIDTH)
        for job, members in groupby(found, key=lambda each: each.place.job):
            print_job(console, job, list(members))
        return 0


def print_job(console: Console, job: str, members: list[Running]) -> None:
    """One job's table under a line that sums it up."""
    ranks = {each.place.rank for each in members if each.place.rank is not None}
    sizes = {each.place.size for each in members if each.place.size is not None}
    head = f"job {job}" if job else "outside of jobs"
    if ranks:
        total = f" of {max(sizes)}" if sizes else ""
        head += f": {len(ranks)}{total} rank{'s' if max(sizes | ranks) != 1 else ''} here"
    cores = sum(each.cores for each in members)
    threads = sum(each.threads for each in members)
    console.print(Text(f"{head}, {threads} threads, {cores:.2f} CPUs busy"))
    console.print(as_table(members))


def as_table(members: list[Running]) -> Table:
    """Processes as rows."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    held = any(each.container for each in members)
    for heading, right in (
        ("  rank", True), ("role", False), ("pid", True), ("user", False), ("threads", True),
        ("CPU s", True), ("CPUs", True), *([("container", False)] if held else []),
    ):  # fmt: skip
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    # The only column that gives way where a terminal is narrow.
    table.add_column("command")
    for each in members:
        table.add_row(
            "" if each.place.rank is None else str(each.place.rank),
            str(each.role or ""),
            str(each.pid),
            each.user,
            str(each.threads),
            f"{each.cpu_s:,.1f}",
            f"{each.cores:.2f}",
            *([_container(each)] if held else []),
            Text(_command(each), no_wrap=True, overflow="ellipsis"),
            style="" if each.role in (Role.RANK, None) else "dim",
        )
    return table


def as_json(each: Running) -> dict[str, Any]:
    """A process for scripts: times in seconds, null for what it has not."""
    container = each.container
    return {
        "job": each.place.job or None,
        "batch_job": each.place.batch or None,
        "rank": each.place.rank,
        "size": each.place.size,
        "role": each.role,
        "pid": each.pid,
        "parent": each.parent,
        "user": each.user,
        "threads": each.threads,
        "cpu_s": round(each.cpu_s, 3),
        "cpus": round(each.cores, 4),
        "age_s": round(each.age_s, 3),
        "container": {"runtime": container.runtime, "id": container.id} if container else None,
        "name": each.name,
        "command": list(each.command),
    }


def _command(each: Running) -> str:
    text = " ".join(each.command) or each.name
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _container(each: Running) -> str:
    return f"{each.container.runtime} {each.container.id[:12]}" if each.container else ""
