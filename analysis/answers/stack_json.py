"""Snapshots of stacks as JSON; docs/stacks.md describes each key."""

from __future__ import annotations

from collections.abc import Collection

from hpcd.analysis.stacks.named_paths import Path
from hpcd.analysis.stacks.reading import Reading
from hpcd.model.identity import Process
from hpcd.model.stack_snapshot import ThreadStack, Wait


def as_json(
    reading: Reading, unmoved: Collection[int] | None = None, same: Collection[int] = ()
) -> dict[str, object]:
    """A reading as a JSON object; ``unmoved`` and ``same``: with --watch, the threads (tids) that
    have not run since the first reading, or have the same path again."""
    snapshot = reading.snapshot
    return {
        "time_ns": snapshot.time_ns,
        "read_s": round(snapshot.seconds, 6),
        "processes": [_process(process) for process in snapshot.processes.values()],
        "threads": [
            _thread(thread, reading.paths[thread.path], snapshot.processes.get(thread.pid))
            | ({} if unmoved is None else {"moved": _moved(thread, unmoved, same)})
            for thread in snapshot.threads
        ],
        "outliers": [
            {
                "group": outlier.group,
                "size": outlier.size,
                "procedure": outlier.procedure,
                "members": [
                    {"member": label, "pid": thread.pid, "tid": thread.tid, "in": where}
                    for (label, thread), where in zip(outlier.members, outlier.where, strict=True)
                ],
            }
            for outlier in reading.outliers
        ],
        "deadlocks": [[thread.tid for thread in ring] for ring in reading.chains.deadlocks],
        "chains": [
            {"threads": [thread.tid for thread in chain], "waiters": waiters}
            for chain, waiters in zip(reading.chains.chains, reading.chains.waiters, strict=True)
        ],
        "notes": snapshot.notes,
    }


def _moved(thread: ThreadStack, unmoved: Collection[int], same: Collection[int]) -> str:
    if thread.tid in unmoved:
        return "not run"
    return "same path" if thread.tid in same else "elsewhere"


def _process(process: Process) -> dict[str, object]:
    return {
        "pid": process.pid,
        "name": process.name,
        "exe": process.exe,
        "command": list(process.command),
        "user": process.uid,
        "job": process.job or None,
        "rank": process.rank,
        "size": process.size,
    }


def _thread(thread: ThreadStack, path: Path, process: Process | None) -> dict[str, object]:
    return {
        "pid": process.pid if process else thread.pid,
        "tid": thread.tid,
        "name": thread.name,
        "activity": str(thread.activity),
        "since_s": None if thread.seconds is None else round(thread.seconds, 6),
        "switches": thread.switches,
        "wait": _wait(thread.wait),
        "path": [
            {"name": frame.name, "module": frame.module or None, "kernel": frame.kernel}
            | ({} if frame.line is None else {"line": frame.line})
            for frame in path
        ],
        "notes": thread.notes,
    }


def _wait(wait: Wait | None) -> dict[str, object] | None:
    if wait is None:
        return None
    return {
        "kind": wait.kind,
        "text": wait.text,
        "call": wait.call or None,
        "address": wait.address or None,
        "word": wait.word,
        "holders": list(wait.holders),
    }
