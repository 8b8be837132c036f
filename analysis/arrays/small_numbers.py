"""Numbers in fewer bytes: in narrower types, and as places among those that occur."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpcd.array_types import U32, Array
from hpcd.masks import marked


def narrow(values: Array) -> npt.NDArray[np.unsignedinteger]:
    """``values`` in the fewest bytes of 1, 2, 4, 8 that hold them all."""
    top = int(values.max(initial=0))
    width = 1 if top < 1 << 8 else 2 if top < 1 << 16 else 4 if top < 1 << 32 else 8
    out: npt.NDArray[np.unsignedinteger] = values.astype(f"<u{width}")
    return out


def ranked(values: U32) -> tuple[U32, U32]:
    """The distinct ``values``, ascending, and the place of each of ``values`` among them."""
    top = int(values.max(initial=0)) + 1
    if top > 8 * len(values):
        unique, place = np.unique(values, return_inverse=True)
        return unique, place.astype(np.uint32)
    # Marking the values that occur takes a tenth of the time of sorting.
    seen = marked(top, values)
    unique = np.flatnonzero(seen).astype(np.uint32)
    table = np.zeros(top, np.uint32)
    table[unique] = np.arange(len(unique), dtype=np.uint32)
    return unique, table[values]
