"""Keeps the store within its limits: asks the process that looks after it, again and again."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpcd.daemon.service import journal
from hpcd.daemon.service.child_process import after_service
from hpcd.errors import HpcdError
from hpcd.startup.isolation import python_command, python_environment

# Lines in the journal about measurements that cannot be removed.
_STUCK = 100


class StoreKeeper:
    """Has the store at ``store`` looked at every ``seconds``, in a thread of its own.

    ``limits`` gives what a look is to go by (see :mod:`hpcd.daemon.service.keeper_process`);
    ``end_recordings`` is called with each user whose recordings alone take too much.
    """

    def __init__(
        self,
        store: Path,
        limits: Callable[[], dict[str, object]],
        end_recordings: Callable[[int], None],
        seconds: float,
    ) -> None:
        self._store = store
        self._limits = limits
        self._end_recordings = end_recordings
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = self._start()
        self._closed = threading.Event()
        self._stuck: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more; a look that has begun may last for a moment."""
        self._closed.set()
        if self._process:
            self._process.terminate()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._take(self._ask(self._limits()))
            except Exception as error:
                # Whatever a measurement holds, the next look is at the others too.
                if not self._closed.is_set():
                    journal.log("internal error", journal.ERROR, where="store", error=repr(error))
                self._end()
            self._closed.wait(self._seconds)
        self._end()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            python_command("-m", "hpcd.daemon.service.keeper_process", str(self._store)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env=python_environment(),
            start_new_session=True,
        )
        after_service(process.pid)
        return process

    def _ask(self, limits: dict[str, object]) -> dict[str, object]:
        if self._process is None:
            self._process = self._start()
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):  # it is gone, as the next line finds
            self._process.stdin.write(json.dumps(limits) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise HpcdError(f"the store's process ended ({self._process.wait()})")
        answer: dict[str, object] = json.loads(line)
        return answer

    def _take(self, answer: dict[str, Any]) -> None:
        for path, uid in answer["removed"]:
            journal.log("removed", measurement=path, uid=uid)
        for path, why in answer["stuck"]:
            if path not in self._stuck and len(self._stuck) < _STUCK:
                self._stuck.add(path)  # said once, tried again with each look
                journal.log("not removed", journal.WARNING, measurement=path, why=why)
        for uid in answer["users"]:
            self._end_recordings(uid)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process:
            assert process.stdin
            assert process.stdout
            process.kill()
            process.wait()
            process.stdout.close()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
