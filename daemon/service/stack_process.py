"""Reading stacks in a process of its own: what that costs or breaks ends with it.

Started by :class:`hpcd.daemon.service.stack_readings.StackReadings` with a specification (JSON) on
its standard input; writes one message to standard output, a snapshot
(:mod:`hpcd.daemon.service.stack_message`), or ``{"error": ..., "code": ...}``.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
from typing import Any

from hpcd.daemon.access import processes
from hpcd.daemon.access.user_accounts import UserAccounts
from hpcd.daemon.service.child_process import end_first_without_memory, tuples
from hpcd.daemon.service.protocol import MAX_ANSWER, EncodedAnswer, encoded
from hpcd.daemon.service.stack_message import as_message
from hpcd.daemon.stacks.reading_rights import ReadingRights
from hpcd.daemon.stacks.selected_processes import selected_processes
from hpcd.daemon.stacks.stack_reader import StackReader
from hpcd.daemon.targets.selector import Selector
from hpcd.errors import HpcdError, TargetError

# Of one reading for a user other than root.
_MOST_PROCESSES = 4_096
_MOST_THREADS = 20_000
_CPU_SECONDS = 20


def main() -> int:
    """Read what standard input specifies."""
    try:
        answer = _read(json.load(sys.stdin))
    except HpcdError as error:
        answer = encoded({"error": str(error), "code": error.exit_code})
    except MemoryError:
        answer = encoded({"error": "reading these stacks takes too much memory", "code": 1})
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
    return 0


def _read(specification: dict[str, Any]) -> EncodedAnswer:
    selector = Selector(**tuples(specification["selector"]))
    uid = specification["uid"]
    rights = None
    notes: list[str] = []
    if specification["other_pids"]:
        notes.append(
            "ids of processes and threads are those of the service, which runs in another PID"
            " namespace than you"
        )
    if uid:
        _limit(specification["memory"])
        rights = ReadingRights(uid, specification["groups"])
    pids = selected_processes(selector, children=specification["children"])
    if rights:
        pids = list(rights.admitted(pids))
        if not pids:
            raise TargetError(f"no process of yours matches {selector.describe()}")
        pids = _bounded(pids, notes)
    with contextlib.closing(StackReader(UserAccounts(specification["tables"]))) as reader:
        snapshot = reader.snapshot(pids, rights)
    snapshot.notes += notes
    answer = encoded(as_message(snapshot))
    if len(answer) > MAX_ANSWER:
        raise HpcdError("these are too many stacks for one answer: select fewer processes")
    return answer


def _limit(memory: int) -> None:
    """Limit this process' data to ``memory`` bytes, and its CPU time."""
    end_first_without_memory()
    with contextlib.suppress(OSError, ValueError):
        # The decoder, which is another process, sets limits of its own.
        for kind, most in ((resource.RLIMIT_DATA, memory), (resource.RLIMIT_CPU, _CPU_SECONDS)):
            resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


def _bounded(pids: list[int], notes: list[str]) -> list[int]:
    """The first of ``pids``, as many as are read at a time; the rest is listed as left out."""
    threads, kept = 0, 0
    for pid in pids[:_MOST_PROCESSES]:
        threads += len(processes.thread_ids(pid))
        if threads > _MOST_THREADS and kept:
            break
        kept += 1
    if kept < len(pids):
        notes.append(
            f"{len(pids) - kept:,} processes were left out: at most {_MOST_PROCESSES:,} processes"
            f" and {_MOST_THREADS:,} threads are read at a time"
        )
    return pids[:kept]


if __name__ == "__main__":
    sys.exit(main())
