"""Log lines for the journal: a priority, an event, and fields as key=value."""

from __future__ import annotations

import json
import sys
import threading

# sd-daemon(3): a line's priority in front of it.
ERROR, WARNING, INFO = 3, 4, 6
_lock = threading.Lock()
_json = threading.Event()


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
