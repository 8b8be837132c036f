"""``hpcd profile``: from processes or a command to a report, in one step."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from hpcd.cli.command import Command
from hpcd.cli.output.summary_text import caveats
from hpcd.cli.output.terminal_text import harmless, say
from hpcd.cli.record_options import add_options, add_summary_options, selected
from hpcd.cli.recorder import (
    record_by_service,
    record_here,
    report,
)
from hpcd.cli.result_store import User, checked_name, new_name, results_folder, user
from hpcd.cli.service_client import add_socket_option
from hpcd.cli.verbs.run import command_of, run_recorded
from hpcd.daemon.access import processes
from hpcd.errors import HpcdError, StorageError, UsageError
from hpcd.output_file import open_output
from hpcd.sandbox.user_rights import groups_of
from hpcd.signals import ENDING, ignored, interrupt_on, say_once
from hpcd.startup.isolation import python_command, python_environment

if TYPE_CHECKING:
    from hpcd.measurement.summary import Summary

_LARGE = "/var/tmp"


class ProfileCommand(Command):
    """Record running processes or a command, merge, and print the report.

    Needs root to record, or the hpcd service for one's own processes. The database is kept by name
    in the results of the user who asked (under sudo, of the user who ran sudo); the measurement is
    not. hpcd view shows the latest result in a browser, hpcd results lists all. Every option of
    hpcd report works on a result: hpcd report --view flat. Ctrl-C, SIGTERM and the end of the
    terminal end the recording, never the merge.

    A command keeps its standard output, so the report of one goes to standard error, or to -o FILE.
    """

    name = "profile"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_options(parser, self.name)
        add_summary_options(parser)
        parser.add_argument(
            "--name", type=checked_name, help="the result's name (default: PROGRAM-TIME)"
        )
        parser.add_argument(
            "-o", "--output", type=Path, metavar="FILE", help="write the report to FILE"
        )
        add_socket_option(parser)
        parser.add_argument(
            "command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="command to start"
        )

    def run(self, args: argparse.Namespace) -> int:
        command = command_of(args.command)
        if command and selected(args):
            raise UsageError("give a command or running processes, not both")
        interrupt_on(ENDING)  # until the recording begins
        owner = user()
        name = args.name or new_name(command[0] if command else _target(args))
        database = results_folder(owner) / name
        _make_results_folder(owner, database.parent)
        if database.exists():
            raise StorageError(f"there is a result {name}; give another --name")
        with _report_stream(args.output, own=not command) as stream, _private_directory() as folder:
            measurement = folder / "measurement"
            with _kept_on_failure(measurement, owner):
                summary, code = _record(args, command, measurement)
                # Neither a second Ctrl-C nor the end of the terminal is to cost the result.
                say_once(ENDING, f"the recording has ended; its result is kept as {name}")
                _hand_over(folder, owner)
                _as_user(owner, _hpcd("merge", measurement, "-o", database), subprocess.DEVNULL)
            wants_json = args.json or args.json_file
            if wants_json:
                report(summary, args, database)
            if args.output or not wants_json:
                if command and stream.isatty():
                    print(file=stream)  # parts the report from what the command wrote
                _print_report(summary, database, owner, stream)
        return code


def _record(args: argparse.Namespace, command: list[str], measurement: Path) -> tuple[Summary, int]:
    """Record ``command``, or the processes that ``args`` select, into ``measurement``.

    Returns the summary and the command's exit code, 0 of processes.
    """
    if command:
        return run_recorded(args, command, measurement)
    if os.geteuid() == 0:
        return record_here(args, measurement), 0
    return record_by_service(args, measurement), 0


def _print_report(summary: Summary, database: Path, owner: User, stream: TextIO) -> None:
    try:
        _as_user(owner, _hpcd("report", "--brief", database), stream)
        for caveat in caveats(summary):
            print(harmless(f"note: {caveat}"), file=stream)
    finally:
        print(f"kept as {database.name}; look closer: hpcd view, hpcd report --by thread,"
              " hpcd results", file=stream)  # fmt: skip


def _hpcd(*arguments: object) -> list[str]:
    return python_command("-m", "hpcd", *map(str, arguments))


def _make_results_folder(owner: User, folder: Path) -> None:
    """Make the folder of results, with the rights of ``owner``, unless it exists.

    Raises :class:`StorageError` where results cannot be written: before anything is recorded.
    """
    script = 'mkdir -p -m 700 "$0" 2>/dev/null && test -w "$0" -a -x "$0"'
    try:
        _as_user(owner, ["sh", "-c", script, str(folder)], subprocess.DEVNULL)
    except HpcdError:
        raise StorageError(
            f"{folder}: results cannot be written there; HPCD_RESULTS names another folder"
        ) from None


@contextmanager
def _report_stream(output: Path | None, *, own: bool) -> Iterator[TextIO]:
    """The stream for the report: ``output``, else standard output where it is hpcd's ``own``."""
    if output is None:
        yield sys.stdout if own else sys.stderr
        return
    with TextIOWrapper(open_output(output), encoding="utf-8") as stream:
        yield stream


def _target(args: argparse.Namespace) -> str:
    """Return the word that names a result of running processes."""
    for words in (args.comm, args.job, args.user, args.container):
        if words:
            return str(words[0])
    if args.pid:
        return processes.name_of(args.pid[0]) or str(args.pid[0])
    return "all" if args.all else "profile"


@contextmanager
def _private_directory() -> Iterator[Path]:
    """A new directory that only the recorder can look into."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="hpcd-profile-", dir=_LARGE))
    except OSError as error:
        raise StorageError(f"{_LARGE}: {error.strerror}") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _kept_on_failure(measurement: Path, owner: User) -> Iterator[None]:
    """Keep ``measurement``, if anything is recorded, where the block that merges it fails."""
    try:
        yield
    except BaseException:
        if _has_records(measurement):
            folder = measurement.parent
            _hand_over(folder, owner)
            kept = folder.rename(f"{folder}-kept") / measurement.name
            say(f"hpcd: what was recorded is kept: {kept}")
        raise


def _has_records(measurement: Path) -> bool:
    from hpcd.measurement.reader import open_measurement  # only now: failures are rare

    try:
        with open_measurement(measurement) as opened:
            return any(map(len, opened.record_chunks()))
    except HpcdError:  # there is none, or it is damaged, which others may read better
        return any(measurement.glob("segment-*"))


def _hand_over(folder: Path, owner: User) -> None:
    """Give the directory to ``owner``, itself last: until then no user can put a link into it."""
    if not owner.other:
        return
    for place, folders, files in os.walk(folder, topdown=False):
        for entry in (*folders, *files):
            os.chown(Path(place) / entry, owner.uid, owner.gid, follow_symlinks=False)
    os.chown(folder, owner.uid, owner.gid)


def _as_user(owner: User, command: Sequence[str], output: TextIO | int) -> None:
    """Run a command with the rights of ``owner``, its standard output going to ``output``.

    It ignores the signals that say to end. Raises :class:`HpcdError` when it fails.
    """
    rights: dict[str, object] = {}
    environment = python_environment()
    if owner.other:
        groups = groups_of(owner.uid, owner.gid)
        rights = {"user": owner.uid, "group": owner.gid, "extra_groups": groups}
        for name in [name for name in environment if name.startswith(("XDG_", "HPCD_"))]:
            del environment[name]
        environment["HOME"] = str(owner.home)
    if not isinstance(output, int):
        output.flush()
    with ignored(ENDING):
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=output,
            **rights,  # type: ignore[call-overload]
        )
    code = process.wait()
    # Damaged parts (7) are reported, and what could be read is there.
    if code not in (0, 7):
        raise HpcdError(f"{' '.join(command[3:5])} ended with exit code {code}", code)
