"""Log lines for the journal: a priority, an event, and fields as key=value."""

from __future__ import annotations

import json
import sys
import threading

# sd-daemon(3): a line's priority in front of it.
ERROR, WARNING, INFO = 3, 4, 6
_lock = threading.Lock()


def log(event: str, priority: int = INFO, **fields: object) -> None:
    """One line. Values are JSON, so that nothing a user chose can pass for a line of its own."""
    words = [event, *(f"{key}={json.dumps(value, default=str)}" for key, value in fields.items())]
    with _lock:
        print(f"<{priority}>{' '.join(words)}", file=sys.stderr, flush=True)
