"""Pushing the monitor's profiles: a process for each of its measurements, ``hpcd push``.

The service itself sends nothing: a receiver that is slow, or an answer that is hostile, meets a
process that holds nothing but the right to read measurements.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from hpcd.daemon.service import journal
from hpcd.daemon.service.configuration import PushSettings, seconds_of
from hpcd.startup.isolation import python_command, python_environment

# A process that failed is started again, ever more rarely.
_RETRY_SECONDS = (5.0, 300.0)


class Pushes:
    """The processes. Use from one thread."""

    def __init__(self) -> None:
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}
        self._with = PushSettings()
        self._begun: set[Path] = set()
        self._retry = 0.0
        self._retry_in = _RETRY_SECONDS[0]

    def keep(self, wanted: PushSettings, measurement: Path | None) -> None:
        """Start to push ``measurement`` as ``wanted`` says, None: no more of it.

        Processes of measurements before it end by themselves, with these.
        """
        if wanted != self._with:
            for process in self._processes.values():
                process.terminate()
            self._with = PushSettings(wanted.url, wanted.format, wanted.every, wanted.headers)
            self._retry, self._retry_in = 0.0, _RETRY_SECONDS[0]
        for path, process in list(self._processes.items()):
            code = process.poll()
            if code is None:
                continue
            del self._processes[path]
            if code and path == measurement:
                journal.log("push failed", journal.ERROR, measurement=str(path), code=code)
                self._retry = time.monotonic() + self._retry_in
                self._retry_in = min(2 * self._retry_in, _RETRY_SECONDS[1])
        self._begun &= {measurement} if measurement else set()
        if (
            not wanted.url
            or measurement is None
            or measurement in self._processes
            or time.monotonic() < self._retry
        ):
            return
        self._start(measurement)

    def _start(self, measurement: Path) -> None:
        wanted = self._with
        arguments = [
            "push", str(measurement), "--to", wanted.url, "--format", wanted.format,
            "--every", str(max(seconds_of(wanted.every), 1.0)),
        ]  # fmt: skip
        if wanted.headers:
            arguments += ["--headers", wanted.headers]
        if measurement in self._begun:
            # What the process before has sent is not sent again.
            arguments.append("--from-now")
        self._begun.add(measurement)
        self._processes[measurement] = subprocess.Popen(
            python_command("-m", "hpcd", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            env=python_environment(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1"),
            start_new_session=True,  # Ctrl-C is for the service alone, which ends them
        )
        journal.log("pushing", measurement=str(measurement), to=wanted.url, format=wanted.format)

    def stop_all(self, seconds: float) -> None:
        """End all; each sends its remaining measurements first, within ``seconds``."""
        deadline = time.monotonic() + seconds
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.kill()
        self._processes.clear()
