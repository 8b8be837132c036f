"""A snapshot of stacks as a message from the service to its client, which names the frames.

``paths`` are the nodes of one tree, each a pair of its parent's number (below its own; 0: none) and
a frame (:mod:`hpcd.model.frame`); ``ends`` is the node that each path of the snapshot ends at. The
other keys are the fields of :class:`hpcd.model.stack_snapshot.StackSnapshot` and of what it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from hpcd.array_types import U64
from hpcd.errors import FormatError
from hpcd.model.identity import Module, ModuleKind, Process
from hpcd.model.stack_snapshot import Activity, StackSnapshot, ThreadStack, Wait

# Characters of a process' command line.
_COMMAND = 500


def as_message(snapshot: StackSnapshot) -> dict[str, object]:
    """``snapshot`` as an object that is JSON."""
    nodes, ends = _tree(snapshot.paths)
    return {
        "time_ns": snapshot.time_ns,
        "seconds": snapshot.seconds,
        "threads": [asdict(thread) for thread in snapshot.threads],
        "processes": [
            asdict(process) | {"command": _bounded(process.command)}
            for process in snapshot.processes.values()
        ],
        "modules": [asdict(module) for module in snapshot.modules.values()],
        "symbols": [[number, *rows] for number, rows in snapshot.symbols.items()],
        "paths": nodes,
        "ends": ends,
        "notes": snapshot.notes,
    }


def from_message(message: dict[str, Any]) -> StackSnapshot:
    """Read a snapshot from a message. Raises :class:`FormatError` if it is none."""
    try:
        return StackSnapshot(
            int(message["time_ns"]),
            float(message["seconds"]),
            [_thread(row) for row in message["threads"]],
            {
                row["pid"]: Process(**row | {"command": tuple(row["command"])})
                for row in message["processes"]
            },
            {
                row["id"]: Module(**row | {"kind": ModuleKind(row["kind"])})
                for row in message["modules"]
            },
            {
                number: [(start, size, name) for start, size, name in rows]
                for number, *rows in message["symbols"]
            },
            _paths(message["paths"], message["ends"]),
            notes=list(message["notes"]),
        )
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        raise FormatError("the service's answer is not one of this version of hpcd") from None


def _thread(fields: dict[str, Any]) -> ThreadStack:
    wait = fields["wait"]
    if wait is not None:
        wait = Wait(**wait | {"holders": tuple(wait["holders"])})
    return ThreadStack(**fields | {"activity": Activity(fields["activity"]), "wait": wait})


def _bounded(command: Sequence[str]) -> list[str]:
    """The first arguments of a command, ``_COMMAND`` characters in all."""
    kept, left = [], _COMMAND
    for argument in command:
        if left <= 0:
            break
        kept.append(argument[:left])
        left -= len(argument) + 1
    return kept


def _tree(paths: Sequence[U64]) -> tuple[list[tuple[int, int]], list[int]]:
    numbers: dict[tuple[int, int], int] = {}
    ends = []
    for path in paths:
        at = 0
        for frame in path.tolist():
            at = numbers.setdefault((at, frame), len(numbers) + 1)
        ends.append(at)
    return list(numbers), ends


def _paths(nodes: list[list[int]], ends: list[int]) -> list[U64]:
    paths = []
    for end in ends:
        frames: list[int] = []
        at = end
        while at:
            parent, frame = nodes[at - 1]
            if not 0 <= parent < at:
                raise ValueError("parents come first")
            frames.append(frame)
            at = parent
        paths.append(np.array(frames[::-1], np.uint64))
    return paths
