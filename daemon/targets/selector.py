"""Selection of the processes to record, by what the user named them by."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator
from dataclasses import dataclass

from hpcd.daemon.targets.control_groups import control_group
from hpcd.errors import UsageError
from hpcd.option_schema import flag, numbers, option, options_of, texts

# The kernel keeps this much of a name.
_COMM_BYTES = 15
_CONTAINER_ID = r"[0-9a-f]{64}"
_SLURM_JOB = r"/job_(\d+)(?:/|$)"
_VERBS = "attach profile stacks top"


def user_id(text: str) -> int:
    """The uid of a user's name or number; :class:`UsageError` when there is none."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return pwd.getpwnam(text).pw_uid
    except KeyError:
        raise UsageError(f"no user {text}") from None


def container(text: str) -> str:
    """A container's id or the beginning of one; :class:`UsageError` for anything else."""
    if not re.fullmatch(r"[0-9a-f]{8,64}", text):
        raise UsageError(f"{text} is no container id: 8 to 64 hexadecimal digits are")
    return text


def _number(text: str) -> int:
    """A uid. Not a name: the client has looked it up."""
    if not (text.isascii() and text.isdigit()):
        raise UsageError("users must be numbers")
    return int(text)


@dataclass(frozen=True, slots=True)
class Selector:
    """Processes by pid, name, user, control group, container or Slurm job; or all of them.

    A process is selected when it meets every kind of condition that is given, and of each kind one.
    Its descendants are recorded with it unless the recording leaves children out.
    """

    pids: tuple[int, ...] = option((), "-p --pid", numbers(), _VERBS, "process id")
    names: tuple[str, ...] = option(
        (), "--comm", texts("NAME", lambda name: name[:_COMM_BYTES]), _VERBS, "process name"
    )
    users: tuple[int, ...] = option(
        (), "--user", texts("USER", user_id, _number), _VERBS, "owner, by name or number"
    )
    control_groups: tuple[str, ...] = option(
        (), "--cgroup", texts("PATH", control_group), _VERBS,
        "control group, including all below it", key="cgroups",
    )  # fmt: skip
    containers: tuple[str, ...] = option(
        (), "--container", texts("ID", container), _VERBS,
        "container id, or at least its first 8 digits",
    )  # fmt: skip
    jobs: tuple[str, ...] = option((), "--job", texts("JOB_ID"), _VERBS, "Slurm job on this host")
    everything: bool = option(
        False, "-a --all", flag(), _VERBS, "every process on this host", key="all"
    )

    def __bool__(self) -> bool:
        return self.everything or bool(self.pids) or self.open_ended

    @property
    def open_ended(self) -> bool:
        """Whether processes that do not exist yet may be selected, other than as descendants."""
        return self.everything or bool(self.names or self.users or self.by_control_group)

    @property
    def by_control_group(self) -> bool:
        """Whether a process may become selected by being moved to a control group."""
        return bool(self.control_groups or self.containers or self.jobs)

    def matches(self, pid: int) -> bool:
        """Whether process ``pid`` is selected now. False when it is gone."""
        # Only now: the programs begin to load before it is needed.
        from hpcd.daemon.access import processes

        if self.everything:
            return True
        if self.pids and pid not in self.pids:
            return False
        if self.names and processes.name_of(pid) not in self.names:
            return False
        if self.users and processes.user_of(pid) not in self.users:
            return False
        if self.by_control_group:
            path = processes.control_group_of(pid)
            if not path:
                return False
            if self.control_groups and not any(_within(path, top) for top in self.control_groups):
                return False
            if self.containers and not any(
                digits.startswith(prefix)
                for digits in re.findall(_CONTAINER_ID, path)
                for prefix in self.containers
            ):
                return False
            if self.jobs and not self._in_job(pid, path):
                return False
        return True

    def _in_job(self, pid: int, path: str) -> bool:
        from hpcd.daemon.targets.process_identity import environment_of

        # Slurm's control groups say it where it has any; the environment where it has not.
        slurm_job = re.search(_SLURM_JOB, path)
        job = slurm_job[1] if slurm_job else environment_of(pid).get("SLURM_JOB_ID", "")
        return job in self.jobs

    def scan(self) -> Iterator[int]:
        """Pids selected at this moment, in order; neither hpcd itself nor kernel threads."""
        from hpcd.daemon.access import processes

        candidates = self.pids or processes.pids()
        for pid in candidates:
            if pid != os.getpid() and self.matches(pid) and not processes.is_kernel_thread(pid):
                yield pid

    def describe(self) -> str:
        """The selection in words, for messages."""
        if self.everything:
            return "all processes"
        values = {option.flag[2:]: getattr(self, option.path) for option in options_of(Selector)}
        kinds = [f"{kind} {' or '.join(map(str, some))}" for kind, some in values.items() if some]
        return ", ".join(kinds)


def _within(path: str, top: str) -> bool:
    top = "/" + top.strip("/")
    return path == top or top == "/" or path.startswith(top + "/")
