"""What an export does with each record or slice, compiled by numba.

Each function does what Python or numpy does beside its caller. Only
:attr:`hpcd.analysis.export.export_selection.Selection.loops` imports it: without numba and for few
records the callers do without.

Arrays have the types and shapes that the callers document.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

# Makes numba take functions of C as arguments.
from numba.experimental import function_type  # noqa: F401

if getattr(numba.config, "DISABLE_JIT", 0):
    raise ImportError("Python itself cannot call functions by their addresses")

_compiled = numba.njit(cache=True, nogil=True)
# Addresses go as numbers; a function's result is one of C's int.
_ADDRESS = numba.types.uint64
ADD_UINT64 = numba.types.int32(_ADDRESS, numba.types.uint32, numba.types.uint64)
"""OTF2_AttributeList_AddUint64"""
CALLING_CONTEXT_SAMPLE = numba.types.int32(
    _ADDRESS, _ADDRESS, numba.types.uint64, numba.types.uint32, numba.types.uint32,
    numba.types.uint32,
)  # fmt: skip
"""OTF2_EvtWriter_CallingContextSample"""
_COMMA, _MINUS, _POINT, _ZERO = (np.uint8(ord(letter)) for letter in ",-.0")


class CFunction(numba.types.WrapperAddressProtocol):
    """A function of C at ``address``, for loops to call; its address is no part of what is kept of
    them compiled."""

    def __init__(self, address: int, signature: Any) -> None:
        self._address = address
        self._signature = signature

    def __wrapper_address__(self) -> int:
        return self._address

    def signature(self) -> Any:
        """Types of the result and of the arguments."""
        return self._signature


@_compiled
def write_samples(
    add: Any, sample: Any, writer: Any, attributes: Any, samples: Any, undefined: Any
) -> Any:
    """Write samples to an OTF2 archive by its library's own functions; the first error's code, or
    0. ``samples`` ``int64[n, 5]``: time, context, event, metric, and what it stands for."""
    for at in range(len(samples)):
        code = add(np.uint64(attributes), np.uint32(samples[at, 3]), np.uint64(samples[at, 4]))
        if code == 0:
            code = sample(
                np.uint64(writer), np.uint64(attributes), np.uint64(samples[at, 0]),
                np.uint32(samples[at, 1]), np.uint32(undefined), np.uint32(samples[at, 2]),
            )  # fmt: skip
        if code != 0:
            return code
    return np.int32(0)


@_compiled
def nested(
    parent: Any, depth: Any, contexts: Any, begins: Any, lasting: Any, following: Any, costs: Any,
    open_context: Any, open_begin: Any, open_cost: Any, opened: Any, found: Any,
) -> Any:  # fmt: skip
    """Slices that end where one of some stretches begins, and the waits of these; how many, and how
    many are open then. ``open_...`` are a row for each depth, ``opened`` are in use; ``found`` is
    where slices are put: context, begin, end, wait, cost."""
    context, begin, end, wait, cost = found
    metrics = len(costs)
    made = 0
    for at in range(len(contexts)):
        # What both have above them: parents precede children.
        this, last = contexts[at], open_context[opened - 1] if opened else 0
        while this != last:
            if this > last:
                this = parent[this]
            else:
                last = parent[last]
        shared = depth[this]
        for row in range(shared, opened):
            context[made], begin[made], end[made] = open_context[row], open_begin[row], begins[at]
            wait[made] = False
            for metric in range(metrics):
                cost[metric, made] = open_cost[metric, row]
            made += 1
        this = contexts[at]
        opened = depth[this]
        for row in range(opened - 1, shared - 1, -1):
            open_context[row], open_begin[row] = this, begins[at]
            for metric in range(metrics):
                open_cost[metric, row] = 0
            this = parent[this]
        if lasting[at]:
            context[made], begin[made] = contexts[at], begins[at]
            end[made] = min(begins[at] + lasting[at], following[at])
            wait[made] = True
            for metric in range(metrics):
                cost[metric, made] = costs[metric, at]
            made += 1
        elif opened:
            for metric in range(metrics):
                open_cost[metric, opened - 1] += costs[metric, at]
    return made, opened


@_compiled
def _put_number(text: Any, at: Any, value: Any) -> Any:
    if value < 0:
        text[at] = _MINUS
        at += 1
        value = -value
    stop = at + 1
    rest = value // 10
    while rest:
        stop += 1
        rest //= 10
    for place in range(stop - 1, at - 1, -1):
        rest = value // 10
        text[np.uint64(place)] = _ZERO + np.uint8(value - rest * 10)
        value = rest
    return stop


@_compiled
def _put_text(text: Any, at: Any, texts: Any, number: Any) -> Any:
    letters, starts = texts
    start = starts[number]
    stop = at + starts[number + 1] - start
    ahead = start - at
    # Of numbers without sign it need not be asked whether they count from the end.
    for place in range(at, stop):
        text[np.uint64(place)] = letters[np.uint64(ahead + place)]
    return stop


@_compiled
def slice_events(
    text: Any, first: Any, stop: Any, names: Any, phrases: Any, costs: Any, name: Any, begin: Any,
    length: Any, wait: Any, pieces: Any,
) -> Any:  # fmt: skip
    """Put slices ``first`` to ``stop`` into ``text`` as Chrome's events; how many bytes they take.

    ``names``, ``phrases`` and ``costs`` are texts: their letters, and where each begins. ``name``
    and ``pieces`` (costs, of each metric, 0 for none) are numbers for each slice. The first phrases
    stand before the name, between begin and length, for a wait, around costs, at the end, and
    before the cost of each metric. Costs have a comma behind them.
    """
    at = 0
    for row in range(first, stop):
        at = _put_text(text, at, phrases, 0)
        at = _put_text(text, at, names, name[row])
        at = _put_number(text, at, begin[row])
        at = _put_text(text, at, phrases, 1)
        at = _put_number(text, at, length[row])
        if wait[row]:
            at = _put_text(text, at, phrases, 2)
        has_costs = False
        for metric in range(len(pieces)):
            if pieces[metric, row]:
                if not has_costs:
                    at = _put_text(text, at, phrases, 3)
                has_costs = True
                at = _put_text(text, at, phrases, 6 + metric)
                at = _put_text(text, at, costs, pieces[metric, row])
        if has_costs:
            # In place of the last comma.
            at = _put_text(text, at - 1, phrases, 4)
        at = _put_text(text, at, phrases, 5)
    return at


@_compiled
def _put_decimal(text: Any, at: Any, value: Any, places: Any) -> Any:
    if value < 0:
        text[at] = _MINUS
        at += 1
        value = -value
    scale = 1
    for _ in range(places):
        scale *= 10
    whole = value // scale
    at = _put_number(text, at, whole)
    rest = value - whole * scale
    if rest:
        text[at] = _POINT
        while rest % 10 == 0:
            rest //= 10
            places -= 1
        for place in range(at + places, at, -1):
            left = rest // 10
            text[place] = _ZERO + np.uint8(rest - left * 10)
            rest = left
        at += places + 1
    return at


@_compiled
def decimal_rows(text: Any, values: Any, places: Any, end: Any) -> Any:
    """Put rows of ``values`` ``int64[columns, n]`` into ``text``, each column divided by
    ``10 ** places``, with commas between and ``end`` behind them; how many bytes they take."""
    at = 0
    for row in range(values.shape[1]):
        for column in range(len(values)):
            if column:
                text[at] = _COMMA
                at += 1
            if places[column]:
                at = _put_decimal(text, at, values[column, row], places[column])
            else:
                at = _put_number(text, at, values[column, row])
        for letter in end:
            text[at] = letter
            at += 1
    return at
