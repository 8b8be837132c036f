"""Recordings in the background of programs that begin when they are told to."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.errors import HpcdError
from hpcd.measurement.reader import Measurement, open_measurement
from tests.support.recorded import HPCD, Names


class Recorder:
    """``hpcd attach`` in the background, sampling when the constructor returns."""

    def __init__(self, output: Path, *options: object, command: Sequence[str] = HPCD) -> None:
        arguments = ["attach", "--json", "-o", str(output), *map(str, options)]
        self._output = output
        self._process = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr
        first = self._process.stderr.readline()
        assert first == "hpcd: attached\n", first + self._process.stderr.read()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def wait_until(self, condition: Callable[[Measurement], bool]) -> None:
        """Until what is recorded meets ``condition``; the recorder must not end before."""
        wait_until(self._output, self._process, condition)

    def wait_for_program(self, executable: Path, times: int = 1) -> None:
        """Until the measurement has so many processes that run ``executable``."""
        self.wait_until(
            lambda measurement: (
                [process.exe for process in measurement.processes.values()].count(str(executable))
                >= times
            )
        )

    def stop(self) -> dict[str, Any]:
        """End the recording; its summary."""
        self._process.send_signal(signal.SIGINT)
        return self.wait()

    def send(self, number: signal.Signals) -> None:
        """Send the recorder a signal."""
        self._process.send_signal(number)

    def wait(self) -> dict[str, Any]:
        """Its summary, when it has ended."""
        out, error = self._process.communicate()
        assert self._process.returncode == 0, error
        summary: dict[str, Any] = json.loads(out)
        return summary


def wait_until(
    output: Path, recorder: subprocess.Popen[Any], condition: Callable[[Measurement], bool]
) -> None:
    """Until the measurement that ``recorder`` writes to ``output`` meets ``condition``."""
    while True:
        # There is no measurement before the first flush.
        with contextlib.suppress(HpcdError), open_measurement(output) as measurement:
            if condition(measurement):
                return
        # Not at once again: what is recorded is on the disk 0.9 s later.
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = recorder.wait(timeout=0.1)
            raise AssertionError(f"the recorder ended early: {code}")


def records_in(measurement: Measurement) -> int:
    """How many records it has so far."""
    return sum(len(part) for part in measurement.record_chunks())


def seconds_by_function(path: Path, executable: Path) -> dict[str, Counter[str]]:
    """Seconds of each metric, and of each event, below each function of ``executable``."""
    result: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for functions in seconds_by_process(path, executable).values():
        for name, seconds in functions.items():
            result[name].update(seconds)
    return result


def seconds_by_process(path: Path, executable: Path) -> dict[int, dict[str, Counter[str]]]:
    """:func:`seconds_by_function` of each process, by pid."""
    result: defaultdict[int, defaultdict[str, Counter[str]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    with open_measurement(path) as measurement:
        names = Names(measurement, executable)
        for part in measurement.record_chunks():
            for line, node, event, value in zip(
                np.repeat(part.line, np.diff(part.start)).tolist(),
                part.node.tolist(), part.event.tolist(), part.value.tolist(),
                strict=True,
            ):  # fmt: skip
                described = measurement.events[event]
                process = measurement.processes[measurement.threads[line].process]
                for name in set(names.path(node)):
                    seconds = result[process.pid][name]
                    seconds[described.metric] += value * described.scale
                    seconds[described.name] += value * described.scale
    return {pid: dict(functions) for pid, functions in result.items()}


def started(executable: Path, *arguments: object) -> subprocess.Popen[str]:
    """A program that has said it is ready and waits for its input to end."""
    process = subprocess.Popen(
        [str(executable), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process
