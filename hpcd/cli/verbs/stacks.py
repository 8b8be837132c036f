"""``hpcd stacks``: where all threads of a job stand now, and what they wait for."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import hpcd.analysis
from hpcd.analysis.stacks.named_paths import Path, PathNames
from hpcd.analysis.stacks.outliers import outliers
from hpcd.analysis.stacks.recorded_stacks import recorded_stacks
from hpcd.analysis.stacks.wait_words import named_wait
from hpcd.analysis.stacks.waiting_chains import waiting_chains
from hpcd.cli.command import Command
from hpcd.cli.options import add_database_argument
from hpcd.cli.output.stack_json import as_json
from hpcd.cli.output.stack_text import (
    Reading,
    each_lines,
    findings,
    headline,
    moved_words,
    printable,
    tree_lines,
)
from hpcd.cli.result_store import latest_result
from hpcd.cli.verbs.attach import add_selection_options, selection
from hpcd.daemon.stacks.stack_reader import StackReader
from hpcd.daemon.targets import processes
from hpcd.daemon.targets.selector import Selector
from hpcd.errors import PrivilegeError, TargetError, UsageError
from hpcd.model.stack_snapshot import ThreadStack

_LONG_SECONDS = 2.0


class Stacks(Command):
    """Show where all threads of running processes stand now, and what they wait for.

    Reads the kernel and user stacks of every thread, asleep or running, without stopping or tracing
    any, and prints them as one tree: how many threads, and of which ranks, stand in a procedure,
    since when, and what they wait for: a lock and the thread that holds it, a file, pipe or socket
    and who has its other end, a child, a timer. What stands out comes first: the ranks that are not
    where the others are, deadlocks, and chains of waiters. Processes that the selected ones started
    are included. Needs root. With a database and --at it shows what its threads did at that moment.
    """

    name = "stacks"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_database_argument(parser, nargs="?")
        parser.add_argument(
            "--at", type=float, metavar="S",
            help="show the stacks of a database, S seconds after its beginning",
        )  # fmt: skip
        add_selection_options(parser)
        parser.add_argument(
            "--no-children", action="store_true", help="leave out processes that a target started"
        )
        parser.add_argument(
            "--each", action="store_true", help="print the stack of each thread, kernel frames too"
        )
        parser.add_argument(
            "--kernel", action="store_true", help="show the kernel's frames in the tree"
        )
        parser.add_argument(
            "--watch", type=float, metavar="S",
            help="read again every S seconds, and show what has not moved since the first time",
        )  # fmt: skip
        parser.add_argument(
            "--rounds", type=int, default=0, metavar="N",
            help="end --watch after N readings (default: on Ctrl-C)",
        )  # fmt: skip
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object, with --watch one a line"
        )

    def run(self, args: argparse.Namespace) -> int:
        if args.watch is not None and not 0.1 <= args.watch <= 86_400:
            raise UsageError("--watch must be between 0.1 and 86400 seconds")
        if args.rounds < 0:
            raise UsageError("--rounds must not be negative")
        if args.at is not None or args.database:
            return _recorded(args)
        selector = selection(args)
        if os.geteuid() != 0:
            raise PrivilegeError("hpcd stacks reads other processes' memory: sudo hpcd stacks ...")
        _require_targets(selector)
        stop = threading.Event()
        if args.watch is not None:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, lambda *_: stop.set())
        with contextlib.closing(StackReader()) as reader:
            names = PathNames()
            with _patience():
                first = read(reader, names, _pids(selector, children=not args.no_children))
            _print_first(first, args)
            if args.watch is not None:
                _watch(first, reader, names, selector, args, stop)
        return 0


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    """Say on a terminal why it takes long, if it does: tables of new programs are made once."""

    def say() -> None:
        print("hpcd: analysing the programs; tables are kept for the next time", file=sys.stderr)

    timer = threading.Timer(_LONG_SECONDS, say)
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _recorded(args: argparse.Namespace) -> int:
    if args.at is None or args.watch is not None:
        raise UsageError("give --at SECONDS with a database, and no --watch")
    chosen = (args.pid, args.comm, args.user, args.cgroup, args.container, args.job, args.all)
    if any(chosen):
        raise UsageError("give either a database or processes")
    with hpcd.analysis.open(args.database or latest_result()) as db:
        snapshot, paths = recorded_stacks(db, args.at)
    by_tid = {thread.tid: thread for thread in snapshot.threads}
    _print_first(Reading(snapshot, paths, outliers(snapshot, paths), waiting_chains(by_tid)), args)
    return 0


def read(reader: StackReader, names: PathNames, pids: list[int]) -> Reading:
    """A snapshot of ``pids`` with its paths named, and what stands out in it."""
    snapshot = reader.snapshot(pids)
    paths = names.paths(snapshot)
    for thread in snapshot.threads:
        thread.wait = named_wait(thread, paths[thread.path])
    by_tid = {thread.tid: thread for thread in snapshot.threads}
    return Reading(snapshot, paths, outliers(snapshot, paths), waiting_chains(by_tid))


def _require_targets(selector: Selector) -> None:
    for pid in selector.pids:
        if not processes.stat_fields(pid):
            raise TargetError(f"no process {pid}")
        if pid == os.getpid():
            raise TargetError("hpcd cannot read its own stacks")


def _pids(selector: Selector, *, children: bool) -> list[int]:
    """The selected processes. Those named by pid may be zombies and kernel threads, too."""
    pids = dict.fromkeys(selector.scan())
    pids |= dict.fromkeys(pid for pid in selector.pids if selector.matches(pid))
    if children and not selector.everything:
        for pid in list(pids):
            if not processes.is_kernel_thread(pid):
                pids |= dict.fromkeys(processes.descendants(pid))
    for own in processes.descendants(os.getpid()):
        pids.pop(own, None)  # what analyses files
    if not pids:
        raise TargetError(f"no process matches {selector.describe()}")
    return list(pids)


def _print_first(reading: Reading, args: argparse.Namespace) -> None:
    if args.json:
        _print_json(as_json(reading))
        return
    _print([headline(reading.snapshot, args.at), ""])
    found = list(findings(reading))
    if found:
        _print([*found, ""])
    threads = reading.snapshot.threads
    _print(each_lines(reading, threads) if args.each else _tree(reading, threads, args))
    _print(f"note: {note}" for note in reading.snapshot.notes)


def _watch(
    first: Reading, reader: StackReader, names: PathNames, selector: Selector,
    args: argparse.Namespace, stop: threading.Event,
) -> None:  # fmt: skip
    """Read again and again; print what is where it was at first."""
    begun = time.monotonic()
    round_number = 1
    known = {
        _key(thread): (thread.switches, _user_part(first, thread))
        for thread in first.snapshot.threads
    }
    while round_number != args.rounds and not stop.wait(args.watch):
        round_number += 1
        try:
            now = read(reader, names, _pids(selector, children=not args.no_children))
        except TargetError as error:
            if args.json:
                return
            _print(["", str(error)])
            return
        unmoved, same = set(), set()
        for thread in now.snapshot.threads:
            before = known.get(_key(thread))
            if before is None:
                continue
            if before[0] == thread.switches and thread.seconds is not None:
                unmoved.add(thread.tid)
            elif before[1] == _user_part(now, thread):
                same.add(thread.tid)
            else:  # from now on it counts as one that moves
                del known[_key(thread)]
        if args.json:
            _print_json(as_json(now, unmoved, same))
            continue
        moved = len(now.snapshot.threads) - len(unmoved) - len(same)
        seconds = time.monotonic() - begun
        _print(["", f"after {seconds:.0f} s: {moved_words(moved, len(same), len(unmoved))}"])
        threads = [t for t in now.snapshot.threads if t.tid in unmoved or t.tid in same]
        if threads:
            _print(each_lines(now, threads) if args.each else _tree(now, threads, args))
        sys.stdout.flush()


def _user_part(reading: Reading, thread: ThreadStack) -> Path:
    """The call path but for the kernel's part, which a thread that polls seldom shows twice."""
    return tuple(frame for frame in reading.paths[thread.path] if not frame.kernel)


def _key(thread: ThreadStack) -> tuple[int, int]:
    return thread.tid, thread.start_ns


def _tree(
    reading: Reading, threads: Iterable[ThreadStack], args: argparse.Namespace
) -> Iterable[str]:
    return tree_lines(reading, threads, kernel=args.kernel)


def _print(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in printable(lines)))


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)
