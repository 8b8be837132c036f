"""The order of a database's trace lines, from the identities of all measurements."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.analysis.trace.part_contents import PartContents
from hpcd.array_types import I64
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
    # Numbers by column: a million lines as tuples would be hundreds of megabytes.
    known: list[tuple[int, Process]] = []
    first_known = [0]
    for number, contents in enumerate(measurements):
        known += [(number, process) for process in _processes(contents).values()]
        first_known.append(len(known))
    ranked = np.argsort(np.array([contents.id for contents in measurements], object))
    by_id = np.empty(len(measurements), np.int64)
    by_id[ranked] = np.arange(len(measurements))
    number_of = np.array([number for number, _ in known], np.int64)
    hosts = _places([contents.host.hostname for contents in measurements])
    ranks = [process.rank for _, process in known]
    columns = [
        np.array(column, np.int64)
        for column in (
            [process.id for _, process in known], by_id[number_of],
            [process.start_ns for _, process in known], [process.pid for _, process in known],
            hosts[number_of], [rank or 0 for rank in ranks], [rank is None for rank in ranks],
            _places([process.job for _, process in known]),
        )
    ]  # fmt: skip
    order = np.lexsort(columns)
    row = np.empty(len(known), np.int64)
    row[order] = np.arange(len(known))
    names = ("owner", "other", "tid", "start", "source", "measurement")
    lines = {name: array("q") for name in names}
    for number, contents in enumerate(measurements):
        mine = slice(first_known[number], first_known[number + 1])
        owner_of = {
            process.id: (at, process.pid)
            for (_, process), at in zip(known[mine], row[mine].tolist(), strict=True)
        }
        for line in contents.lines.tolist():
            thread = contents.threads.get(line) or unknown_thread(line)
            owner, pid = owner_of[thread.process]
            values = (owner, thread.tid != pid, thread.tid, thread.start_ns, line, number)
            for name, value in zip(names, values, strict=True):
                lines[name].append(value)
    table = {name: np.frombuffer(column, np.int64) for name, column in lines.items()}
    placed = np.lexsort([table[name] for name in reversed(names)])
    return (
        LineOrder(
            table["measurement"][placed].astype(np.uint32),
            table["source"][placed].astype(np.uint32),
            table["owner"][placed].astype(np.uint32),
        ),
        [known[place] for place in order.tolist()],
    )


def _processes(contents: PartContents) -> dict[int, Process]:
    """The processes of a measurement by id, with those that its threads name alone."""
    table = dict(contents.processes)
    for line in contents.lines.tolist():
        owner = (contents.threads.get(line) or unknown_thread(line)).process
        if owner not in table:
            table[owner] = unknown_process(owner)
    return table


def _places(texts: Sequence[str]) -> I64:
    """The place of each of ``texts`` among all that differ, in order."""
    place = {text: number for number, text in enumerate(sorted(set(texts)))}
    return np.array([place[text] for text in texts], np.int64)
