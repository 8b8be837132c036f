"""Whose processes may be read: for a user, those that user may look into, from the first word that
is read of them to the last."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hpcd.daemon.access import processes

# Of struct proc_pid_stat from the state on: when the process began, in clock ticks.
_BEGAN = 19


class ReadingRights:
    """The right of user ``uid`` with ``groups`` to look into processes (ptrace(2))."""

    def __init__(self, uid: int, groups: Collection[int]) -> None:
        self._uid = uid
        self._groups = groups
        self._seen: dict[int, bool] = {}

    def admitted(self, pids: Iterable[int]) -> dict[int, str]:
        """Return those of ``pids`` that may be read, with when each began."""
        began = {pid: _began(pid) for pid in pids}
        return {pid: when for pid, when in began.items() if when and self._open(pid)}

    def still(self, admitted: dict[int, str]) -> set[int]:
        """Return those of ``admitted`` that are still the same process, and may still be read."""
        return {pid for pid, when in admitted.items() if self._open(pid) and _began(pid) == when}

    def sees(self, pid: int) -> bool:
        """Whether process ``pid`` may be named; looked up once."""
        if pid not in self._seen:
            self._seen[pid] = self._open(pid)
        return self._seen[pid]

    def _open(self, pid: int) -> bool:
        return processes.is_open_to(pid, self._uid, self._groups)


def _began(pid: int) -> str:
    fields = processes.stat_fields(pid)
    return fields[_BEGAN] if len(fields) > _BEGAN else ""
