"""Log lines for the journal: a priority, an event, and fields as key=value."""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass

# sd-daemon(3): a line's priority in front of it.
ERROR, WARNING, INFO = 3, 4, 6
_lock = threading.Lock()
_json = threading.Event()
# Of an event that a user can bring about at will there is one line in this time.
_INTERVAL_SECONDS = 10.0
# Users counted by themselves, and then all others together.
_COUNTED_USERS = 1_000


def print_json() -> None:
    """From now on print each line to standard output, as a JSON object."""
    _json.set()


def prints_json() -> bool:
    """Whether :func:`print_json` was called."""
    return _json.is_set()


def log(event: str, priority: int = INFO, **fields: object) -> None:
    """One line. Values are JSON, so that nothing a user chose can pass for a line of its own."""
    if _json.is_set():
        line = json.dumps({"event": event, "priority": priority, **fields}, default=str)
        with _lock:
            print(line, flush=True)
        return
    words = [event, *(f"{key}={json.dumps(value, default=str)}" for key, value in fields.items())]
    with _lock:
        print(f"<{priority}>{' '.join(words)}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class _Repetition:
    since: float
    """When there was a line last."""
    count: int = 0
    fields: dict[str, object] | None = None


_repetitions: dict[tuple[str, int | None], _Repetition] = {}
_repetitions_lock = threading.Lock()


def log_of_user(event: str, uid: int, **fields: object) -> None:
    """Log a warning about a user at once if it is the first in a while; further ones of the same
    ``event`` are counted, and :func:`log_repetitions` logs their number with the latest fields."""
    with _repetitions_lock:
        key: tuple[str, int | None] = (event, uid)
        if key not in _repetitions and len(_repetitions) >= _COUNTED_USERS:
            key = (event, None)
        repetition = _repetitions.get(key)
        if repetition:
            repetition.count += 1
            repetition.fields = fields
            return
        _repetitions[key] = _Repetition(time.monotonic())
    log(event, WARNING, uid=uid, **fields)


def log_repetitions(*, all_of_them: bool = False) -> None:
    """Log what :func:`log_of_user` has counted for 10 s; all, before the process ends."""
    now = time.monotonic()
    lines = []
    with _repetitions_lock:
        for key, repetition in list(_repetitions.items()):
            if not all_of_them and now - repetition.since < _INTERVAL_SECONDS:
                continue
            if repetition.count:
                lines.append((*key, repetition))
                _repetitions[key] = _Repetition(now)
            else:
                del _repetitions[key]
    for event, uid, repetition in lines:
        log(event, WARNING, uid=uid, count=repetition.count, **(repetition.fields or {}))
