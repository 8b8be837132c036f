"""Ranks that MPI told the processes themselves, where no launcher's environment says them."""

from __future__ import annotations

from collections import Counter

import numpy as np

from hpcd.analysis.messages.call_arrays import CallArrays
from hpcd.array_types import I64, U32

_RANK, _SIZE = "MPI_Comm_rank", "MPI_Comm_size"


def told_ranks(calls: CallArrays, process: U32) -> I64:
    """``int64[lines]``: the rank of each line's process in the job, -1 where it is not known.

    ``process`` ``uint32[lines]``. A process's first communicator of which it asks both its rank
    and the size is taken for the world. The job is that of the processes that were told the same
    size, above 1; of two with the same rank they are several jobs, and none is known. O(n log n).
    """
    answers: list[dict[tuple[int, int], int]] = []
    for name in (_RANK, _SIZE):
        numbers = [at for at, each in enumerate(calls.functions) if each.name == name]
        at = np.flatnonzero(np.isin(calls.function, numbers))
        at = at[np.argsort(calls.time[at], kind="stable")]
        owner = process[calls.line[at]].tolist()
        found: dict[tuple[int, int], int] = {}
        for one, handle, answer in zip(owner, *calls.value[at, :2].T.tolist(), strict=True):
            found.setdefault((one, handle), answer)
        answers.append(found)
    of_process: dict[int, tuple[int, int]] = {}
    for (one, handle), rank in answers[0].items():
        size = answers[1].get((one, handle))
        if size is not None and 0 <= rank < size:
            of_process.setdefault(one, (rank, size))
    sizes = Counter(size for _, size in of_process.values() if size > 1)
    told = np.full(int(process.max(initial=0)) + 1, -1, np.int64)
    if sizes:
        size = sizes.most_common(1)[0][0]
        members = {one: rank for one, (rank, own) in of_process.items() if own == size}
        if len(set(members.values())) == len(members):
            told[list(members)] = list(members.values())
    ranks: I64 = told[process]
    return ranks
