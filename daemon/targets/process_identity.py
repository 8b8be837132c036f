"""Identities of processes: their commands, users, jobs and ranks, by /proc or as reported."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from hpcd.daemon.access import target_reader
from hpcd.daemon.access.patience import WithheldError
from hpcd.daemon.access.processes import (
    MAX_TEXT,
    TICK_NS,
    control_group_of,
    name_of,
    stat_fields,
    user_of,
)
from hpcd.daemon.targets import jobs
from hpcd.daemon.targets.jobs import JobPlace
from hpcd.daemon.targets.reported_program import ReportedProgram
from hpcd.model.identity import Process

_MAX_COMMAND = 64
_MAX_ARGUMENT = 1024
# A rank is a few wrapper scripts below its launcher's proxy, seldom more.
_MAX_ANCESTORS = 8


def _read_memory(pid: int, *names: str) -> list[bytes]:
    """Read files of /proc whose contents are in the process's memory: b"" when it is gone, or does
    not let that be read."""
    try:
        return target_reader.OWN.texts(pid, names, MAX_TEXT)
    except (OSError, WithheldError):
        return [b"" for _ in names]


def environment_of(pid: int) -> dict[str, str]:
    """The environment ``pid`` was started with."""
    return _environment(*_read_memory(pid, "environ"))


def _environment(text: bytes) -> dict[str, str]:
    pairs = (item.partition("=") for item in text.decode(errors="replace").split("\0"))
    return {key: value for key, _, value in pairs}


def command_of(pid: int) -> tuple[str, ...]:
    """The command line of ``pid``, each argument bounded; empty when it is gone."""
    return _command(*_read_memory(pid, "cmdline"))


def _command(text: bytes) -> tuple[str, ...]:
    return tuple(
        part.decode(errors="replace")[:_MAX_ARGUMENT]
        for part in text.split(b"\0")[:-1][:_MAX_COMMAND]
    )


def place_of(pid: int) -> JobPlace:
    """The job and rank of ``pid``."""
    return _place(pid, environment_of(pid), name_of(pid))


def _place(pid: int, environment: dict[str, str], name: str) -> JobPlace:
    ancestors = ancestor_commands(pid) if "PMI_RANK" in environment else []
    return jobs.place(environment, control_group_of(pid), name, ancestors)


def ancestor_commands(pid: int, *, itself: bool = False) -> list[tuple[str, ...]]:
    """Command lines of the processes ``pid`` descends from, nearest first, a few; before these that
    of ``pid`` ``itself``."""
    commands: list[tuple[str, ...]] = []
    while len(commands) < _MAX_ANCESTORS:
        if not itself:
            fields = stat_fields(pid)
            pid = int(fields[1]) if len(fields) > 1 else 0
        if pid <= 1:
            break
        commands.append(command_of(pid))
        itself = False
    return commands


def identify_reported(
    before: Process, name: str, program: ReportedProgram, past_path: Callable[[], str]
) -> Process:
    """Identify a process that was ``before`` and has begun ``program``, by which it is called
    ``name``: only what was not reported is requested. If it has ended, ``past_path`` gives the
    program's path, and its job is the one that it had."""
    pid, arguments, environment = before.pid, program.arguments, program.environment
    if arguments is None:  # then so is what follows
        environment, arguments = _read_memory(pid, "environ", "cmdline")
    elif environment is None:
        (environment,) = _read_memory(pid, "environ")
    variables = jobs.said_of_jobs(environment)
    ancestors = ancestor_commands(program.parent, itself=True) if "PMI_RANK" in variables else []
    place = jobs.place(variables, control_group_of(pid, program.group), name, ancestors)
    exe, job = _executable_of(pid), place.job
    if not exe:  # its control group is that of what started it
        exe, job = past_path(), job or before.job
    return Process(
        before.id, pid, program.parent, name, exe, _command(arguments), program.user,
        listed_start(program.start), job, place.rank, place.size, before.cpu_before_ns,
    )  # fmt: skip


def listed_start(start_ns: int) -> int:
    """Return as /proc lists it, in ticks, when a process started; ``start_ns`` is monotonic."""
    suspended = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return (start_ns + suspended) // TICK_NS * TICK_NS


def identify(pid: int, number: int) -> Process:
    """Identify ``pid``, as process ``number`` of a measurement. Unknown parts stay empty."""
    environment, command = _read_memory(pid, "environ", "cmdline")
    return _identify(pid, number, _environment(environment), command)


def identify_child(pid: int, number: int) -> Process:
    """Identify a child of this process that has its environment and is to begin a program, or has:
    of that nothing is read."""
    return _identify(pid, number, dict(os.environ), b"")


def _identify(pid: int, number: int, environment: dict[str, str], command: bytes) -> Process:
    fields = stat_fields(pid)
    parent = int(fields[1]) if len(fields) > 1 else 0
    start_ns = int(fields[19]) * TICK_NS if len(fields) > 19 else 0
    uid = user_of(pid)
    name = name_of(pid)
    place = _place(pid, environment, name)
    return Process(
        number, pid, parent, name, _executable_of(pid), _command(command),
        -1 if uid is None else uid, start_ns, place.job, place.rank, place.size,
    )  # fmt: skip


def _executable_of(pid: int) -> str:
    """The path of the program that ``pid`` runs, "" when it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 (may hold " (deleted)")
    except OSError:
        return ""
