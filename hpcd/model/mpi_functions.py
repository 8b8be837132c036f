"""The MPI entry points to record, and the effect of each call on messages.

C entry points are enough for Fortran: ``mpi_send_``, its other spellings and the procedures of
``use mpi`` and ``use mpi_f08`` convert their arguments and call ``MPI_Send`` (MPICH) or
``PMPI_Send`` (Open MPI), which are two names of one address. Probes on both languages' entry points
would count a message twice.

Source: MPI 3.1, appendix A.2 (bindings). ``tests/unit/model/test_mpi_functions.py`` compiles every
prototype against the installed ``mpi.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Role(IntEnum):
    """The role of a call's record in matching."""

    OTHER = 0
    SEND = 1
    """A message is sent; where there is a request, until that has ended."""
    RECEIVE = 2
    """A message has been received."""
    RECEIVE_POST = 3
    """A receive is posted; it ends with its request."""
    SEND_INIT = 4
    RECEIVE_INIT = 5
    START = 6
    """A persistent request becomes active."""
    COMPLETE = 7
    """A request has ended, unless ``flag`` is 0."""
    COMPLETE_MANY = 8
    """All of several requests have ended, unless ``flag`` is 0, or that at ``index``."""
    COMPLETE_SOME = 9
    """Some of several have ended: ``ended`` of them, at the given positions."""
    LISTED = 16
    """One request of a call with several, with its position among them."""
    START_MANY = 17
    COUNTS = 18
    """Some of the counts of a collective operation that has one for each rank."""
    BARRIER = 10
    ALL_TO_ALL = 11
    """Every rank needs the data of all ranks: wait at N x N."""
    FROM_ROOT = 12
    """All need the root's data: late broadcast."""
    TO_ROOT = 13
    """The root needs the data of all ranks: early reduce."""
    PREFIX = 14
    """Each rank needs the data of all lower ranks."""
    NEIGHBOURS = 15
    NEW_COMMUNICATOR = 20
    """All members of the communicator, or only members with a result, form a new one."""
    SPLIT = 21
    SPLIT_HOST = 22
    CARTESIAN = 23
    CARTESIAN_PERIODS = 24
    CARTESIAN_SUB = 25
    BETWEEN_GROUPS = 50
    """Two groups form a communicator between them, each by a call on its own."""
    MERGED_GROUPS = 51
    """Both groups of such a communicator are united in a new one."""
    OTHER_JOB = 52
    """All of the communicator are connected to processes of another job."""
    FREE_COMMUNICATOR = 26
    OWN_RANK = 27
    OWN_SIZE = 28
    NEW_WINDOW = 30
    PUT = 31
    GET = 32
    FENCE = 33
    DATATYPE = 40
    DATATYPE_SIZE = 41
    PROBE = 42
    """There is a message to receive, unless ``flag`` is 0."""
    MATCHED = 43
    """That message, which is received by the call that names it, and by no other."""
    MATCHED_RECEIVE = 44
    """Such a message has been received; where there is a request, when that has ended."""


CREATIONS: Final = (
    Role.NEW_COMMUNICATOR, Role.SPLIT, Role.SPLIT_HOST, Role.CARTESIAN, Role.CARTESIAN_SUB,
    Role.BETWEEN_GROUPS, Role.MERGED_GROUPS, Role.OTHER_JOB,
)  # fmt: skip
"""Roles of calls that make communicators, each collective over the parent communicator."""
COLLECTIVES: Final = (
    Role.BARRIER, Role.ALL_TO_ALL, Role.FROM_ROOT, Role.TO_ROOT, Role.PREFIX, Role.NEIGHBOURS,
    Role.NEW_WINDOW, *CREATIONS,
)  # fmt: skip
"""Roles of calls that all ranks of a communicator make in the same order."""


@dataclass(frozen=True, slots=True)
class Function:
    """An entry point: its C ``parameters`` by name, in order, and the roles of its records."""

    name: str
    parameters: tuple[str, ...]
    roles: tuple[Role, ...]


_SEND = "(sbuf, count, type, dest, tag, comm"
_RECEIVE = "(rbuf, count, type, source, tag, comm"
_BOTH = "sbuf, scount, stype, rbuf, rcount, rtype"
_REDUCTION = "sbuf, rbuf, count, type, op"
_TARGET = "origin_count, origin_type, target, disp, target_count, target_type"

# Each has a nonblocking form with an I and a request at the end.
_COLLECTIVES: Final = (
    (Role.BARRIER, "Barrier", "comm"),
    (Role.ALL_TO_ALL, "Allreduce", f"{_REDUCTION}, comm"),
    (Role.ALL_TO_ALL, "Allgather", f"{_BOTH}, comm"),
    (Role.ALL_TO_ALL, "Allgatherv", "sbuf, scount, stype, rbuf, rcounts, rdispls, rtype, comm"),
    (Role.ALL_TO_ALL, "Alltoall", f"{_BOTH}, comm"),
    (Role.ALL_TO_ALL, "Alltoallv",
     "sbuf, scounts, sdispls, stype, rbuf, rcounts, rdispls, rtype, comm"),
    (Role.ALL_TO_ALL, "Alltoallw",
     "sbuf, scounts, sdispls, stypes, rbuf, rcounts, rdispls, rtypes, comm"),
    (Role.ALL_TO_ALL, "Reduce_scatter", "sbuf, rbuf, rcounts, type, op, comm"),
    (Role.ALL_TO_ALL, "Reduce_scatter_block", "sbuf, rbuf, rcount, rtype, op, comm"),
    (Role.FROM_ROOT, "Bcast", "rbuf, count, type, root, comm"),
    (Role.FROM_ROOT, "Scatter", f"{_BOTH}, root, comm"),
    (Role.FROM_ROOT, "Scatterv", "sbuf, scounts, sdispls, stype, rbuf, rcount, rtype, root, comm"),
    (Role.TO_ROOT, "Reduce", f"{_REDUCTION}, root, comm"),
    (Role.TO_ROOT, "Gather", f"{_BOTH}, root, comm"),
    (Role.TO_ROOT, "Gatherv", "sbuf, scount, stype, rbuf, rcounts, rdispls, rtype, root, comm"),
    (Role.PREFIX, "Scan", f"{_REDUCTION}, comm"),
    (Role.PREFIX, "Exscan", f"{_REDUCTION}, comm"),
    (Role.NEIGHBOURS, "Neighbor_alltoall", f"{_BOTH}, comm"),
    (Role.NEIGHBOURS, "Neighbor_allgather", f"{_BOTH}, comm"),
)  # fmt: skip
# Only an array has a rank's byte counts. (Alltoallw has an array of types, too: not supported.)
_COUNTED: Final = ("Alltoallv", "Reduce_scatter")
_OTHERS: Final[tuple[tuple[tuple[Role, ...], tuple[str, ...]], ...]] = (
    ((Role.SEND,), (
        *(f"{mode}send{_SEND})" for mode in ("", "S", "B", "R")),
        *(f"I{mode}send{_SEND}, request)" for mode in ("", "s", "b", "r")),
    )),
    ((Role.SEND_INIT,), tuple(f"{mode}send_init{_SEND}, request)" for mode in ("", "S", "B", "R"))),
    ((Role.RECEIVE,), (f"Recv{_RECEIVE}, status)",)),
    ((Role.RECEIVE_POST,), (f"Irecv{_RECEIVE}, request)",)),
    ((Role.RECEIVE_INIT,), (f"Recv_init{_RECEIVE}, request)",)),
    ((Role.SEND, Role.RECEIVE), (
        "Sendrecv(sbuf, scount, stype, dest, stag, rbuf, rcount, rtype, source, rtag, comm,"
        " status)",
        "Sendrecv_replace(rbuf, count, type, dest, stag, source, rtag, comm, status)",
    )),
    ((Role.START,), ("Start(started)",)),
    ((Role.COMPLETE,), ("Wait(ended, status)", "Test(ended, flag, status)")),
    ((Role.COMPLETE_MANY, Role.LISTED), (
        "Waitall(count, requests, statuses)", "Testall(count, requests, flag, statuses)",
        "Waitany(count, requests, index, status)",
        "Testany(count, requests, index, flag, status)",
    )),
    ((Role.COMPLETE_SOME, Role.LISTED), (
        "Waitsome(count, requests, outcount, indices, statuses)",
        "Testsome(count, requests, outcount, indices, statuses)",
    )),
    ((Role.START_MANY, Role.LISTED), ("Startall(count, requests)",)),
    ((Role.NEW_COMMUNICATOR,), (
        "Comm_dup(comm, newcomm)", "Comm_dup_with_info(comm, info, newcomm)",
        "Comm_create(comm, group, newcomm)",
    )),
    ((Role.SPLIT,), ("Comm_split(comm, color, key, newcomm)",)),
    ((Role.SPLIT_HOST,), ("Comm_split_type(comm, split_type, key, info, newcomm)",)),
    ((Role.CARTESIAN, Role.CARTESIAN_PERIODS), (
        "Cart_create(comm, ndims, dims, periods, reorder, newcomm)",
    )),
    ((Role.CARTESIAN_SUB,), ("Cart_sub(comm, remain_dims, newcomm)",)),
    ((Role.BETWEEN_GROUPS,), (
        "Intercomm_create(comm, local_leader, peer_comm, remote_leader, tag, newcomm)",
    )),
    ((Role.MERGED_GROUPS,), ("Intercomm_merge(comm, high, newcomm)",)),
    ((Role.OTHER_JOB,), (
        "Comm_spawn(command, arguments, processes, info, root, comm, newcomm, errors)",
        "Comm_spawn_multiple(count, commands, argument_lists, processes_each, infos, root, comm,"
        " newcomm, errors)",
        "Comm_accept(port, info, root, comm, newcomm)",
        "Comm_connect(port, info, root, comm, newcomm)", "Comm_get_parent(newcomm)",
    )),
    ((Role.FREE_COMMUNICATOR,), ("Comm_free(freed)",)),
    ((Role.OWN_RANK,), ("Comm_rank(comm, rank)",)),
    ((Role.OWN_SIZE,), ("Comm_size(comm, size)",)),
    ((Role.NEW_WINDOW,), (
        "Win_create(rbuf, bytes, unit, info, comm, newwin)",
        "Win_allocate(bytes, unit, info, comm, rbuf, newwin)",
    )),
    ((Role.PUT,), (f"Put(sbuf, {_TARGET}, win)", f"Accumulate(sbuf, {_TARGET}, op, win)")),
    ((Role.GET,), (f"Get(rbuf, {_TARGET}, win)",)),
    ((Role.FENCE,), ("Win_fence(assertion, win)",)),
    ((Role.DATATYPE,), (
        "Type_contiguous(blocks, oldtype, newtype)",
        "Type_vector(blocks, block_length, stride, oldtype, newtype)",
        "Type_create_hvector(blocks, block_length, hstride, oldtype, newtype)",
        "Type_dup(oldtype, newtype)", "Type_create_resized(oldtype, lower, extent, newtype)",
    )),
    ((Role.DATATYPE_SIZE,), ("Type_size(type, size)",)),
    ((Role.OTHER,), (
        "Init(argc, argv)", "Init_thread(argc, argv, required, provided)", "Finalize()",
    )),
    ((Role.PROBE,), (
        "Probe(source, tag, comm, status)", "Iprobe(source, tag, comm, flag, status)",
    )),
    ((Role.PROBE, Role.MATCHED), (
        "Mprobe(source, tag, comm, message, status)",
        "Improbe(source, tag, comm, flag, message, status)",
    )),
    ((Role.MATCHED_RECEIVE,), (
        "Mrecv(rbuf, count, type, taken, status)", "Imrecv(rbuf, count, type, taken, request)",
    )),
)  # fmt: skip


def _function(text: str, roles: tuple[Role, ...]) -> Function:
    name, _, rest = text.rstrip(")").partition("(")
    parameters = tuple(part.strip() for part in rest.split(",") if part.strip())
    return Function(f"MPI_{name[0].upper()}{name[1:]}", parameters, roles)


def _declared() -> dict[str, Function]:
    functions = [_function(text, roles) for roles, texts in _OTHERS for text in texts]
    for role, name, parameters in _COLLECTIVES:
        roles = (role, Role.COUNTS) if name in _COUNTED else (role,)
        functions.append(_function(f"{name}({parameters})", roles))
        nonblocking = f"I{name[0].lower()}{name[1:]}"
        functions.append(_function(f"{nonblocking}({parameters}, request)", roles))
    return {function.name: function for function in functions}


FUNCTIONS: Final = _declared()
"""Every recorded entry point by its C name."""
