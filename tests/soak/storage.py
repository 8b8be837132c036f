"""Disks that fail: writes that find no space or fail with EIO at random, at every call in turn."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hpcd.errors import StorageError
from hpcd.measurement.check import check_measurement
from hpcd.measurement.reader import open_measurement
from hpcd.measurement.summary import SampleCounts, Summary
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread

ROUNDS = 2000


def run(rounds: int, seed: int) -> list[str]:
    """Run the test; return what was wrong."""
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            path = Path(folder) / f"m{number}"
            wrong = _round(path, random.Random(seed * 1_000_003 + number))
            findings += [f"round {number}: {finding}" for finding in wrong]
            for file in path.glob("*"):
                file.unlink()
            path.rmdir()
    return findings


def _round(path: Path, choice: random.Random) -> list[str]:
    """Flush after flush, some of them failing: what succeeded is there, what did not is counted."""
    writer = MeasurementWriter(path, Host("h", "b", "6", "x86_64", 1), options={},
                               segment_bytes=choice.choice([2000, 20_000, 1 << 20]))  # fmt: skip
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_process(Process(1, 10, 1, "p", "/p", (), 0, 0))
    writer.add_module(Module(1, ModuleKind.ELF, "/p", "ab"))
    writer.add_thread(Thread(0, 1, 10, "p", 0))
    writer.flush(Summary())
    added, time = 0, 0
    chance = choice.random()
    for _ in range(choice.randint(1, 12)):
        first = writer.add_nodes(
            np.zeros(1, np.uint32), np.array([module_frame(1, choice.getrandbits(30))], np.uint64)
        )
        count = choice.randint(1, 500)
        times = np.arange(time, time + count, dtype=np.uint64) * np.uint64(1_000_000)
        writer.add_records(np.zeros(count, np.uint32), times, np.full(count, first, np.uint32), 0)
        added, time = added + count, time + count
        with _Failing(choice, chance), contextlib.suppress(StorageError):
            writer.flush(Summary(samples=SampleCounts(taken=added)))
    try:
        writer.close()
    except StorageError as error:
        return [f"closing failed though the disk is well again: {error}"]
    findings = [str(finding) for finding in check_measurement(path) if finding.fatal]
    with open_measurement(path) as measurement:
        records = sum(len(part) for part in measurement.record_chunks())
        if records + writer.dropped_storage != added:
            findings.append(
                f"{added} records, {records} found, {writer.dropped_storage} counted lost"
            )
        if measurement.damage:
            findings.append(f"damage: {measurement.damage[0]}")
    return findings


class _Failing:
    """os.write that fails, before or in the midst of what it is given."""

    def __init__(self, choice: random.Random, chance: float) -> None:
        self._choice, self._chance = choice, chance
        self._real: Callable[..., int] = os.write

    def __enter__(self) -> None:
        def write(fd: int, data: memoryview) -> int:
            if self._choice.random() >= self._chance:
                return self._real(fd, data)
            if self._choice.random() < 0.5 and len(data) > 1:
                return self._real(fd, data[: self._choice.randint(1, len(data) - 1)])
            raise OSError(self._choice.choice([errno.ENOSPC, errno.EIO, errno.EDQUOT]), "injected")

        os.write = write  # type: ignore[assignment]

    def __exit__(self, *_: object) -> None:
        os.write = self._real
