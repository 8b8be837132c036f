"""Collective operations that have a count for each rank of their communicator.

The counts are recorded as arrays, :attr:`hpcd.model.mpi_functions.Role.COUNTS`, of as many entries
as the job has ranks; those beyond the communicator's size mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.analysis.messages.communicators import UNKNOWN, Communicators
from hpcd.analysis.messages.operations import Operations
from hpcd.array_types import I64
from hpcd.model.mpi_functions import Role
from hpcd.model.mpi_records import COUNTS_EACH, MISSING


@dataclass(frozen=True)
class VectorCounts:
    """Bytes that calls pass to each rank: ``call`` (an operation), ``place`` of the rank in the
    communicator and ``bytes``, ``int64[k]`` each, sorted by call and place.

    Of a call all of its communicator's ranks are there, or none.
    """

    call: I64
    place: I64
    bytes: I64

    def totals(self, operations: Operations) -> I64:
        """:attr:`Operations.payload` with the sums of these."""
        payload = operations.payload.copy()
        counted = np.unique(self.call)
        payload[counted] = 0
        np.add.at(payload, self.call, self.bytes)
        return payload


def vector_counts(operations: Operations, communicators: Communicators) -> VectorCounts:
    """The counts that were recorded, as far as communicators and datatypes are known. O(n)."""
    parts = np.flatnonzero(operations.are(Role.COUNTS))
    pairs = np.stack(
        [operations.named(f"counts{first}")[parts] for first in range(0, COUNTS_EACH, 2)], axis=1
    )
    # Two in a value, the first one in the lower half.
    counts = np.ascontiguousarray(pairs).view(np.int32).reshape(len(parts), COUNTS_EACH)
    call = np.repeat(operations.call[parts], COUNTS_EACH)
    place = (operations.named("from")[parts][:, None] + np.arange(COUNTS_EACH)).ravel()
    sizes = np.array([len(one.members) for one in communicators.all] + [0], np.int64)
    number, type_size = communicators.number[call], operations.type_size[call]
    kept = (number != UNKNOWN) & (type_size != MISSING) & (place < sizes[number])
    # Between two groups there is one for each rank of the other one.
    kept &= ~np.append(communicators.between, False)[number]
    call, place, number = call[kept], place[kept], number[kept]
    bytes_each = counts.ravel()[kept].astype(np.int64) * type_size[kept]
    order = np.lexsort((place, call))
    call, place, bytes_each = call[order], place[order], bytes_each[order]
    # An array that could not be read to its end says nothing.
    seen = np.bincount(call, bytes_each >= 0, len(operations)) if len(call) else np.zeros(1)
    whole = seen[call] == sizes[number[order]] if len(call) else np.zeros(0, bool)
    return VectorCounts(call[whole], place[whole], bytes_each[whole])
