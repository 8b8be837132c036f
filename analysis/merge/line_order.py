"""The order of a database's trace lines, from the identities of all measurements."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.analysis.trace.part_contents import PartContents
from hpcd.array_types import I64
from hpcd.measurement.identity_columns import IdentityColumns
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


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """Processes in database order, by column.

    ``measurement`` ``int64[n]`` is whose each is; numbers are ``int64[n]``, ``rank`` and ``size``
    NO_NUMBER where there is none.
    """

    measurement: I64
    pid: I64
    parent_pid: I64
    uid: I64
    start_ns: I64
    rank: I64
    size: I64
    name: list[str]
    exe: list[str]
    command: list[tuple[str, ...]]
    job: list[str]


@dataclass(frozen=True, slots=True)
class ThreadTable:
    """What measurements say of the threads of trace lines in database order, by column.

    Numbers are ``int64[n]``, in monotonic ns those that end in ``_ns``, NO_NUMBER where there is
    none.
    """

    tid: I64
    start_ns: I64
    end_ns: I64
    attached_ns: I64
    asleep_since_ns: I64
    name: list[str]


NO_NUMBER = -(1 << 62)
"""In place of None; what a measurement says is within 2^60 of 0."""


def unknown_process(number: int) -> Process:
    """Stands for a process whose announcement was lost."""
    return Process(number, 0, 0, "unknown", "", (), 0, 0)


def unknown_thread(line: int) -> Thread:
    """Stands for a thread whose announcement was lost."""
    return Thread(line, -1, 0, "unknown", 0)


def order_lines(
    measurements: Sequence[PartContents],
) -> tuple[LineOrder, ProcessTable, ThreadTable]:
    """The lines of all measurements in order, and processes and threads likewise.

    The order depends on what the lines are, not on the order of the measurements.
    """
    # By column: a million lines as objects would be hundreds of megabytes.
    processes = {name: _Column() for name in ("measurement", *_OF_PROCESSES)}
    threads = {name: _Column() for name in _OF_THREADS}
    lines = {name: _Column() for name in ("owner", "other", "source", "measurement")}
    texts: dict[str, list[Any]] = {name: [] for name in _TEXTS_OF_PROCESSES}
    names: list[str] = []
    first = 0
    for number, contents in enumerate(measurements):
        own_threads = _threads(contents)
        own = _processes(contents, own_threads)
        place = {id: at for at, id in enumerate(own)}
        owner = np.array([place[id] for id in own_threads.column("process")], np.int64)
        pid = own.array("pid")
        for name in _OF_PROCESSES:
            processes[name].add(own.array(name, NO_NUMBER))
        for name in _TEXTS_OF_PROCESSES:
            texts[name] += own.column(name)
        for name in _OF_THREADS:
            threads[name].add(own_threads.array(name, NO_NUMBER))
        names += own_threads.column("name")
        processes["measurement"].add(np.full(len(own), number))
        lines["owner"].add(first + owner)
        lines["other"].add(own_threads.array("tid") != pid[owner])
        lines["source"].add(contents.lines)
        lines["measurement"].add(np.full(len(owner), number))
        first += len(own)
    process = {name: column.values for name, column in processes.items()}
    ranked = np.argsort(np.array([contents.id for contents in measurements], object))
    by_id = np.empty(len(measurements), np.int64)
    by_id[ranked] = np.arange(len(measurements))
    hosts = _places([contents.host.hostname for contents in measurements])
    owners, ranks = process["measurement"], process["rank"]
    order = np.lexsort(
        (process.pop("id"), by_id[owners], process["start_ns"], process["pid"], hosts[owners],
         np.where(ranks == NO_NUMBER, 0, ranks), ranks == NO_NUMBER, _places(texts["job"]))
    )  # fmt: skip
    row = np.empty(len(order), np.int64)
    row[order] = np.arange(len(order))
    line = {name: column.values for name, column in lines.items()}
    line["owner"] = row[line["owner"]]
    thread = {name: column.values for name, column in threads.items()}
    placed = np.lexsort(
        (line["measurement"], line["source"], thread["start_ns"], thread["tid"], line["other"],
         line["owner"])
    )  # fmt: skip
    return (
        LineOrder(
            line["measurement"][placed].astype(np.uint32),
            line["source"][placed].astype(np.uint32),
            line["owner"][placed].astype(np.uint32),
        ),
        ProcessTable(
            measurement=process["measurement"][order],
            pid=process["pid"][order],
            parent_pid=process["parent_pid"][order],
            uid=process["uid"][order],
            start_ns=process["start_ns"][order],
            rank=process["rank"][order],
            size=process["size"][order],
            name=_chosen(texts["name"], order),
            exe=_chosen(texts["exe"], order),
            command=_chosen(texts["command"], order),
            job=_chosen(texts["job"], order),
        ),
        ThreadTable(
            tid=thread["tid"][placed],
            start_ns=thread["start_ns"][placed],
            end_ns=thread["end_ns"][placed],
            attached_ns=thread["attached_ns"][placed],
            asleep_since_ns=thread["asleep_since_ns"][placed],
            name=_chosen(names, placed),
        ),
    )


_OF_PROCESSES = ("id", "pid", "parent_pid", "uid", "start_ns", "rank", "size")
_TEXTS_OF_PROCESSES = ("name", "exe", "command", "job")
_OF_THREADS = ("tid", "start_ns", "end_ns", "attached_ns", "asleep_since_ns")


def _threads(contents: PartContents) -> IdentityColumns[Thread]:
    """The thread of each of a measurement's lines."""
    known = IdentityColumns.of(Thread, contents.threads)
    lines = contents.lines.tolist()
    if list(known) == lines:
        return known
    rows = dict(known.items())
    return IdentityColumns.of(
        Thread, {line: rows.get(line) or unknown_thread(line) for line in lines}
    )


def _processes(
    contents: PartContents, threads: IdentityColumns[Thread]
) -> IdentityColumns[Process]:
    """The processes of a measurement, with those that its threads name alone."""
    known = IdentityColumns.of(Process, contents.processes)
    lost = set(threads.column("process")) - set(known)
    if not lost:
        return known
    return IdentityColumns.of(
        Process, {**dict(known.items()), **{id: unknown_process(id) for id in sorted(lost)}}
    )


class _Column:
    """Numbers of one measurement after the other: an array for each is four times as long."""

    def __init__(self) -> None:
        self._numbers = array("q")

    def add(self, numbers: npt.NDArray[Any]) -> None:
        self._numbers.frombytes(numbers.astype(np.int64, copy=False).tobytes())

    @property
    def values(self) -> I64:
        """``int64[n]``: all of them."""
        return np.frombuffer(self._numbers, np.int64)


def _chosen(values: list[Any], order: I64) -> list[Any]:
    return [values[place] for place in order.tolist()]


def _places(texts: Sequence[str]) -> I64:
    """The place of each of ``texts`` among all that differ, in order."""
    place = {text: number for number, text in enumerate(sorted(set(texts)))}
    return np.array([place[text] for text in texts], np.int64)
