"""One time axis for all measurements.

Every host stamps its records with its own monotonic clock, which starts at boot and never jumps.
Clock pairs (monotonic, realtime) read side by side place it on the wall clock, which the hosts
share as well as NTP keeps it. Database time is nanoseconds since the earliest moment any
measurement saw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hpcd.array_types import I64


def offsets_by_boot(
    pairs: Mapping[str, Sequence[I64]],
) -> dict[str, int]:
    """Return the offset of realtime from monotonic time (ns) by boot id.

    ``pairs`` maps a boot id to the ``int64[n, 2]`` clock pairs of all its measurements. One
    constant each, so that durations stay exactly the monotonic ones and two measurements of one
    boot align perfectly; the median, so that a stepped wall clock does not move the rest. A boot
    without pairs gets 0.
    """
    offsets = {}
    for boot, tables in pairs.items():
        distances = [table[:, 1] - table[:, 0] for table in tables if len(table)]
        # The lower median of integers: exact, and the same on every machine.
        values = np.sort(np.concatenate(distances)) if distances else np.zeros(1, np.int64)
        offsets[boot] = int(values[(len(values) - 1) // 2])
    return offsets
