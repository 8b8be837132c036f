"""The order of a database's trace lines, from the identities of all measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.analysis.trace.part_contents import PartContents
from hpcd.model.identity import Process, Thread


@dataclass(frozen=True, slots=True)
class LineOrder:
    """Trace lines in database order: job, rank, host, process, thread.

    All arrays have one entry per line: ``measurement`` and ``source`` say which measurement's
    which line it is, ``process`` its row in the process table.
    """

    measurement: npt.NDArray[np.uint32]
    source: npt.NDArray[np.uint32]
    process: npt.NDArray[np.uint32]


def unknown_process(number: int) -> Process:
    """Stands for a process whose announcement was lost."""
    return Process(number, 0, 0, "unknown", "", (), 0, 0)


def unknown_thread(line: int) -> Thread:
    """Stands for a thread whose announcement was lost."""
    return Thread(line, -1, 0, "unknown", 0)


def order_lines(
    measurements: Sequence[PartContents],
) -> tuple[LineOrder, list[tuple[int, Process]]]:
    """The lines of all measurements in order, and the processes (measurement, process) likewise.

    The order depends on what the lines are, not on the order of the measurements.
    """
    processes: list[tuple[int, Process]] = []
    for number, contents in enumerate(measurements):
        table = dict(contents.processes)
        for line in contents.lines.tolist():
            owner = contents.threads.get(line, unknown_thread(line)).process
            table.setdefault(owner, unknown_process(owner))
        processes += [(number, process) for process in table.values()]

    def key(item: tuple[int, Process]) -> tuple[object, ...]:
        number, process = item
        rank = process.rank
        where = measurements[number].host.hostname
        return (process.job, rank is None, rank or 0, where, process.pid, process.start_ns,
                measurements[number].id, process.id)  # fmt: skip

    processes.sort(key=key)
    row = {(number, process.id): at for at, (number, process) in enumerate(processes)}
    lines = []
    for number, contents in enumerate(measurements):
        for line in contents.lines.tolist():
            thread = contents.threads.get(line, unknown_thread(line))
            owner = row[number, thread.process]
            first = thread.tid != processes[owner][1].pid
            lines.append((owner, first, thread.tid, thread.start_ns, line, number))
    lines.sort()
    return (
        LineOrder(
            np.array([item[5] for item in lines], np.uint32),
            np.array([item[4] for item in lines], np.uint32),
            np.array([item[0] for item in lines], np.uint32),
        ),
        processes,
    )
