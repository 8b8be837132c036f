"""The communication of a job in a database: its recorded calls of MPI, ranks and hosts."""

from __future__ import annotations

from collections import Counter

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.messages.call_arrays import CallArrays, RecordedFunction
from hpcd.analysis.messages.communication import Communication
from hpcd.analysis.messages.delays import Delays, Stretches, delays
from hpcd.analysis.messages.described_communicators import with_described_communicators
from hpcd.analysis.parallel import waiting
from hpcd.analysis.parallel.tree_matching import innermost
from hpcd.analysis.roles.role import NameRole, have
from hpcd.array_types import I64, U32
from hpcd.errors import UsageError

_GROUP = "mpi"
_RANK, _SIZE = "MPI_Comm_rank", "MPI_Comm_size"


def call_arrays(db: Database) -> CallArrays:
    """All calls of MPI in the database. O(calls)."""
    functions = db.calls.functions
    calls_of_mpi = db.calls.select(functions=db.calls.of_group(_GROUP))
    return CallArrays(
        line=calls_of_mpi["line"].astype(np.int64),
        time=calls_of_mpi["time"].astype(np.int64),
        duration=calls_of_mpi["duration"].astype(np.int64),
        node=calls_of_mpi["node"].astype(np.int64),
        function=calls_of_mpi["function"].astype(np.int64),
        weight=calls_of_mpi["weight"].astype(np.float64),
        value=calls_of_mpi["value"].astype(np.int64),
        functions=[
            RecordedFunction(one.name, tuple((value.name, value.unit) for value in one.values))
            for one in functions
        ],
    )


def communication(db: Database, job: str | None = None) -> Communication:
    """Return the communication of the ranks of ``job``, by default of the job with most calls.
    Where no process has a rank, what MPI told them counts (:func:`reported_ranks`).

    Raises :class:`UsageError` where no calls of MPI were recorded, or none of such a job.
    """
    calls = call_arrays(db)
    if not len(calls):
        raise UsageError(f"{db.path}: no calls of MPI were recorded (hpcd run --mpi)")
    jobs, names = db.lines.groups("job")
    known = np.asarray(db.lines.rank).astype(np.int64)
    if not (known[calls.line] >= 0).any():
        known = reported_ranks(calls, db.lines.process)
    ranked = known >= 0
    if job is None:
        count = np.bincount(jobs[calls.line][ranked[calls.line]], minlength=len(names))
        number = int(count.argmax()) if len(count) else -1
    elif job in names:
        number = names.index(job)
    else:
        raise UsageError(f"{db.path}: no job {job}; there are {', '.join(names)}")
    mine = ranked & (jobs == number)
    rank: I64 = np.where(mine, known, -1)
    if not mine[calls.line].any():
        raise UsageError(
            f"{db.path}: the processes that called MPI have no ranks, by their environment or by"
            " what MPI_Comm_rank told them"
        )
    hosts, _ = db.lines.groups("host")
    host_of_rank = np.zeros(int(rank.max()) + 1, np.int64)
    host_of_rank[rank[mine]] = hosts[mine]
    described = with_described_communicators(db, calls, rank)
    # Another tool's record has the whole run.
    if described.described:
        return Communication(described, rank, host_of_rank)
    earlier = db.rows(
        "SELECT process.id FROM process JOIN measurement ON measurement.id = process.measurement"
        " WHERE process.start_ns < measurement.start_ns"
    )
    started_before = np.zeros(len(host_of_rank), bool)
    processes = np.array([number for (number,) in earlier], np.int64)
    started_before[rank[mine & np.isin(db.lines.process, processes)]] = True
    return Communication(described, rank, host_of_rank, started_before)


def _places(db: Database) -> U32:
    """``uint32[nodes]``: of each context the one that it counts for: the call of MPI that it is
    within, or else what called the kernel. O(nodes)."""
    calls = have(db.roles, NameRole.COMMUNICATION)[db.procedure_of_node]
    calls[0] = False
    outermost = calls & (innermost(db.cct, calls)[db.cct.parent] == 0)
    within = innermost(db.cct, outermost)
    user = innermost(db.cct, ~db.procedures.kernel[db.procedure_of_node])
    return np.where(within > 0, within, user).astype(np.uint32)


def delays_of(db: Database, job_communication: Communication) -> Delays:
    """Return the activities of delaying ranks while others waited for them, from the trace; for the
    waits of ``job_communication``, whatever the ranks met in.
    """
    nothing = np.zeros(len(db.cct), bool)
    activity = waiting.StretchReader(db, _places(db), nothing)

    def of_line(line: int) -> Stretches:
        stretches = activity.stretches(line)
        return stretches.begin, stretches.end, stretches.node.astype(np.int64)

    whole = job_communication.whole
    return delays(
        whole.operations, whole.messages, whole.collectives, job_communication.waits, of_line
    )


def reported_ranks(calls: CallArrays, process: U32) -> I64:
    """Return int64[lines]: the rank of each line's process in the job, by what MPI answered the
    process itself, where no launcher's environment says it; -1 where it is not known.

    ``process`` ``uint32[lines]``. A process's first communicator of which it asks both its rank
    and the size is taken for the world. The job is that of the processes that were given the same
    size, above 1; of two with the same rank they are several jobs, and none is known. O(n log n).
    """
    answers: list[dict[tuple[int, int], int]] = []
    for name in (_RANK, _SIZE):
        numbers = [at for at, one in enumerate(calls.functions) if one.name == name]
        at = np.flatnonzero(np.isin(calls.function, numbers))
        at = at[np.argsort(calls.time[at], kind="stable")]
        owner = process[calls.line[at]].tolist()
        by_handle: dict[tuple[int, int], int] = {}
        for one, handle, answer in zip(owner, *calls.value[at, :2].T.tolist(), strict=True):
            by_handle.setdefault((one, handle), answer)
        answers.append(by_handle)
    of_process: dict[int, tuple[int, int]] = {}
    for (one, handle), rank in answers[0].items():
        size = answers[1].get((one, handle))
        if size is not None and 0 <= rank < size:
            of_process.setdefault(one, (rank, size))
    sizes = Counter(size for _, size in of_process.values() if size > 1)
    reported = np.full(int(process.max(initial=0)) + 1, -1, np.int64)
    if sizes:
        size = sizes.most_common(1)[0][0]
        members = {one: rank for one, (rank, own) in of_process.items() if own == size}
        if len(set(members.values())) == len(members):
            reported[list(members)] = list(members.values())
    ranks: I64 = reported[process]
    return ranks
