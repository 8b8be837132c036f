"""The contents of a part without its records: the measurements it was made from.

Identities are sent from the worker that read them to the merge; large contents stay on the disk and
only their place is sent. Temporary data for uniting parts is in the part's scratch file
(:mod:`hpcd.analysis.merge.unite.scratch`), which exists while a database is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.trace.part import Part
from hpcd.analysis.trace.part_file import read_archive
from hpcd.array_types import I64, U32
from hpcd.errors import FormatError
from hpcd.measurement.call_codec import Calls, decode_calls
from hpcd.measurement.codec import TIME_UNIT_NS
from hpcd.measurement.columns import pack_columns, unpack_columns
from hpcd.measurement.identity_columns import IdentityColumns, read_host, read_table, table_of
from hpcd.measurement.zstd_contexts import unpack_frame
from hpcd.model.calls import (
    CalledFunction,
    CalledObject,
    object_row,
    read_function,
    read_object,
)
from hpcd.model.identity import Event, Host, Module, Process, Thread


@dataclass(frozen=True, slots=True)
class MeasurementContents:
    """A measurement's identities and the extent of its records.

    ``lines`` ``uint32[k]`` ascending are the measurement's trace lines, with or without records;
    ``counts`` ``int64[k]`` their entries in the trace, ``first_ns``, ``last_ns`` ``int64[k]`` the
    monotonic times between which anything was recorded of them (:func:`recorded_spans`).
    ``size`` is how many bytes the measurement had: one still being written may have more later. Its
    lines are the rows of the file ``part`` from ``first_row`` on; ``number`` is its number among
    the part's measurements.
    """

    path: Path
    size: int
    id: int
    host: Host
    options: dict[str, object]
    processes: Mapping[int, Process]
    threads: Mapping[int, Thread]
    modules: dict[int, Module]
    clock_pairs: I64
    summary: dict[str, object] | None
    closed: bool
    damage: tuple[str, ...]
    nodes: int
    lines: U32
    counts: I64
    first_ns: I64
    last_ns: I64
    symbols: frozenset[int] = frozenset()
    """Load modules with symbols in the part's scratch file."""
    functions: dict[int, CalledFunction] = field(default_factory=dict)
    objects: dict[int, CalledObject] = field(default_factory=dict)
    calls: int = 0
    """Recorded calls, and ``call_chunks`` entries of the archive that hold them."""
    call_chunks: int = 0
    part: Path = Path()
    number: int = 0
    first_row: int = 0

    def by_column(self) -> MeasurementContents:
        """Return these contents with processes and threads by column, to travel and to be kept."""
        if isinstance(self.processes, IdentityColumns):
            return self
        return replace(
            self,
            processes=IdentityColumns.of(Process, self.processes),
            threads=IdentityColumns.of(Thread, self.threads),
        )

    @property
    def records(self) -> int:
        """Entries in the trace of all lines."""
        return int(self.counts.sum())


@dataclass(frozen=True, slots=True)
class PartContents:
    """A part: its file, the measurements of its consecutive rows, and the events that its records
    number from 0 on."""

    path: Path
    measurements: tuple[MeasurementContents, ...]
    events: tuple[Event, ...]
    checksums: tuple[int, ...] = ()
    """CRC-32 of each block of the file, if it was read while it was made."""
    kept: bool = False
    """It is of the database that is added to, which has its tree, sums and symbols."""


def windows_of(measurements: Sequence[MeasurementContents]) -> I64:
    """``int64[n, 2]``: monotonic times between which each of ``measurements`` watched."""
    number = np.arange(len(measurements))
    begin, end = np.full((2, len(measurements)), _NEVER)
    end *= -1
    clocks = [contents.clock_pairs[:, 0] for contents in measurements]
    owner, times = np.repeat(number, list(map(len, clocks))), np.concatenate([_NO_TIMES, *clocks])
    np.minimum.at(begin, owner, times)
    np.maximum.at(end, owner, times)
    owner = np.repeat(number, [len(contents.lines) for contents in measurements])
    for reduce, bound, name in ((np.minimum, begin, "first_ns"), (np.maximum, end, "last_ns")):
        spans = [getattr(contents, name) for contents in measurements]
        reduce.at(bound, owner, np.concatenate([_NO_TIMES, *spans]))
    windows = np.stack((begin, end), axis=1)
    windows[begin > end] = 0
    return windows


def recorded_spans(
    lines: U32, counts: I64, first_ns: I64, last_ns: I64, calls: Iterable[Calls]
) -> tuple[I64, I64]:
    """Return the times between which anything was recorded of each of ``lines`` (ascending): their
    entries, of which there are ``counts`` from ``first_ns`` to ``last_ns``, and ``calls``, sorted
    by line in each chunk; all ``int64[k]``. Where there is nothing the first time is the later one.
    """
    begin = np.where(counts > 0, first_ns, _NEVER)
    end = np.where(counts > 0, last_ns, -_NEVER)
    for chunk in calls:
        chunk = chunk[np.isin(chunk.line, lines)]
        starts = np.flatnonzero(np.diff(chunk.line, prepend=np.uint32(0xFFFFFFFF)))
        if not len(starts):
            continue
        rows = np.searchsorted(lines, chunk.line[starts])
        time = chunk.time.astype(np.int64)
        ended = time + chunk.duration.astype(np.int64)
        begin[rows] = np.minimum(begin[rows], np.minimum.reduceat(time, starts))
        end[rows] = np.maximum(end[rows], np.maximum.reduceat(ended, starts))
    return begin, end


# Later than any time.
_NEVER = (1 << 63) - 1
_NO_TIMES = np.zeros(0, np.int64)

# The tables of a measurement that a part has.
_TABLES: dict[str, type[Any]] = {"processes": Process, "threads": Thread, "modules": Module}


def pack_measurement(contents: MeasurementContents, texts: Mapping[str, bytes]) -> bytes:
    """Return a part's metadata of a measurement, as JSON. ``texts`` has tables as JSON already, by
    name."""
    identity: dict[str, object] = {
        "path": contents.path.name,
        "size": contents.size,
        "id": contents.id,
        "node": asdict(contents.host),
        "options": contents.options,
        "summary": contents.summary,
        "closed": contents.closed,
        "damage": contents.damage,
        "cct_nodes": contents.nodes,
        "lines": len(contents.lines),
        "clock_pairs": len(contents.clock_pairs),
    }
    if contents.functions:
        identity |= {
            "functions": [asdict(row) for row in contents.functions.values()],
            "objects": [object_row(row) for row in contents.objects.values()],
            "calls": contents.calls,
            "call_chunks": contents.call_chunks,
        }
    for name, kind in _TABLES.items():
        if name not in texts:
            identity[name] = [table_of(kind, getattr(contents, name).values())]
    text = json.dumps(identity, separators=(",", ":")).encode()
    rows = [b',"%s":%s' % (name.encode(), texts[name]) for name in sorted(texts)]
    return b"".join([text[:-1], *rows, b"}"])


def pack_contents(
    identities: Sequence[bytes], clock_pairs: Sequence[I64], events: Sequence[Event]
) -> dict[str, bytes]:
    """Return the entries of a part's archive by name: the metadata of each measurement
    (:func:`pack_measurement`), their clock pairs, concatenated, and its events."""
    return {
        "measurements": b"[" + b",".join(identities) + b"]",
        "clock": pack_columns(np.concatenate([_NO_TIMES, *(p.ravel() for p in clock_pairs)])),
        "events": json.dumps(table_of(Event, events), separators=(",", ":")).encode(),
    }


def pack_calls(number: int, nodes: U32, payloads: Sequence[bytes]) -> dict[str, bytes]:
    """Return the entries of a part's archive with the calls of measurement ``number``: payloads of
    CALLS chunks, and the part's number of each node (``uint32[n]``) that these name."""
    entries = {f"nodes-{number}": pack_columns(nodes)}
    return entries | {f"calls-{number}-{at}": payload for at, payload in enumerate(payloads)}


def _read_rows(kind: type[Any], tables: list[Any]) -> dict[int, Any]:
    """The rows of tables by number; later ones replace earlier ones."""
    rows: dict[int, Any] = {}
    for table in tables:
        rows.update(read_table(kind, table).items())
    return rows


def read_contents(part: Part, *, kept: bool = False) -> PartContents:
    """Return the contents of ``part``; ``kept``: it is of a database that is added to. Raises
    :class:`FormatError`."""
    archive = part.file.archive()
    try:
        identities = json.loads(unpack_frame(archive["measurements"].data))
        (clock,) = unpack_columns(unpack_frame(archive["clock"].data), np.uint64)
        events = read_table(Event, json.loads(unpack_frame(archive["events"].data)))
        pairs = clock.view(np.int64).reshape(-1, 2)
        measurements = []
        row = at = 0
        for number, identity in enumerate(identities):
            end = row + int(identity["lines"])
            clock_end = at + int(identity["clock_pairs"])
            if not (row <= end <= len(part) and at <= clock_end <= len(pairs)):
                raise ValueError("more lines or clock pairs than there are")
            measurements.append(
                _read_measurement(part, number, identity, slice(row, end), pairs[at:clock_end])
            )
            row, at = end, clock_end
        if row != len(part) or list(events) != list(range(len(events))):
            raise ValueError("lines of no measurement, or events out of order")
        return PartContents(part.path, tuple(measurements), tuple(events.values()), kept=kept)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise FormatError(f"{part.path}: damaged (identities in its archive)") from None


def _read_measurement(
    part: Part, number: int, identity: Mapping[str, Any], rows: slice, clock_pairs: I64
) -> MeasurementContents:
    lines = part.lines
    contents = MeasurementContents(
        path=Path(identity["path"]),
        size=int(identity["size"]),
        id=int(identity["id"]),
        host=read_host(identity["node"]),
        options=dict(identity["options"]),
        processes=_read_rows(Process, identity["processes"]),
        threads=_read_rows(Thread, identity["threads"]),
        modules=_read_rows(Module, identity["modules"]),
        clock_pairs=clock_pairs,
        summary=identity["summary"],
        closed=bool(identity["closed"]),
        damage=tuple(identity["damage"]),
        nodes=int(identity["cct_nodes"]),
        lines=lines.source[rows].astype(np.uint32),
        counts=lines.records[rows].astype(np.int64),
        first_ns=lines.first[rows] * TIME_UNIT_NS,
        last_ns=lines.last[rows] * TIME_UNIT_NS,
        functions={row["id"]: read_function(row) for row in identity.get("functions", [])},
        objects={row["id"]: read_object(row) for row in identity.get("objects", [])},
        calls=int(identity.get("calls", 0)),
        call_chunks=int(identity.get("call_chunks", 0)),
        part=part.path,
        number=number,
        first_row=rows.start,
    )
    first, last = recorded_spans(
        contents.lines, contents.counts, contents.first_ns, contents.last_ns, load_calls(contents)
    )
    return replace(contents, first_ns=first, last_ns=last)


def load_call_nodes(contents: MeasurementContents) -> U32:
    """``uint32[n]``: the part's number of each node that a measurement's calls name. Raises
    :class:`FormatError`."""
    try:
        frame = read_archive(contents.part)[f"nodes-{contents.number}"].data
        (nodes,) = unpack_columns(unpack_frame(frame), np.uint32)
    except KeyError:
        raise FormatError(f"{contents.part}: damaged (calls are missing in its archive)") from None
    return nodes


def load_calls(contents: MeasurementContents) -> Iterator[Calls]:
    """The calls of a measurement, a chunk at a time, sorted by line and time within it; lines,
    nodes, functions and objects are the measurement's. Raises :class:`FormatError`."""
    archive = read_archive(contents.part)
    for number in range(contents.call_chunks):
        try:
            yield decode_calls(unpack_frame(archive[f"calls-{contents.number}-{number}"].data))
        except KeyError:
            raise FormatError(
                f"{contents.part}: damaged (calls are missing in its archive)"
            ) from None
