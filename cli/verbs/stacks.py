"""``hpcd stacks``: where all threads of a job stand now, and what they wait for."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator

import hpcd.analysis
from hpcd.analysis.answers.stack_json import as_json
from hpcd.analysis.answers.stack_table import stack_table
from hpcd.analysis.stacks.named_paths import Path
from hpcd.analysis.stacks.reading import Reading, reading_of
from hpcd.analysis.stacks.recorded_stacks import recorded_stacks
from hpcd.analysis.stacks.stack_sentences import moved_words
from hpcd.cli.command import Command
from hpcd.cli.options import add_database_argument, add_native_option
from hpcd.cli.output.stack_text import each_lines, printable, tree_lines
from hpcd.cli.output.terminal_text import say
from hpcd.cli.present_stacks import OwnReading, ServiceReading, present_stacks
from hpcd.cli.record_options import add_options, selected, selection
from hpcd.cli.result_store import latest_result
from hpcd.cli.service_client import add_socket_option
from hpcd.daemon.access import processes
from hpcd.daemon.targets.selector import Selector
from hpcd.errors import TargetError, UsageError
from hpcd.model.stack_snapshot import ThreadStack
from hpcd.signals import ENDING, handle

_LONG_SECONDS = 2.0


class Stacks(Command):
    """Show where all threads of running processes stand now, and what they wait for.

    Reads the kernel and user stacks of every thread, asleep or running, without stopping or tracing
    any, and prints them as one tree: how many threads, and of which ranks, stand in a procedure,
    since when, and what they wait for: a lock and the thread that holds it, a file, pipe or socket
    and who has its other end, a child, a timer. What stands out comes first: the ranks that are not
    where the others are, deadlocks, and chains of waiters. Processes that the selected ones started
    are included. Needs root, or the hpcd service, which reads for any user the processes that user
    owns. With a database and --at it shows what its threads did at that moment.
    """

    name = "stacks"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_database_argument(parser, nargs="?")
        parser.add_argument(
            "--at", type=float, metavar="S",
            help="show the stacks of a database, S seconds after its beginning",
        )  # fmt: skip
        add_options(parser, self.name)
        parser.add_argument(
            "--each", action="store_true", help="print the stack of each thread, kernel frames too"
        )
        parser.add_argument(
            "--kernel", action="store_true", help="show the kernel's frames in the tree"
        )
        add_native_option(parser)
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
        add_socket_option(parser.add_argument_group("through the service (unless root)"))

    def run(self, args: argparse.Namespace) -> int:
        if args.watch is not None and not 0.1 <= args.watch <= 86_400:
            raise UsageError("--watch must be between 0.1 and 86400 seconds")
        if args.rounds < 0:
            raise UsageError("--rounds must not be negative")
        if args.at is not None or args.database:
            return _recorded(args)
        selector = selection(args)
        _require_targets(selector)
        stop = threading.Event()
        if args.watch is not None:
            handle(ENDING, stop.set)
        stacks = present_stacks(
            selector, args.socket, children=not args.no_children, native=args.native
        )
        with contextlib.closing(stacks):
            with _patience():
                first = stacks.read()
            _print_first(first, args)
            if args.watch is not None:
                _watch(first, stacks, args, stop)
        return 0


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    """Say on a terminal why it takes long, if it does: tables of new programs are made once."""

    reason = "hpcd: analysing the programs; tables are kept for the next time"
    timer = threading.Timer(_LONG_SECONDS, say, (reason,))
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _recorded(args: argparse.Namespace) -> int:
    word = args.database.name if args.database else ""
    if args.at is None and word.isdigit() and not args.database.exists():
        raise UsageError(f"unexpected argument {word}; did you mean --pid {word}?")
    if args.at is None or args.watch is not None:
        raise UsageError("give --at SECONDS with a database, and no --watch")
    if selected(args):
        raise UsageError("give either a database or processes")
    with hpcd.analysis.open(args.database or latest_result(), native=args.native) as db:
        snapshot, paths = recorded_stacks(db, args.at)
    _print_first(reading_of(snapshot, paths), args)
    return 0


def _require_targets(selector: Selector) -> None:
    for pid in selector.pids:
        if not processes.stat_fields(pid):
            raise TargetError(f"no process {pid}")
        if pid == os.getpid():
            raise TargetError("hpcd cannot read its own stacks")


def _print_first(reading: Reading, args: argparse.Namespace) -> None:
    if args.json:
        _print_json(as_json(reading))
        return
    table = stack_table(reading, kernel=args.kernel, at=args.at)
    _print([table.headline, ""])
    if table.findings:
        _print([*(str(finding["text"]) for finding in table.findings), ""])
    _print(each_lines(reading, reading.snapshot.threads) if args.each else tree_lines(table))
    _print(f"note: {note}" for note in table.notes)


def _watch(
    first: Reading,
    stacks: OwnReading | ServiceReading,
    args: argparse.Namespace,
    stop: threading.Event,
) -> None:
    """Read repeatedly; print the threads that have not moved since the first reading."""
    begun = time.monotonic()
    round_number = 1
    known = {
        _key(thread): (thread.switches, _user_part(first, thread))
        for thread in first.snapshot.threads
    }
    while round_number != args.rounds and not stop.wait(args.watch):
        round_number += 1
        try:
            now = stacks.read()
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
            else:  # from now on it counts as moving
                del known[_key(thread)]
        if args.json:
            _print_json(as_json(now, unmoved, same))
            continue
        moved = len(now.snapshot.threads) - len(unmoved) - len(same)
        seconds = time.monotonic() - begun
        _print(["", f"after {seconds:.0f} s: {moved_words(moved, len(same), len(unmoved))}"])
        threads = [t for t in now.snapshot.threads if t.tid in unmoved or t.tid in same]
        if threads:
            table = stack_table(now, threads, kernel=args.kernel)
            _print(each_lines(now, threads) if args.each else tree_lines(table))
        sys.stdout.flush()


def _user_part(reading: Reading, thread: ThreadStack) -> Path:
    """The call path but for the kernel's part, which a thread that polls seldom shows twice."""
    return tuple(frame for frame in reading.paths[thread.path] if not frame.kernel)


def _key(thread: ThreadStack) -> tuple[int, int]:
    return thread.tid, thread.start_ns


def _print(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in printable(lines)))


def _print_json(document: dict[str, object]) -> None:
    print(json.dumps(document), flush=True)
