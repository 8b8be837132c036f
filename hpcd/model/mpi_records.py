"""The values recorded of a call of MPI: up to six, and the argument each one comes from.

A call of :mod:`hpcd.model.mpi_functions` has a record for each of its roles. Nothing of a library's
own memory is read but statuses, handles and, of Open MPI, the size in a datatype's object.

Sources: ``mpi.h`` of Open MPI 4.1 and MPICH 4.0 (constants, ``MPI_Status``, types of handles);
``opal/datatype/opal_datatype.h`` of Open MPI: the size follows the header of an object (16 bytes),
flags, id and a count (8 bytes); MPICH's handles of predefined datatypes have their size in bits 8
to 15. ``tests/unit/model/test_mpi_functions.py`` compares these with the installed headers and
libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hpcd.model.mpi_functions import FUNCTIONS, Function, Role

MISSING: Final = -(1 << 63)
"""A value that a call did not give, as where its status is ignored."""
MAX_VALUES: Final = 6
MAX_REQUESTS: Final = 64
"""Bound on individually recorded requests of one ``MPI_Waitall`` or similar call."""
MAX_POSITIONS: Final = 6
"""Bound on recorded positions of ended requests of one ``MPI_Waitsome``."""
COUNTS_EACH: Final = 10
"""Counts of a collective operation in one record of :attr:`Role.COUNTS`."""
MAX_COUNTS: Final = 512
"""Ranks of a communicator, up to which their counts are recorded."""


@dataclass(frozen=True, slots=True)
class Flavour:
    """The differences between implementations; widths and offsets in bytes.

    ``cancelled_in_bytes``: in a status's count the upper half is shifted by one, for a flag.
    ``root`` is the rank that the root of an operation between two groups passes for itself.
    ``type_size`` is the offset of the size in a datatype's object; None where handles are numbers.
    ``world``, ``own`` and ``null`` are ``MPI_COMM_WORLD``, ``_SELF`` and ``_NULL`` where numbers.
    """

    name: str
    libraries: tuple[str, ...]
    handle: int
    any_source: int
    proc_null: int
    root: int
    any_tag: int
    status_source: int
    status_tag: int
    status_bytes: int
    status_width: int
    cancelled_in_bytes: bool
    type_size: int | None
    world: int | None
    own: int | None
    null: int | None


OPENMPI: Final = Flavour(
    "openmpi", ("libmpi.so.40",), handle=8, any_source=-1, proc_null=-2, root=-4, any_tag=-1,
    status_source=0, status_tag=4, status_bytes=16, status_width=24, cancelled_in_bytes=False,
    type_size=24, world=None, own=None, null=None,
)  # fmt: skip
# Of the same ABI: Intel MPI, MVAPICH, and others named libmpi.so.12.
MPICH: Final = Flavour(
    "mpich", ("libmpich.so.12", "libmpi.so.12"), handle=4, any_source=-2, proc_null=-1, root=-3,
    any_tag=-1, status_source=8, status_tag=12, status_bytes=0, status_width=20,
    cancelled_in_bytes=True,
    type_size=None, world=0x44000000, own=0x44000001, null=0x04000000,
)  # fmt: skip
# Calls that another tool recorded, which names communicators and says bytes: no library's.
IMPORTED: Final = Flavour(
    "imported", (), handle=8, any_source=-1, proc_null=-2, root=-4, any_tag=-1, status_source=0,
    status_tag=4, status_bytes=16, status_width=24, cancelled_in_bytes=False, type_size=0,
    world=None, own=None, null=None,
)  # fmt: skip
FLAVOURS: Final = {flavour.name: flavour for flavour in (OPENMPI, MPICH)}


@dataclass(frozen=True, slots=True)
class ValueSource:
    """The source of a value: argument ``argument`` (from 0).

    With ``width`` 0 the value is the argument's low ``argument_width`` bytes. Else it is the
    integer of ``width`` bytes at ``offset`` from where the argument points, read when the function
    returns (``at_return``) or is entered, or :data:`MISSING` where the argument is 0 or 1, which
    the libraries interpret as "ignore". Integers are signed unless ``unsigned``.
    """

    argument: int
    argument_width: int = 4
    width: int = 0
    offset: int = 0
    at_return: bool = False
    unsigned: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a record: its name, its kind and unit, and where it comes from.

    Kinds are as for all recorded calls: ``handle``, whose unit is the flavour's name,
    ``count`` and ``signed``. For Open MPI a datatype is recorded by its size, ``datatype_size``.
    """

    name: str
    kind: str
    unit: str
    source: ValueSource


@dataclass(frozen=True, slots=True)
class Record:
    """One record of calls of ``function``. Its ``name`` is the function's, with ``/ROLE`` in small
    letters for any role but the first.

    There is a record of :attr:`Role.LISTED` for each of the first :data:`MAX_REQUESTS` requests:
    its first value's source is the address of the array, its second value's the length. There is
    a record of :attr:`Role.COUNTS` for every :data:`COUNTS_EACH` ranks: its first value is the
    rank that they begin with, whose source is the address of the array.
    """

    name: str
    function: str
    role: Role
    values: tuple[Value, ...]


_MESSAGE: Final = ("communicator", "peer", "tag", "count", "datatype", "request")
_NEW: Final = ("communicator", "new_communicator")
VALUES: Final[dict[Role, tuple[str, ...]]] = {
    Role.OTHER: ("flag",),
    Role.SEND: _MESSAGE,
    Role.RECEIVE: (
        "communicator", "peer", "tag", "status_source", "status_tag", "status_bytes",
    ),
    Role.RECEIVE_POST: _MESSAGE,
    Role.SEND_INIT: _MESSAGE,
    Role.RECEIVE_INIT: _MESSAGE,
    Role.START: ("request",),
    Role.COMPLETE: ("request", "flag", "status_source", "status_tag", "status_bytes"),
    Role.COMPLETE_MANY: (
        "requests", "flag", "index", "status_source", "status_tag", "status_bytes",
    ),
    Role.COMPLETE_SOME: ("requests", "ended", "positions0", "positions2", "positions4"),
    Role.START_MANY: ("requests",),
    Role.LISTED: ("request", "position"),
    Role.COUNTS: ("from", "counts0", "counts2", "counts4", "counts6", "counts8"),
    Role.BARRIER: ("communicator", "request"),
    Role.ALL_TO_ALL: ("communicator", "count", "datatype", "request"),
    Role.FROM_ROOT: ("communicator", "root", "count", "datatype", "request"),
    Role.TO_ROOT: ("communicator", "root", "count", "datatype", "request"),
    Role.PREFIX: ("communicator", "count", "datatype", "request"),
    Role.NEIGHBOURS: ("communicator", "count", "datatype", "request"),
    Role.NEW_COMMUNICATOR: _NEW,
    Role.SPLIT: (*_NEW, "color", "key"),
    Role.SPLIT_HOST: (*_NEW, "color", "key"),
    Role.CARTESIAN: (*_NEW, "dimensions", "dims0", "dims2", "dims4"),
    Role.CARTESIAN_PERIODS: ("new_communicator", "periods0", "periods2", "periods4"),
    Role.CARTESIAN_SUB: (*_NEW, "remain0", "remain2", "remain4"),
    Role.BETWEEN_GROUPS: (*_NEW, "local_leader", "peer_communicator", "remote_leader", "tag"),
    Role.MERGED_GROUPS: (*_NEW, "high"),
    Role.OTHER_JOB: _NEW,
    Role.FREE_COMMUNICATOR: ("communicator",),
    Role.OWN_RANK: ("communicator", "rank"),
    Role.OWN_SIZE: ("communicator", "size"),
    Role.NEW_WINDOW: ("communicator", "new_window"),
    Role.PUT: ("window", "peer", "count", "datatype"),
    Role.GET: ("window", "peer", "count", "datatype"),
    Role.FENCE: ("window",),
    Role.DATATYPE: ("old_datatype", "new_datatype", "blocks", "block_length"),
    Role.DATATYPE_SIZE: ("datatype", "size"),
    Role.PROBE: ("communicator", "peer", "tag", "flag", "status_source", "status_tag"),
    Role.MATCHED: ("message", "status_bytes"),
    Role.MATCHED_RECEIVE: (
        "message", "request", "status_source", "status_tag", "status_bytes",
    ),
}  # fmt: skip
"""The values of each role's record, in order. A value that the function has no argument for is
:data:`MISSING`; a name ending in a digit is two integers of an array from that index on."""

# The parameter that holds each value: the first in the list that the function has. A call with two
# messages has different parameters for its send and its receive.
_PARAMETERS: Final[dict[str, tuple[str, ...]]] = {
    "communicator": ("comm", "freed"), "new_communicator": ("newcomm",), "window": ("win",),
    "new_window": ("newwin",), "root": ("root",),
    "request": ("request", "started", "ended", "requests"), "requests": ("count",),
    "message": ("message", "taken"),
    "position": ("count",), "index": ("index",), "ended": ("outcount",), "positions": ("indices",),
    "local_leader": ("local_leader",), "peer_communicator": ("peer_comm",),
    "remote_leader": ("remote_leader",), "high": ("high",),
    "flag": ("flag",), "color": ("color", "split_type"), "key": ("key",),
    "dimensions": ("ndims",), "rank": ("rank",), "size": ("size",), "old_datatype": ("oldtype",),
    "new_datatype": ("newtype",), "blocks": ("blocks",), "block_length": ("block_length",),
    "peer": ("dest", "source", "target"), "tag": ("tag", "stag"),
    "count": ("count", "scount", "rcount", "origin_count"),
    "datatype": ("type", "stype", "rtype", "origin_type"),
    "status_source": ("status",), "status_tag": ("status",), "status_bytes": ("status",),
    "from": ("scounts", "rcounts"), "counts": ("scounts", "rcounts"),
    "dims": ("dims",), "periods": ("periods",), "remain": ("remain_dims",),
}  # fmt: skip
_RECEIVED: Final = {"peer": ("source",), "tag": ("tag", "rtag")}
# Other ranks' receive arguments describe the data that the root sends.
_SCATTERED: Final = {"count": ("count", "rcount"), "datatype": ("type", "rtype")}
_HANDLES: Final = frozenset(
    {"communicator", "new_communicator", "peer_communicator", "window", "new_window", "request",
     "old_datatype", "new_datatype", "datatype", "message"}
)  # fmt: skip
# Read on return, where the argument points.
_RESULTS: Final = frozenset(
    {
        "newcomm",
        "newwin",
        "newtype",
        "request",
        "flag",
        "rank",
        "size",
        "index",
        "outcount",
        "indices",
        "message",
    }
)
_ENTRIES: Final = frozenset({"freed", "started", "ended", "requests", "taken"})


def records(function: Function, flavour: Flavour) -> tuple[Record, ...]:
    """The records of a call of ``function`` in a library of ``flavour``."""
    rows = []
    for at, role in enumerate(function.roles):
        values = tuple(_value(function, flavour, role, value) for value in VALUES[role])
        name = _record_name(function, at)
        rows.append(Record(name, function.name, role, tuple(v for v in values if v)))
    return tuple(rows)


def roles_by_record() -> dict[str, Role]:
    """The role of every record's name."""
    return {
        _record_name(function, at): role
        for function in FUNCTIONS.values()
        for at, role in enumerate(function.roles)
    }


def _record_name(function: Function, at: int) -> str:
    return f"{function.name}/{function.roles[at].name.lower()}" if at else function.name


def _value(function: Function, flavour: Flavour, role: Role, name: str) -> Value | None:
    array = name.rstrip("02468")
    choices = _PARAMETERS.get(name) or _PARAMETERS[array]
    if role == Role.RECEIVE:
        choices = _RECEIVED.get(name, choices)
    elif role == Role.FROM_ROOT:
        choices = _SCATTERED.get(name, choices)
    parameter = next((choice for choice in choices if choice in function.parameters), None)
    if parameter is None:
        return None
    argument = function.parameters.index(parameter)
    if name == "datatype" and flavour.type_size is not None:
        size = ValueSource(argument, 8, width=8, offset=flavour.type_size)
        return Value("datatype_size", "signed", "bytes", size)
    source = _source(flavour, name, array, parameter, argument)
    if name in _HANDLES:
        return Value(name, "handle", flavour.name, source)
    return Value(name, "count" if name == "count" else "signed", "", source)


def _source(flavour: Flavour, name: str, array: str, parameter: str, argument: int) -> ValueSource:
    handle = name in _HANDLES
    width = flavour.handle if handle else 4
    if parameter == "status":
        offset, width = {
            "status_source": (flavour.status_source, 4),
            "status_tag": (flavour.status_tag, 4),
            "status_bytes": (flavour.status_bytes, 8),
        }[name]
        return ValueSource(argument, 8, width, offset, at_return=True)
    if array != name:
        at_return = parameter in _RESULTS
        return ValueSource(argument, 8, 8, 4 * int(name[-1]), at_return=at_return)
    if parameter in _RESULTS or parameter in _ENTRIES:
        return ValueSource(argument, 8, width, at_return=parameter in _RESULTS, unsigned=handle)
    return ValueSource(argument, width, unsigned=handle)
