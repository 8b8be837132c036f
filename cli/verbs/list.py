"""``hpcd list``: the jobs and ranks running on this host."""

from __future__ import annotations

import argparse
import json
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hpcd.cli.command import Command
from hpcd.cli.output.terminal_text import cell, harmless, plain_table, wide_console
from hpcd.daemon.targets.jobs import JobRole
from hpcd.daemon.targets.node_survey import Running, survey


class List(Command):
    """Show the MPI and batch jobs of this host: their ranks, launchers and helper processes.

    Ranks are identified by the environment that Open MPI, MPICH and Slurm give them. CPU s is the
    CPU time a process has used since it started, CPUs the mean number of CPUs it kept busy. Without
    root, other users' jobs are not shown.
    """

    name = "list"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "-a", "--all", action="store_true", help="also show processes that belong to no job"
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, args: argparse.Namespace) -> int:
        processes = [
            process for process in survey() if args.all or process.place.job or process.container
        ]
        if args.json:
            print(json.dumps({"processes": [as_json(process) for process in processes]}))
            return 0
        if not processes:
            print("no MPI job, batch job or container runs on this host")
            return 0
        console = wide_console()
        for job, members in groupby(processes, key=lambda process: process.place.job):
            print_job(console, job, list(members))
        return 0


def print_job(console: Console, job: str, members: list[Running]) -> None:
    """Print a job: a summary line, then its processes."""
    ranks = {member.place.rank for member in members if member.place.rank is not None}
    sizes = {member.place.size for member in members if member.place.size is not None}
    head = f"job {job}" if job else "outside of jobs"
    if ranks:
        total = f" of {max(sizes)}" if sizes else ""
        head += f": {len(ranks)}{total} rank{'s' if max(sizes | ranks) != 1 else ''} here"
    cores = sum(member.cores for member in members)
    threads = sum(member.threads for member in members)
    console.print(cell(f"{head}, {threads} threads, {cores:.2f} CPUs busy"))
    console.print(as_table(members))


def as_table(members: list[Running]) -> Table:
    """Processes as rows."""
    table = plain_table()
    held = any(member.container for member in members)
    for heading, right in (
        ("  rank", True), ("role", False), ("pid", True), ("user", False), ("threads", True),
        ("CPU s", True), ("CPUs", True), *([("container", False)] if held else []),
    ):  # fmt: skip
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    # The only column that gives way where a terminal is narrow.
    table.add_column("command")
    for member in members:
        place = member.container
        table.add_row(
            "" if member.place.rank is None else str(member.place.rank),
            str(member.role or ""),
            str(member.pid),
            cell(member.user),
            str(member.threads),
            f"{member.cpu_s:,.1f}",
            f"{member.cores:.2f}",
            *([cell(f"{place.runtime} {place.id[:12]}" if place else "")] if held else []),
            Text(
                harmless(" ".join(member.command) or member.name), no_wrap=True, overflow="ellipsis"
            ),
            style="" if member.role in (JobRole.RANK, None) else "dim",
        )
    return table


def as_json(process: Running) -> dict[str, object]:
    """A process as a JSON object: times in seconds, null where unknown."""
    container = process.container
    return {
        "job": process.place.job or None,
        "batch_job": process.place.batch or None,
        "rank": process.place.rank,
        "size": process.place.size,
        "role": process.role,
        "pid": process.pid,
        "parent": process.parent,
        "user": process.user,
        "threads": process.threads,
        "cpu_s": round(process.cpu_s, 3),
        "cpus": round(process.cores, 4),
        "age_s": round(process.age_s, 3),
        "container": {"runtime": container.runtime, "id": container.id} if container else None,
        "name": process.name,
        "command": list(process.command),
    }
