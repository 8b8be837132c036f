"""CPU time of threads, and time that they waited for a CPU, by the kernel's count as they end: that
of /proc/PID/task/TID/schedstat, which it hands out through a netlink socket (taskstats)."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
from pathlib import Path

import numpy as np

from hpcd.analysis.database import Database
from hpcd.measurement.reader import open_measurement

_GENERIC, _CONTROLLER, _REQUEST = 16, 16, 1
# Of include/uapi/linux/genetlink.h and taskstats.h.
_GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 3, 1, 2
_GET, _REGISTER, _AGGREGATE, _PID, _STATS = 1, 3, 4, 1, 3
_DELAY, _RAN = 24, 72
"""Offsets in ``struct taskstats`` of ``cpu_delay_total`` and ``cpu_run_virtual_total``, in ns."""
_BUFFER = 1 << 24
# Of less time a difference of 1 % is a few switches.
LEAST_SECONDS = 0.5


class SchedulerCounts:
    """Collects (ran, waited), in seconds, of threads that end while it is entered, by thread id.
    Raises :class:`OSError` where the kernel has no taskstats, or without the rights of root."""

    def __init__(self) -> None:
        self.threads: dict[int, tuple[float, float]] = {}
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _GENERIC)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._socket.bind((0, 0))
        self._send(_CONTROLLER, _GET_FAMILY, _FAMILY_NAME, b"TASKSTATS\0")
        answer = dict(_attributes(self._socket.recv(1 << 16)[20:]))
        if _FAMILY_ID not in answer:
            raise OSError("the kernel has no taskstats")
        self._family = int.from_bytes(answer[_FAMILY_ID][:2], "little")
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> SchedulerCounts:
        cpus = f"0-{(os.cpu_count() or 1) - 1}\0".encode()
        self._send(self._family, _GET, _REGISTER, cpus)
        self._reader.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._reader.join()
        self._socket.close()

    def _send(self, family: int, command: int, kind: int, value: bytes) -> None:
        attribute = struct.pack("HH", 4 + len(value), kind) + value
        attribute += b"\0" * (-len(attribute) % 4)
        head = struct.pack("IHHIIBBH", 20 + len(attribute), family, _REQUEST, 0, 0, command, 1, 0)
        self._socket.send(head + attribute)

    def _read(self) -> None:
        while select.select([self._socket], [], [], 0.2)[0] or not self._ended.is_set():
            with contextlib.suppress(BlockingIOError, OSError):  # a full buffer loses some
                self._take(self._socket.recv(1 << 16, socket.MSG_DONTWAIT))

    def _take(self, message: bytes) -> None:
        for kind, value in _attributes(message[20:]):
            parts = dict(_attributes(value)) if kind == _AGGREGATE else {}
            if _PID in parts and len(parts.get(_STATS, b"")) >= _RAN + 8:
                ran, waited = (
                    int.from_bytes(parts[_STATS][at : at + 8], "little") / 1e9
                    for at in (_RAN, _DELAY)
                )
                self.threads[int.from_bytes(parts[_PID][:4], "little")] = ran, waited


def _attributes(text: bytes) -> list[tuple[int, bytes]]:
    rows, at = [], 0
    while at + 4 <= len(text):
        length, kind = struct.unpack_from("HH", text, at)
        if length < 4:
            break
        rows.append((kind & 0x3FFF, text[at + 4 : at + length]))
        at += (length + 3) & ~3
    return rows


def largest_difference(
    counts: dict[int, tuple[float, float]], measurement: Path, database: Path
) -> tuple[float, float]:
    """Return by how much the CPU time of a thread, and its time without a CPU, differs at most from
    the kernel's ``counts``, of those with half a second of it. The first thread is left out: before
    its exec it is not recorded."""
    differs = [0.0, 0.0]
    with open_measurement(measurement) as recorded, Database(database) as db:
        ran = {thread.tid: thread.cpu_ns / 1e9 for thread in recorded.threads.values()}
        known = "runnable_time" in db.metrics.names
        totals = db.line_totals("runnable_time") if known else np.zeros(len(db.lines))
        waited = dict(zip(db.lines.tid.tolist(), totals.tolist(), strict=True))
        waited.pop(int(db.lines.tid[db.lines.start.argmin()]), None)
    for tid, true in counts.items():
        for at, mine in enumerate((ran, waited)):
            if tid in mine and true[at] >= LEAST_SECONDS:
                differs[at] = max(differs[at], abs(mine[tid] / true[at] - 1))
    return differs[0], differs[1]
