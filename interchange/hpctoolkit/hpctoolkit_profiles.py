"""profile.db and cct.db: costs by thread, and the same by context.

profile.db is written thread by thread. cct.db is the transpose: the number of values of each
context is counted on the way, so that they have their places when profile.db is read back, a thread
at a time.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from hpcd.analysis.trace.trace_lines import Line
from hpcd.array_types import F64, I64, Array
from hpcd.interchange.hpctoolkit import hpctoolkit_layout as layout
from hpcd.interchange.hpctoolkit.hpctoolkit_layout import (
    StructureFile,
    align,
    finish_file,
    header_size,
)

# cct.db
_CONTEXTS_HEAD = struct.Struct("<QIB3x")  # contexts, count, stride
_CONTEXT_BYTES = 32
_CELL = np.dtype([("profile", "<u4"), ("value", "<f8")])
_METRIC_INDEX = np.dtype([("metric", "<u2"), ("start", "<u8")])
# Values put in their places at once.
_BATCH = 1 << 16
# Contexts whose indices are written at once.
_CONTEXTS = 1 << 16
_MAX_PROFILES = 1 << 18
_MAX_IDS = 16

# --- writing ---


class ProfileFileWriter:
    """Writes profile.db, thread by thread.

    ``counts`` int64[contexts, 2 · metrics] is the number of profiles in which a context has a
    value; ``blocks`` has each profile's position and number of values, then of indices.
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

    def __enter__(self) -> ProfileFileWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, line: Line, values: F64) -> None:
        """Add the profile of a thread: ``values`` float64[contexts, 2 · metrics]."""
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
        """Write the summary, the list of profiles, and the header."""
        # Readers look up the sums of the whole, whether or not anything was recorded.
        summary = self._write(self._total, self._total.shape[1], complete=2)
        file = self._file
        ids_at = align(file)
        places = []
        for ids in self._tuples:
            places.append(file.tell())
            file.write(layout.ID_COUNT.pack(len(ids)))
            for kind, physical, logical, number in ids:
                flags = layout.IS_PHYSICAL if physical else 0
                file.write(layout.ID.pack(layout.ID_KINDS.index(kind), flags, logical, number))
        ids_section = (file.tell() - ids_at, ids_at)
        at = align(file)
        file.write(
            layout.PROFILES.pack(at + layout.PROFILES.size, len(places) + 1, layout.PROFILE.size)
        )
        for block, place in zip([summary, *self.blocks], [0, *places], strict=True):
            values_at, count, index_at, contexts = block
            flags = 0 if place else layout.IS_SUMMARY
            file.write(layout.PROFILE.pack(count, values_at, contexts, index_at, place, flags))
        finish_file(file, "prof", [(file.tell() - at, at), ids_section])

    def _write(self, values: F64, first_id: int, *, complete: int = 0) -> tuple[int, int, int, int]:
        """Write the values that are not 0, and all of the first ``complete`` contexts."""
        kept = values != 0
        kept[:complete] = True
        context, metric = np.nonzero(kept)
        pairs = np.zeros(len(context), layout.VALUE)
        pairs["metric"], pairs["value"] = metric + first_id, values[context, metric]
        used, start = np.unique(context, return_index=True)
        index = np.zeros(len(used), layout.INDEX)
        index["context"], index["start"] = used, start
        values_at = align(self._file)
        self._file.write(pairs.tobytes())
        index_at = align(self._file)
        self._file.write(index.tobytes())
        return values_at, len(pairs), index_at, len(index)


def write_cct(path: Path, profile: Path, profiles: ProfileFileWriter) -> None:
    """Write cct.db, the transpose of the file ``profile`` that ``profiles`` wrote."""
    counts = profiles.counts
    values = counts.sum(axis=1)
    metrics = (counts > 0).sum(axis=1)
    indices_after = _CELL.itemsize * values
    size = indices_after + _METRIC_INDEX.itemsize * metrics
    size += -size % 8
    count = len(counts)
    head = header_size(1)
    begin = head + _CONTEXTS_HEAD.size + _CONTEXT_BYTES * count + np.cumsum(size) - size
    end = int(begin[-1] + size[-1]) if count else head + _CONTEXTS_HEAD.size
    with path.open("w+b") as file:
        # Reserved, so that a full disk is an error here and no signal later.
        os.posix_fallocate(file.fileno(), 0, end + 8)
        file.write(bytes(head))
        file.write(_CONTEXTS_HEAD.pack(head + _CONTEXTS_HEAD.size, count, _CONTEXT_BYTES))
        infos = np.zeros((count, 4), "<u8")
        infos[:, 0], infos[:, 1], infos[:, 2] = values, begin, metrics
        infos[:, 3] = begin + indices_after
        file.write(infos.tobytes())
        file.seek(end)
        section = (_CONTEXTS_HEAD.size + _CONTEXT_BYTES * count, head)
        finish_file(file, "ctxt", [section])
    bytes_of = np.memmap(path, np.uint8, "r+")
    within = np.cumsum(counts, axis=1) - counts
    for at in range(0, count, _CONTEXTS):
        _put_indices(bytes_of, counts, within, begin + indices_after, slice(at, at + _CONTEXTS))
    cursor = begin[:, None] + _CELL.itemsize * within
    with profile.open("rb") as source:
        for number, block in enumerate(profiles.blocks, start=1):
            _put_profile(bytes_of, cursor, source.fileno(), number, block)
    bytes_of.flush()


def _put_indices(target: np.memmap, counts: I64, within: I64, places: I64, span: slice) -> None:
    """Put the index of metrics of the contexts of ``span`` in its place."""
    context, metric = np.nonzero(counts[span])
    rows = np.zeros(len(context), _METRIC_INDEX)
    rows["metric"], rows["start"] = metric, within[span][context, metric]
    order = np.arange(len(context)) - np.searchsorted(context, context)
    _put(target, places[span][context] + _METRIC_INDEX.itemsize * order, rows)


def _put_profile(
    target: np.memmap, cursor: I64, source: int, number: int, block: tuple[int, int, int, int]
) -> None:
    """Append the values of one profile to the values of earlier profiles."""
    values_at, count, index_at, contexts = block
    index = np.frombuffer(
        os.pread(source, contexts * layout.INDEX.itemsize, index_at), layout.INDEX
    )
    bounds = np.append(index["start"].astype(np.int64), count)
    context = np.repeat(index["context"].astype(np.int64), np.diff(bounds))
    for at in range(0, count, _BATCH):
        amount = min(_BATCH, count - at)
        place = values_at + at * layout.VALUE.itemsize
        pairs = np.frombuffer(os.pread(source, amount * layout.VALUE.itemsize, place), layout.VALUE)
        rows = np.zeros(amount, _CELL)
        rows["profile"], rows["value"] = number, pairs["value"]
        where = context[at : at + amount], pairs["metric"].astype(np.int64)
        _put(target, cursor[where], rows)
        cursor[where] += _CELL.itemsize


def _put(target: np.memmap, places: I64, rows: np.ndarray) -> None:
    letters = rows.view(np.uint8).reshape(len(rows), rows.dtype.itemsize)
    target[places[:, None] + np.arange(rows.dtype.itemsize)] = letters


# --- reading ---


@dataclass(frozen=True, slots=True)
class ThreadProfile:
    """A thread's sums: its identifiers by kind, positions and numbers of values and contexts."""

    ids: dict[str, int]
    values: int
    value_count: int
    contexts: int
    context_count: int


class ProfileFile:
    """Reads ``profile.db``: inclusive values by thread."""

    def __init__(self, folder: Path, kinds: list[str]) -> None:
        self._file = StructureFile(folder / "profile.db", b"prof")
        self._kinds = kinds

    def profiles(self) -> dict[int, ThreadProfile]:
        """Return the profiles of threads by number, without summaries of several."""
        file = self._file
        place, count, stride = file.unpack(layout.PROFILES, file.section(0))
        if count > _MAX_PROFILES:
            raise file.damaged(f"{count} profiles")
        profiles = {}
        size = 0
        for number in range(count):
            fields = file.unpack(layout.PROFILE, place + stride * number)
            value_count, values, context_count, contexts, ids = fields[:5]
            size += value_count * layout.VALUE.itemsize + context_count * layout.INDEX.itemsize
            if size > len(file):
                raise file.damaged("profiles have more values than fit into it")
            if not fields[5] & layout.IS_SUMMARY and ids:
                profiles[number] = ThreadProfile(
                    self._ids(ids), values, value_count, contexts, context_count
                )
        return profiles

    def _ids(self, at: int) -> dict[str, int]:
        (count,) = self._file.unpack(layout.ID_COUNT, at)
        ids = {}
        for number in range(min(count, _MAX_IDS)):
            kind, flags, logical, physical = self._file.unpack(
                layout.ID, at + layout.ID_COUNT.size + layout.ID.size * number
            )
            name = self._kinds[kind] if kind < len(self._kinds) else str(kind)
            ids[name] = physical if flags & layout.IS_PHYSICAL else logical
        return ids

    def values(self, profile: ThreadProfile, metric: int) -> tuple[Array, Array]:
        """Return contexts uint32[n] and values float64[n] of a metric."""
        file = self._file
        values = file.array(layout.VALUE, profile.values, profile.value_count)
        index = file.array(layout.INDEX, profile.contexts, profile.context_count)
        bounds = np.append(index["start"], np.uint64(len(values)))
        if bool((bounds[1:] < bounds[:-1]).any()) or int(bounds[-2:].max()) > len(values):
            raise file.damaged("values of a profile are out of order")
        counts: I64 = (bounds[1:] - bounds[:-1]).astype(np.int64)
        if len(index) and int(counts.sum()) != len(values):
            raise file.damaged("values of a profile belong to no context")
        context = np.repeat(index["context"], counts)
        mine = values["metric"][: len(context)] == metric
        return context[mine], values["value"][: len(context)][mine]
