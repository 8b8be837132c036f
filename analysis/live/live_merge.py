"""A measurement that is still being written, as a database that is made anew as it grows.

Every update merges the whole measurement: for an hour of two busy ranks that is half a second of
CPU, less than a database that can grow would cost all other readers of databases. It is done in a
process of its own, at low priority, and updates are spaced by what they cost, so that following
takes a quarter of a CPU at most however long the recording is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from hpcd.analysis.database import Database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.merge.tasks.process_pool import CONTEXT, describe_ending, start_fork_server
from hpcd.errors import FormatError, HpcdError
from hpcd.measurement.segments import is_being_written, measurement_size

# Writers flush once a second: there is nothing newer to be seen.
_LEAST_SECONDS = 1.0
_SHARE = 0.25
# Time that a merge may go on after the request to stop.
_STOP_SECONDS = 5.0


class Following:
    """Makes one database after another of the measurement ``path``, in the directory ``folder``.

    ``ended`` says that nothing more will come, and that all there is has been merged. One thread at
    a time may request updates.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.ended = False
        self.pause = 0.0
        """Seconds from the end of an update until the next may begin."""
        self._folder = folder
        self._size = -1
        self._number = 0

    def update(self, stop: threading.Event) -> Database | None:
        """The database of what there is now; None when there is nothing new, or ``stop`` was set.

        Raises what :func:`~hpcd.analysis.merge.stages.merge` does; then there was no update.
        """
        # In this order: what is written between the two is not missed.
        writing = is_being_written(self.path)
        size = measurement_size(self.path)
        if size == self._size:
            self.ended = not writing
            return None
        out = self._folder / f"{self._number + 1}"
        cost = _merged(self.path, out, stop)
        if cost is None:
            return None
        self.pause = max(_LEAST_SECONDS, cost * (1 / _SHARE - 1))
        revision = Database(out)
        self._number += 1
        self._size = size
        # What one looks at before and the other after the last revision may still need its files.
        shutil.rmtree(self._folder / f"{self._number - 2}", ignore_errors=True)
        self.ended = revision.measurements[0].closed
        return revision

    def first(self, stop: threading.Event) -> Database | None:
        """The first database, as soon as the measurement has anything; None when ``stop`` was set.

        Raises :class:`FormatError` when it never will.
        """
        while not stop.is_set():
            writing = self.path.is_dir() and is_being_written(self.path)
            try:
                return self.update(stop)
            except FormatError:
                if not writing:
                    raise
            stop.wait(_LEAST_SECONDS / 4)
        return None


def _merged(path: Path, out: Path, stop: threading.Event) -> float | None:
    """Merge in another process; its seconds of CPU, or None when ``stop`` was set meanwhile.

    Raises what it raised.
    """
    start_fork_server()
    here, there = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_merge, args=(path, out, there), daemon=True)
    with here:
        process.start()
        there.close()
        try:
            while not here.poll(0.1):
                if stop.is_set():
                    return None
            try:
                answer: float | HpcdError = here.recv()
            except EOFError:
                answer = HpcdError(f"{path}: its merge {describe_ending(process)}")
            if isinstance(answer, HpcdError):
                raise answer
            return answer
        finally:
            if stop.is_set():
                process.terminate()
            process.join(_STOP_SECONDS)


def _merge(path: Path, out: Path, answer: Connection) -> None:
    # Ctrl-C is for who asked; it ends this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(10)
    try:
        merge([path], out, workers=1, sync=False)
    except HpcdError as error:
        answer.send(error)
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        answer.send(HpcdError(f"{path}: its merge failed: {why}"))
    else:
        answer.send(time.process_time())
