"""Operations: recorded calls of MPI in the order each rank made them, with values by name.

Calls that the library makes of itself are none of the program's: what lies within another call of
the same thread is left out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from hpcd.analysis.messages.call_arrays import CallArrays, RecordedFunction
from hpcd.array_types import F64, I64, Mask
from hpcd.model.mpi_functions import Role
from hpcd.model.mpi_records import (
    FLAVOURS,
    IMPORTED,
    MISSING,
    MPICH,
    Flavour,
    roles_by_record,
)

# A builtin handle of MPICH: kind 1 in the upper bits, 3 (datatype) below.
_BUILTIN_TYPE, _BUILTIN_MASK = 0x4C000000, 0xFF000000


@dataclass(frozen=True)
class Operations:
    """Operations sorted by rank, begin and the order in which a call's records were given.

    All ``int64[n]``: ``rank`` in the job, ``line``, ``begin`` and ``end`` in ns, ``node``, ``role``
    (:class:`Role`), ``function`` (position in the calls' functions), ``call`` (the first operation
    of the same call, which may be one itself); ``weight`` ``float64[n]``; ``value``
    ``int64[n, 6]``.
    """

    calls: CallArrays
    flavour: Flavour
    rank: I64
    line: I64
    begin: I64
    end: I64
    node: I64
    role: I64
    function: I64
    call: I64
    weight: F64
    value: I64
    _columns: dict[str, I64] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.rank)

    def named(self, name: str) -> I64:
        """``int64[n]``: the value of this name, MISSING where an operation has none. O(n) once."""
        if name in self._columns:
            return self._columns[name]
        slot: I64 = np.full(len(self.calls.functions) + 1, -1, np.int64)
        for number, function in enumerate(self.calls.functions):
            for place, (value, _) in enumerate(function.values):
                if value == name:
                    slot[number] = place
        places = slot[self.function]
        taken = self.value[np.arange(len(self)), np.maximum(places, 0)]
        self._columns[name] = np.where(places >= 0, taken, MISSING)
        return self._columns[name]

    def are(self, *roles: Role) -> Mask:
        """``bool[n]``: operations of any of ``roles``."""
        mask: Mask = np.isin(self.role, np.array(roles, np.int64))
        return mask

    def ranks_that_call(self, names: Collection[str], ranks: int) -> Mask:
        """``bool[ranks]``: ranks below ``ranks`` that call a function of these ``names``."""
        wanted = np.array([one.name in names for one in self.calls.functions] + [False], bool)
        called = np.bincount(self.rank[wanted[self.function]], minlength=ranks)
        mask: Mask = called[:ranks] > 0
        return mask

    @cached_property
    def status_bytes(self) -> I64:
        """``int64[n]``: what the status says of how many bytes came."""
        raw = self.named("status_bytes")
        if not self.flavour.cancelled_in_bytes:
            return raw
        decoded = (raw & 0xFFFFFFFF) | ((raw >> 33) << 32)
        return np.where(raw == MISSING, MISSING, decoded)

    @cached_property
    def type_size(self) -> I64:
        """``int64[n]``: the size of the datatype in bytes; MISSING where not known."""
        if self.flavour.type_size is None:
            return self._sizes_of_handles(self.named("datatype"))
        return self.named("datatype_size")

    @cached_property
    def payload(self) -> I64:
        """``int64[n]``: count times the size of the datatype in bytes, or where calls say bytes
        these; MISSING where not known."""
        recorded = self.named("bytes")
        count, size = self.named("count"), self.type_size
        known = (count != MISSING) & (size != MISSING)
        product = np.where(known, np.where(known, count, 0) * np.where(known, size, 0), MISSING)
        return np.where(recorded == MISSING, product, recorded)

    def _sizes_of_handles(self, datatype: I64) -> I64:
        """Sizes of MPICH's datatypes: in the handle of predefined ones; of others that which the
        program requested or that follows from how it made them, in rounds from base to derived."""
        builtin = (datatype & _BUILTIN_MASK) == _BUILTIN_TYPE
        size = np.where(builtin & (datatype != MISSING), (datatype >> 8) & 0xFF, MISSING)
        definitions = np.flatnonzero(self.are(Role.DATATYPE))
        asked = np.flatnonzero(self.are(Role.DATATYPE_SIZE))
        if not len(definitions) + len(asked):
            return size
        old, new = self.named("old_datatype")[definitions], self.named("new_datatype")[definitions]
        factor = np.ones(len(definitions), np.int64)
        for name in ("blocks", "block_length"):
            part = self.named(name)[definitions]
            factor *= np.where(part == MISSING, 1, part)
        known: dict[tuple[int, int], int] = {}
        answers = self.named("size")[asked].tolist()
        for at, answer in zip(asked.tolist(), answers, strict=True):
            known[int(self.rank[at]), int(datatype[at])] = answer
        # Handles are reused: the last definition counts, which is right for programs that define
        # their types once.
        for at, base, result, times in zip(
            definitions.tolist(), old.tolist(), new.tolist(), factor.tolist(), strict=True
        ):
            rank = int(self.rank[at])
            if (base & _BUILTIN_MASK) == _BUILTIN_TYPE:
                known[rank, result] = ((base >> 8) & 0xFF) * times
            elif (rank, base) in known:
                known[rank, result] = known[rank, base] * times
        if not known:
            return size
        unknown = np.flatnonzero((size == MISSING) & (datatype != MISSING))
        pairs = zip(self.rank[unknown].tolist(), datatype[unknown].tolist(), strict=True)
        size[unknown] = [known.get(pair, MISSING) for pair in pairs]
        return size


def operations(calls: CallArrays, rank_of_line: I64) -> Operations:
    """The operations of lines that have a rank (``int64[lines]``, negative: none).

    Calls of functions that are none of MPI's are left out. O(n · log n).
    """
    roles = roles_by_record()
    role_of = np.array([int(roles.get(f.name, -1)) for f in calls.functions] + [-1], np.int64)
    part_of = np.array([f.name.count("/") for f in calls.functions] + [0], np.int64)
    rank = rank_of_line[calls.line]
    slot = np.array([_role_slot(f) for f in calls.functions] + [-1], np.int64)[calls.function]
    says = slot >= 0
    role_of_call = np.where(
        says, calls.value[np.arange(len(calls)), np.maximum(slot, 0)], role_of[calls.function]
    )
    kept = np.flatnonzero((rank >= 0) & (role_of_call >= 0))
    end = calls.time + calls.duration
    # Of one call, the record without a part comes first.
    order = kept[
        np.lexsort((kept, part_of[calls.function[kept]], -end[kept], calls.time[kept],
                    calls.line[kept], rank[kept]))
    ]  # fmt: skip
    line, begin, finish = calls.line[order], calls.time[order], end[order]
    part = part_of[calls.function[order]] > 0
    # Of an imported call all records are alike but for what they say.
    part[1:] |= (
        says[order][1:] & (line[1:] == line[:-1]) & (begin[1:] == begin[:-1])
        & (finish[1:] == finish[:-1]) & (calls.function[order][1:] == calls.function[order][:-1])
    )  # fmt: skip
    outside = ~_inside(line, begin, finish, part)
    # A part has its call's begin; one whose call did not return while recorded says nothing.
    call = np.maximum.accumulate(np.where(part | ~outside, 0, np.arange(len(order))))
    outside &= ~part | ((line[call] == line) & (begin[call] == begin))
    order, part = order[outside], part[outside]
    function = calls.function[order]
    # Parts end with their call and have its path; those that were sent ahead know neither.
    call = np.maximum.accumulate(np.where(part, 0, np.arange(len(order))))
    role = role_of_call[order]
    listed = role == Role.LISTED
    role[listed & (role[call] == Role.START_MANY)] = Role.START
    return Operations(
        calls=calls,
        flavour=_flavour(calls),
        rank=rank[order],
        line=calls.line[order],
        begin=calls.time[order],
        end=end[order][call],
        node=calls.node[order][call],
        role=role,
        function=function,
        call=call,
        weight=calls.weight[order],
        value=calls.value[order],
    )


def _role_slot(function: RecordedFunction) -> int:
    """The number of the value that says its role, -1: there is none."""
    return next((at for at, (name, _) in enumerate(function.values) if name == "role"), -1)


def _flavour(calls: CallArrays) -> Flavour:
    if calls.described:
        return IMPORTED
    for function in calls.functions:
        for _, unit in function.values:
            if unit in FLAVOURS:
                return FLAVOURS[unit]
    return MPICH


def _inside(line: I64, begin: I64, end: I64, part: Mask) -> Mask:
    """``bool[n]``: which calls lie within an earlier one of their line; parts go with theirs."""
    inside = np.zeros(len(line), bool)
    bounds = np.flatnonzero(np.diff(line, prepend=-1, append=-1))
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        reach = np.maximum.accumulate(end[first:last])
        inside[first + 1 : last] = begin[first + 1 : last] < reach[:-1]
    whole = np.maximum.accumulate(np.where(part, 0, np.arange(len(line))))
    return inside[whole]
