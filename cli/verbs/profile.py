"""``hpcd profile``: from processes or a command to a report, in one step."""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hpcd.cli.command import Command
from hpcd.cli.record_options import (
    add_recording_options,
    add_selection_options,
)
from hpcd.cli.recorder import (
    record_by_service,
    record_here,
    report,
)
from hpcd.cli.result_store import User, checked_name, new_name, results_folder, user
from hpcd.cli.service_client import add_socket_option
from hpcd.cli.verbs.run import command_of, run_recorded
from hpcd.daemon.targets import processes
from hpcd.errors import HpcdError, StorageError, UsageError
from hpcd.isolation import python_command, python_environment

_LARGE = "/var/tmp"


class ProfileCommand(Command):
    """Record running processes or a command, merge, and print the report.

    Needs root to record, or the hpcd service for one's own processes. The database is kept by name
    in the results of the user who asked (under sudo, of the user who ran sudo); the measurement is
    not. hpcd view shows the latest result in a browser, hpcd results lists all. Every option of
    hpcd report works on a result: hpcd report --view flat.
    """

    name = "profile"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The options of ``hpcd profile``."""
        add_selection_options(parser)
        add_recording_options(parser)
        parser.add_argument(
            "--name", type=checked_name, help="the result's name (default: PROGRAM-TIME)"
        )
        add_socket_option(parser)
        parser.add_argument(
            "command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="command to start"
        )

    def run(self, args: argparse.Namespace) -> int:
        """Record, merge, report."""
        command = command_of(args.command)
        if command and any((args.pid, args.comm, args.user, args.cgroup, args.container, args.job,
                            args.all)):  # fmt: skip
            raise UsageError("give a command or running processes, not both")
        owner = user()
        name = args.name or new_name(command[0] if command else _target(args))
        database = results_folder(owner) / name
        if database.exists():
            raise StorageError(f"there is a result {name}; give another --name")
        with _private_directory(owner) as folder:
            measurement = folder / "measurement"
            code = 0
            if command:
                summary, code = run_recorded(args, command, measurement)
            elif os.geteuid() == 0:
                summary = record_here(args, measurement)
            else:
                summary = record_by_service(args, measurement)
            # From here on Ctrl-C ends the program that runs, as it does everywhere.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _hand_over(folder, owner)
            _as_user(owner, ["mkdir", "-p", "-m", "700", str(database.parent)])
            hpcd = python_command("-m", "hpcd")
            _as_user(owner, [*hpcd, "merge", str(measurement), "-o", str(database)], quiet=True)
        if args.json or args.json_file:
            report(summary, args, database)
        else:
            _as_user(owner, [*hpcd, "report", str(database)])
            print(f"kept as {name}; look closer: hpcd view, hpcd report --by thread, hpcd results")
        return code


def _target(args: argparse.Namespace) -> str:
    """Return the word that names a result of running processes."""
    for words in (args.comm, args.job, args.user, args.container):
        if words:
            return str(words[0])
    if args.pid:
        return processes.name_of(args.pid[0]) or str(args.pid[0])
    return "all" if args.all else "profile"


@contextmanager
def _private_directory(owner: User) -> Iterator[Path]:
    """A new directory that only the recorder can look into."""
    folder = Path(tempfile.mkdtemp(prefix="hpcd-profile-", dir=_LARGE))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _hand_over(folder: Path, owner: User) -> None:
    """Give the directory to ``owner``, itself last: until then no user can put a link into it."""
    if not owner.other:
        return
    for place, folders, files in os.walk(folder, topdown=False):
        for entry in (*folders, *files):
            os.chown(Path(place) / entry, owner.uid, owner.gid, follow_symlinks=False)
    os.chown(folder, owner.uid, owner.gid)


def _as_user(owner: User, command: Sequence[str], *, quiet: bool = False) -> None:
    """Run a command with the rights of ``owner``. Raises :class:`HpcdError` when it fails."""
    rights: dict[str, object] = {}
    environment = python_environment()
    if owner.other:
        groups = os.getgrouplist(_login(owner.uid), owner.gid)
        rights = {"user": owner.uid, "group": owner.gid, "extra_groups": groups}
        for name in [name for name in environment if name.startswith(("XDG_", "HPCD_"))]:
            del environment[name]
        environment["HOME"] = str(owner.home)
    sys.stdout.flush()
    done = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.DEVNULL if quiet else None,
        check=False,
        **rights,  # type: ignore[call-overload]
    )
    # Damaged parts (7) are reported, and what could be read is there.
    if done.returncode not in (0, 7):
        raise HpcdError(f"{' '.join(command[:4])} ended with exit code {done.returncode}")


def _login(uid: int) -> str:
    return pwd.getpwuid(uid).pw_name
