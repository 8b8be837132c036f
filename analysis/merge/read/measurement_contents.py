"""Contents of a measurement without its records, checked and bounded for a part."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hpcd.analysis.trace.part_contents import MeasurementContents
from hpcd.measurement.call_codec import encode_calls
from hpcd.measurement.chunk import ChunkKind
from hpcd.measurement.codec import MONOTONIC_LIMIT
from hpcd.measurement.identity_columns import IdentityColumns
from hpcd.measurement.reader import Measurement
from hpcd.model.identity import (
    MOST_FREQUENCY,
    MOST_RANKS,
    Event,
    Host,
    Module,
    Process,
    Thread,
)

_WHOLE = {int, bool}

# The fields of each kind of row that are numbers, and their limits.
_NUMBERS = {
    kind.__name__: [
        field.name for field in fields(kind) if str(field.type).startswith(("int", "float"))
    ]
    for kind in (Host, Event, Process, Thread, Module)
}
_LIMITS = {
    kind: [MOST_RANKS if name in ("rank", "size") else MONOTONIC_LIMIT for name in names]
    for kind, names in _NUMBERS.items()
}

_GET = {kind: attrgetter(*names) for kind, names in _NUMBERS.items()}
_Row = TypeVar("_Row", Host, Event, Process, Thread, Module)


_NONE = np.zeros(0, np.int64)
_NO_LINES = np.zeros(0, np.uint32)


def contents_of(measurement: Measurement, path: Path, size: int) -> MeasurementContents:
    """Return the contents of ``measurement``, the input ``path``, without calls and without lines,
    their counts and times."""
    return MeasurementContents(
        path=path,
        size=size,
        id=measurement.id or 0,
        host=_bounded(measurement.host),
        options=measurement.options,
        processes=_all_bounded(measurement.processes),
        threads=_all_bounded(measurement.threads),
        modules=_all_bounded(measurement.modules),
        clock_pairs=measurement.clock_pairs,
        summary=_summary_with_losses(measurement),
        closed=measurement.closed,
        damage=tuple(measurement.damage),
        nodes=len(measurement.cct),
        lines=_NO_LINES,
        counts=_NONE,
        first_ns=_NONE,
        last_ns=_NONE,
        symbols=frozenset(measurement.named_modules),
    )


def events_of(measurement: Measurement) -> dict[int, Event]:
    """The events of ``measurement`` by the codes that records may have."""
    events: dict[int, Event] = _all_bounded(
        {code: event for code, event in measurement.events.items() if code < 1 << 16}
    )
    return {
        code: event if 0 <= event.frequency <= MOST_FREQUENCY else replace(event, frequency=0)
        for code, event in events.items()
    }


def texts_of(measurement: Measurement, contents: MeasurementContents) -> dict[str, bytes]:
    """The tables of ``contents`` as they were written, whose text need not be made again, by their
    names in a part."""
    if measurement.texts is None:
        return {}
    tables = {}
    for name, kind in _TEXTS.items():
        payloads = measurement.texts.get(kind, [])
        # Contents cut to their bounds differ from the text; non-ASCII text may be invalid UTF-8.
        plain = all(text.isascii() and b"\0" not in text for text in payloads)
        kept, parsed = getattr(contents, name), getattr(measurement, name)
        if plain and (kept is parsed or kept == parsed):
            tables[name] = b"[" + b",".join(payloads) + b"]"
    return tables


def symbols_of(measurement: Measurement) -> list[bytes]:
    """The payloads of SYMBOLS chunks, or a single payload with the parsed symbols."""
    if measurement.texts is not None:
        return measurement.texts.get(ChunkKind.SYMBOLS, [])
    columns = {k: tuple(zip(*v, strict=True)) for k, v in measurement.symbols.items() if v}
    return [json.dumps(columns).encode()] if columns else []


_TEXTS = {
    "processes": ChunkKind.PROCESS,
    "threads": ChunkKind.THREAD,
    "modules": ChunkKind.MODULE,
}


def with_calls(
    contents: MeasurementContents, measurement: Measurement
) -> tuple[MeasurementContents, list[bytes]]:
    """``contents`` with the calls there are, and these as payloads of CALLS chunks."""
    calls = []
    number = 0
    for chunk in measurement.call_chunks(waits=True):
        calls.append(encode_calls(chunk))
        number += len(chunk)
    if not (measurement.functions or calls):
        return contents, calls
    contents = replace(
        contents,
        functions=dict(measurement.functions),
        objects=dict(measurement.objects),
        calls=number,
        call_chunks=len(calls),
        damage=tuple(measurement.damage),
    )
    return contents, calls


def _summary_with_losses(measurement: Measurement) -> dict[str, object] | None:
    """The last summary as JSON, and in which stretches of time samples were dropped."""
    summary = measurement.summary
    if summary is None:
        return None
    losses = tuple(measurement.losses)
    return (summary._replace(losses=losses) if losses else summary).to_json()


def _all_bounded(rows: Mapping[int, _Row]) -> Any:
    """:func:`_bounded` of all ``rows``; mostly there is nothing to cut, which columns tell."""
    if not rows:
        return {}
    if isinstance(rows, IdentityColumns):
        kind = rows.kind.__name__
        if rows.are_within(_NUMBERS[kind], _LIMITS[kind]):
            return rows
        return _all_bounded(dict(rows.items()))
    kind = type(next(iter(rows.values()))).__name__
    columns = zip(*map(_GET[kind], rows.values()), strict=True)
    for values, limit in zip(columns, _LIMITS[kind], strict=True):
        column = set(values) - {None}
        if not column:
            continue
        if set(map(type, column)) <= _WHOLE:
            within = -limit < min(column) and max(column) < limit
        else:  # not a number is neither: a comparison of it is never true
            within = all(-limit < value < limit for value in column)
        if not within:
            return {number: _bounded(row) for number, row in rows.items()}
    return dict(rows)


def _bounded(row: _Row) -> _Row:
    """``row`` with its numbers cut to the ranges of columns and SQLite; JSON has no bounds."""
    kind = type(row).__name__
    changes: dict[str, Any] = {}
    for name, limit in zip(_NUMBERS[kind], _LIMITS[kind], strict=True):
        value = getattr(row, name)
        if value is None or -limit < value < limit:
            continue
        if isinstance(value, int):
            changes[name] = max(-limit, min(value, limit))
        elif not math.isfinite(value):
            changes[name] = 0.0
    return replace(row, **changes) if changes else row
