"""The part of its processes that a database's measurements saw."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hpcd.analysis.database.database import Database
from hpcd.measurement.seen_part import LEAST_WEIGHT, SeenPart

_QUERY = f"""
WITH life AS (
    SELECT (cpu_ns - cpu_before_ns) / 1e9 AS cpu, cpu_before_ns / 1e9 AS before,
        process.end_ns IS NULL AS goes_on,
        -- A process that was gone when it was to be identified has a start of 0.
        CASE WHEN cpu_before_ns > 0 AND process.start_ns <> clock_offset_ns - ?2
            THEN max(measurement.start_ns - process.start_ns, 0) / 1e9 ELSE 0 END AS age,
        max(coalesce(process.end_ns, measurement.end_ns)
            - max(process.start_ns, measurement.start_ns), 0) / 1e9 AS watched
    FROM process JOIN measurement ON measurement.id = process.measurement
    WHERE cpu_ns IS NOT NULL AND (?1 IS NULL OR process.id IN (SELECT value FROM json_each(?1))))
SELECT count(*), total(goes_on), total(cpu), total(cpu * goes_on), total(before),
    total(age * (cpu + {LEAST_WEIGHT})) / max(total(cpu + {LEAST_WEIGHT}), {LEAST_WEIGHT}),
    total(watched * (cpu + {LEAST_WEIGHT})) / max(total(cpu + {LEAST_WEIGHT}), {LEAST_WEIGHT})
FROM life
"""


def seen_part(
    db: Database, processes: Sequence[int] | npt.NDArray[np.integer] | None = None
) -> SeenPart:
    """Return which part of ``processes``, by their rows (None: all), was seen.

    Raises :class:`FormatError`. O(processes).
    """
    rows = None
    if processes is not None:
        rows = json.dumps(np.unique(np.asarray(processes)).tolist())
    ((count, going_on, *figures),) = db.rows(_QUERY, rows, db.origin_ns)
    return SeenPart(int(count), int(going_on), *map(float, figures))
