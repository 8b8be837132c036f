"""What loading the programs needs to know, found out by a thread while modules are imported.

Reading the kernel's types takes libbpf 10 ms, in which it needs no interpreter.
"""

from __future__ import annotations

import contextlib
import sys
import threading

from hpcd.bpf.loading.object_loader import ObjectPrograms, object_path
from hpcd.errors import HpcdError

# Each call of a library gives the interpreter away and wants it back, for which it would wait for
# the usual 5 ms while another thread imports modules.
_QUICK_SECONDS = 0.0001
_USUAL_SECONDS = sys.getswitchinterval()


class QuickTurns:
    """Threads take turns each 0.1 ms until everybody who wanted that has had :meth:`end` called."""

    _lock = threading.Lock()
    _wanted = 0

    def __init__(self) -> None:
        self._ended = False
        with QuickTurns._lock:
            QuickTurns._wanted += 1
            sys.setswitchinterval(_QUICK_SECONDS)

    def end(self) -> None:
        """Want it no more; calling again does nothing."""
        with QuickTurns._lock:
            QuickTurns._wanted -= not self._ended
            self._ended = True
            if not QuickTurns._wanted:
                sys.setswitchinterval(_USUAL_SECONDS)


def look_up_ahead() -> None:
    """Begin. What has been found is there for those who ask; what fails will say why to them."""
    turns = QuickTurns()
    threading.Thread(target=_look_up, args=(turns,), name="hpcd-ahead", daemon=True).start()


def _look_up(turns: QuickTurns) -> None:
    with contextlib.suppress(HpcdError, OSError):
        object_path()
        ObjectPrograms.has_loops()
    turns.end()
