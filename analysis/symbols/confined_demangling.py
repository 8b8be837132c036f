"""Demangling names that are hostile input, in a process that must not fail.

Names whose cost is known to be small are demangled here. Other names go to a confined process
(:mod:`.demangling_worker`), which is started with the first of them and ends with this process: its
limits of memory and CPU time bound the work for any name.
"""

from __future__ import annotations

import atexit
import os
import struct
import threading
from collections.abc import Iterator, Sequence

from hpcd.analysis.symbols.demangle import demangle, is_bounded
from hpcd.sandbox.worker_process import WorkerProcess, receive

REQUEST = struct.Struct("<I")
"""Bytes of the names that follow, which are separated by NUL."""
ANSWER = struct.Struct("<I")
"""Length in bytes of one plain name, which follows, in the order of the names."""

_PROGRAM = "from hpcd.analysis.symbols.demangling_worker import main; main()"
# For a stopped or starved worker; a busy worker ends at its limit of CPU time.
_TIMEOUT_SECONDS = 60.0
# The worker reads a request whole before it answers.
_MOST_NAMES = 512
# One costs a second or two. Compilers make none, so a module with two is a hostile one. All
# together they cost this process half a minute at most.
_MOST_REFUSED, _MOST_REFUSED_IN_ALL = 2, 16


class ConfinedDemangler:
    """A worker that demangles, started when needed. Threads take turns."""

    def __init__(self) -> None:
        self._worker = WorkerProcess("demangler", ["-c", _PROGRAM], _TIMEOUT_SECONDS)
        self._lock = threading.Lock()
        self._refusals = _MOST_REFUSED_IN_ALL
        self.process = os.getpid()
        """The only process that may use it: a forked child has the same socket."""

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def demangle(self, names: Sequence[str]) -> list[str]:
        """Return the plain names of ``names``, which belong to one module.

        Too costly names stay mangled, and so do all names after two of them in this module, or
        after sixteen in all modules.
        """
        plain: list[str] = []
        refused = 0
        with self._lock:
            while len(plain) < len(names) and refused < _MOST_REFUSED and self._refusals:
                at = len(plain)
                fresh = not self._worker.running
                try:
                    for answer in self._answers(names[at : at + _MOST_NAMES]):
                        plain.append(answer)
                except OSError:
                    self._worker.close()
                    # The limit of CPU time holds for all names of a worker together: only the first
                    # name of a fresh worker had all of it; others are retried by the next worker.
                    if fresh and len(plain) == at:
                        plain.append(names[at])
                        refused += 1
                        self._refusals -= 1
        return [*plain, *names[len(plain) :]]

    def _answers(self, names: Sequence[str]) -> Iterator[str]:
        channel = self._worker.channel()
        request = "\0".join(names).encode("utf-8", "surrogateescape")
        channel.sendall(REQUEST.pack(len(request)) + request)
        for _ in names:
            (size,) = ANSWER.unpack(receive(channel, ANSWER.size))
            yield receive(channel, size).decode("utf-8", "surrogateescape")


_demangler: ConfinedDemangler | None = None
_demangler_lock = threading.Lock()


def demangle_all(names: Sequence[str]) -> list[str]:
    """Return the plain names of ``names``, as :func:`~.demangle.demangle` makes them."""
    costly = [place for place, name in enumerate(names) if not is_bounded(name)]
    if not costly:
        return [demangle(name) for name in names]
    answers = dict(zip(costly, _shared().demangle([names[place] for place in costly]), strict=True))
    return [
        answers[place] if place in answers else demangle(name) for place, name in enumerate(names)
    ]


def _shared() -> ConfinedDemangler:
    """The demangler of this process."""
    global _demangler
    with _demangler_lock:
        if _demangler is None or _demangler.process != os.getpid():
            _demangler = ConfinedDemangler()
            atexit.register(_demangler.close)
        return _demangler
