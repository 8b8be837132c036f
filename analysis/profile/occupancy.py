"""How long lines were in each context, exactly: what a picture of any size estimates."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hpcd.analysis.database import Database
from hpcd.array_types import F64


def occupancy(db: Database, lines: Iterable[int], t0: int, t1: int) -> F64:
    """``float64[nodes]``: seconds of [t0, t1) ns that ``lines`` were in each node itself.

    A moment belongs to the record closest to it, as in pictures (Tallent et al., ICS 2011, section
    5.2), so this is what the shares of ever larger pictures tend to. O(records of the lines).
    """
    seconds = np.zeros(len(db.cct))
    for line in lines:
        begin = max(t0, int(db.lines.start[line]))
        end = min(t1, int(db.lines.end[line]))
        if end <= begin:
            continue
        records = db.records(line)
        if not len(records):
            continue
        time = records.time.astype(np.float64)
        edges = np.concatenate(([begin], (time[1:] + time[:-1]) / 2, [end]))
        np.clip(edges, begin, end, out=edges)
        length = np.diff(edges)
        used = np.flatnonzero(length)
        seconds += np.bincount(records.node[used], length[used] * 1e-9, len(seconds))
    return seconds
