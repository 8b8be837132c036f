"""profile.db and cct.db: costs by thread, and the same by context.

profile.db is written thread by thread. cct.db is the transpose: how many values each context has is
counted on the way, so that they have their places when profile.db is read back, a thread at a time.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from types import TracebackType

import numpy as np

from hpcd.analysis.trace.trace_lines import Line
from hpcd.array_types import F64, I64
from hpcd.interchange.hpctoolkit_file import FOOTER, align, header_size, write_header
from hpcd.interchange.hpctoolkit_meta import ID_KINDS

_VALUE = np.dtype([("metric", "<u2"), ("value", "<f8")])
_INDEX = np.dtype([("context", "<u4"), ("start", "<u8")])
_CELL = np.dtype([("profile", "<u4"), ("value", "<f8")])
_METRIC_INDEX = np.dtype([("metric", "<u2"), ("start", "<u8")])
_PROFILE_BYTES = 48
_IS_SUMMARY = 1
_IS_PHYSICAL = 1
# Values put in their places at once.
_BATCH = 1 << 16
# Contexts whose indices are written at once.
_CONTEXTS = 1 << 16


class ProfileWriter:
    """Writes profile.db.

    ``counts`` ``int64[contexts, 2 · metrics]``: in how many profiles each context has a value;
    ``blocks``: of each profile where its values and indices lie, and how many there are.
    """

    def __init__(self, path: Path, contexts: int, metrics: int) -> None:
        self._file = path.open("wb")
        self._file.write(bytes(header_size(2)))
        self.counts = np.zeros((contexts, 2 * metrics), np.int64)
        self._total = np.zeros((contexts, 2 * metrics))
        self.blocks: list[tuple[int, int, int, int]] = []
        self._tuples: list[list[tuple[str, bool, int, int]]] = []
        self._hosts: dict[str, int] = {}
        self._threads: dict[tuple[str, int], int] = {}

    def __enter__(self) -> ProfileWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, line: Line, values: F64) -> None:
        """The profile of a thread: ``float64[contexts, 2 · metrics]``."""
        self._total += values
        self.counts += values != 0
        self.blocks.append(self._write(values, 0))
        host = self._hosts.setdefault(line.host, len(self._hosts))
        process = line.host, line.pid
        thread = self._threads[process] = self._threads.get(process, -1) + 1
        number = line.pid if line.rank is None else line.rank
        self._tuples.append(
            [
                ("NODE", True, host, zlib.crc32(line.host.encode("utf-8", "backslashreplace"))),
                ("PROCESS" if line.rank is None else "RANK", False, number, number),
                ("THREAD", False, thread, thread),
            ]
        )

    def finish(self) -> None:
        """The summary, the list of profiles, and the header."""
        summary = self._write(self._total, self._total.shape[1])
        file = self._file
        tuples_at = align(file)
        places = []
        for ids in self._tuples:
            places.append(file.tell())
            file.write(struct.pack("<H6x", len(ids)))
            for kind, physical, logical, number in ids:
                flags = _IS_PHYSICAL if physical else 0
                row = struct.pack("<BxHIQ", ID_KINDS.index(kind), flags, logical, number)
                file.write(row)
        tuples = (file.tell() - tuples_at, tuples_at)
        at = align(file)
        file.write(struct.pack("<QIB3x", at + 16, len(places) + 1, _PROFILE_BYTES))
        for block, place, flags in zip(
            [summary, *self.blocks],
            [0, *places],
            [_IS_SUMMARY, *[0] * len(places)],
            strict=True,
        ):
            values_at, count, index_at, contexts = block
            file.write(struct.pack("<QQI4xQ", count, values_at, contexts, index_at))
            file.write(struct.pack("<QI4x", place, flags))
        infos = (file.tell() - at, at)
        align(file)
        file.write(FOOTER["prof"])
        write_header(file, "prof", [infos, tuples])

    def _write(self, values: F64, first_id: int) -> tuple[int, int, int, int]:
        context, metric = np.nonzero(values)
        pairs = np.zeros(len(context), _VALUE)
        pairs["metric"], pairs["value"] = metric + first_id, values[context, metric]
        used, start = np.unique(context, return_index=True)
        index = np.zeros(len(used), _INDEX)
        index["context"], index["start"] = used, start
        values_at = align(self._file)
        self._file.write(pairs.tobytes())
        index_at = align(self._file)
        self._file.write(index.tobytes())
        return values_at, len(pairs), index_at, len(index)


def write_cct(path: Path, profile: Path, profiles: ProfileWriter) -> None:
    """Write cct.db, of what ``profiles`` wrote to ``profile``."""
    counts = profiles.counts
    values = counts.sum(axis=1)
    metrics = (counts > 0).sum(axis=1)
    indices_after = 12 * values
    size = indices_after + 10 * metrics
    size += -size % 8
    count = len(counts)
    head = header_size(1)
    begin = head + 16 + 32 * count + np.cumsum(size) - size
    end = int(begin[-1] + size[-1]) if count else head + 16
    with path.open("w+b") as file:
        # Reserved, so that a full disk is an error here and no signal later.
        os.posix_fallocate(file.fileno(), 0, end + 8)
        file.write(bytes(head))
        file.write(struct.pack("<QIB3x", head + 16, count, 32))
        infos = np.zeros((count, 4), "<u8")
        infos[:, 0], infos[:, 1], infos[:, 2] = values, begin, metrics
        infos[:, 3] = begin + indices_after
        file.write(infos.tobytes())
        file.seek(end)
        file.write(FOOTER["ctxt"])
        write_header(file, "ctxt", [(16 + 32 * count, head)])
    bytes_of = np.memmap(path, np.uint8, "r+")
    within = np.cumsum(counts, axis=1) - counts
    for at in range(0, count, _CONTEXTS):
        _put_indices(bytes_of, counts, within, begin + indices_after, slice(at, at + _CONTEXTS))
    cursor = begin[:, None] + 12 * within
    with profile.open("rb") as source:
        for number, block in enumerate(profiles.blocks, start=1):
            _put_profile(bytes_of, cursor, source.fileno(), number, block)
    bytes_of.flush()


def _put_indices(target: np.memmap, counts: I64, within: I64, places: I64, span: slice) -> None:
    """The index of metrics of the contexts of ``span``."""
    context, metric = np.nonzero(counts[span])
    rows = np.zeros(len(context), _METRIC_INDEX)
    rows["metric"], rows["start"] = metric, within[span][context, metric]
    order = np.arange(len(context)) - np.searchsorted(context, context)
    _put(target, places[span][context] + 10 * order, rows.view(np.uint8).reshape(len(rows), 10))


def _put_profile(
    target: np.memmap, cursor: I64, source: int, number: int, block: tuple[int, int, int, int]
) -> None:
    """The values of one profile, each behind those of the profiles before."""
    values_at, count, index_at, contexts = block
    index = np.frombuffer(os.pread(source, contexts * _INDEX.itemsize, index_at), _INDEX)
    bounds = np.append(index["start"].astype(np.int64), count)
    context = np.repeat(index["context"].astype(np.int64), np.diff(bounds))
    for at in range(0, count, _BATCH):
        amount = min(_BATCH, count - at)
        place = values_at + at * _VALUE.itemsize
        pairs = np.frombuffer(os.pread(source, amount * _VALUE.itemsize, place), _VALUE)
        rows = np.zeros(amount, _CELL)
        rows["profile"], rows["value"] = number, pairs["value"]
        where = context[at : at + amount], pairs["metric"].astype(np.int64)
        _put(target, cursor[where], rows.view(np.uint8).reshape(amount, 12))
        cursor[where] += 12


def _put(target: np.memmap, places: I64, rows: np.ndarray) -> None:
    target[places[:, None] + np.arange(rows.shape[1])] = rows
