"""Which trace line's end is the end of a run, or of a part of it."""

from __future__ import annotations

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.profile.launchers import launcher_lines
from hpcd.array_types import I64

# Threads that a process's end ends are gone this much later or sooner than its main thread.
_EXIT_NS = 10_000_000


def last_lines(db: Database, stop: I64) -> I64:
    """Return the line of each process that ends it, when lines end at ``stop`` ``int64[lines]``:
    its main thread, unless other threads ended later. A thread that is killed with its process may
    have had nothing to do. Launchers, which wait for the others, are left out where there are
    others."""
    process = db.lines.process.astype(np.int64)
    order = np.lexsort((stop, process))
    last = order[np.append(process[order][1:] != process[order][:-1], True)]
    main_of = np.full(int(process.max(initial=0)) + 1, -1)
    main = np.flatnonzero(np.asarray(db.lines.tid) == np.asarray(db.lines.pid))
    main_of[process[main]] = main
    main = main_of[process[last]]
    stays = (main >= 0) & (stop[main] >= stop[last] - _EXIT_NS)
    ends: I64 = np.where(stays, main, last).astype(np.int64)
    own = ~launcher_lines(db)[ends]
    return ends[own] if own.any() else ends
