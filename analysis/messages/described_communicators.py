"""Communicators that a recording of another tool describes itself: objects of its calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.database.recorded_calls import ObjectRow
from hpcd.analysis.messages.call_arrays import CallArrays, DescribedCommunicator
from hpcd.array_types import I64
from hpcd.errors import FormatError
from hpcd.model.calls import ValueKind
from hpcd.model.mpi_records import MISSING

KIND = "communicator"
"""The kind of such objects."""


def with_described_communicators(db: Database, calls: CallArrays, rank: I64) -> CallArrays:
    """``calls`` with the communicators of those on lines of a ``rank`` (``int64[lines]``, -1: of
    none), where they name objects; those of one measurement are told all, in its order. Raises
    :class:`FormatError`."""
    slots = [
        next(
            (at for at, value in enumerate(one.values)
             if value.name == KIND and value.kind is ValueKind.OBJECT),
            -1,
        )
        for one in db.calls.functions
    ]  # fmt: skip
    slot = np.array([*slots, -1], np.int64)[calls.function]
    named = np.flatnonzero(slot >= 0)
    if not len(named):
        return calls
    number: I64 = calls.value[named, slot[named]]
    mine = np.unique(number[rank[calls.line[named]] >= 0]).tolist()
    objects = db.calls.objects
    measurements = {objects[one].measurement for one in mine if one in objects}
    selected = [
        one for one in objects.values() if one.kind == KIND and one.measurement in measurements
    ]
    place = {one.id: at for at, one in enumerate(selected)}
    value = calls.value.copy()
    value[named, slot[named]] = [place.get(one, MISSING) for one in number.tolist()]
    ranks = np.unique(rank[rank >= 0])
    descriptions = [_told(db, one, len(selected), ranks) for one in selected]
    return replace(calls, value=value, described=descriptions)


def _told(db: Database, row: ObjectRow, count: int, ranks: I64) -> DescribedCommunicator:
    details = row.details
    try:
        members = _numbers(details["members"])
        remote = _numbers(details["remote"]) if "remote" in details else None
        dims, periods = (_numbers(details.get(key, ())) for key in ("dims", "periods"))
        parent = int(details.get("parent", -1))
        everybody = members if remote is None else np.append(members, remote)
        if not bool(np.isin(everybody, ranks).all()):
            raise ValueError
    except (KeyError, TypeError, ValueError, OverflowError):
        raise FormatError(f"{db.path}: communicator {row.name} is damaged") from None
    return DescribedCommunicator(
        row.name, parent if -1 <= parent < count else -1, members, remote,
        tuple(dims.tolist()), tuple(periods.tolist()), bool(details.get("ordered", True)),
    )  # fmt: skip


def _numbers(values: Any) -> I64:
    numbers = np.array(values, np.int64)
    if numbers.ndim != 1 or bool((numbers < 0).any()):
        raise ValueError
    return numbers
