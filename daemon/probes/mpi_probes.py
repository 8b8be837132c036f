"""``--mpi``: probes of MPI's entry points, from :mod:`hpcd.model.mpi_functions`."""

from __future__ import annotations

from dataclasses import replace

from hpcd.daemon.probe_places.value_program import Step, ValueProgram, argument
from hpcd.daemon.probe_places.value_types import ADDRESS, ValueType
from hpcd.daemon.probes.probe_spec import ProbeSpec, ProbeValue, SecondRecord
from hpcd.model.mpi_functions import FUNCTIONS, Function, Role
from hpcd.model.mpi_records import FLAVOURS, Flavour, Record, Value, ValueSource, records

# Dropped first when calls cost too much: sent and received data is known without them, and by then
# programs that poll for ranks and sizes have been answered.
_EXPENDABLE = (
    Role.COMPLETE, Role.COMPLETE_MANY, Role.COMPLETE_SOME, Role.OTHER, Role.OWN_RANK,
    Role.OWN_SIZE, Role.DATATYPE_SIZE, Role.PROBE,
)  # fmt: skip
# The value of a test's output when nothing had ended, or no message was there.
_NOTHING = {"flag": "flag", "outcount": "ended"}


def mpi_probes() -> list[ProbeSpec]:
    """Probes of every declared entry point, in each implementation's libraries."""
    return [
        _probe(function, flavour, library)
        for flavour in FLAVOURS.values()
        for library in flavour.libraries
        for function in FUNCTIONS.values()
    ]


def _probe(function: Function, flavour: Flavour, library: str) -> ProbeSpec:
    first, *rest = records(function, flavour)
    second = _second(rest[0], flavour) if rest else None
    return ProbeSpec(
        f"{library}:{function.name}",
        f"{library}*",
        function.name,
        tuple(map(_value, first.values)),
        group="mpi",
        # Trampolines break programs that throw exceptions through a function; MPI's are of C.
        returns="trampoline",
        optional=True,
        second=second,
        poll=_poll(function),
        expendable=first.role in _EXPENDABLE and Role.MATCHED not in function.roles,
    )


def _poll(function: Function) -> str:
    """The value of calls that may find nothing, as ``MPI_Test``, which is 0 when they do."""
    if function.name == "MPI_Waitsome":
        return ""
    return next((_NOTHING[name] for name in function.parameters if name in _NOTHING), "")


def _second(record: Record, flavour: Flavour) -> SecondRecord:
    if record.role == Role.COUNTS:
        begin, *counts = record.values
        place = ProbeValue(begin.name, argument(begin.source.argument, ADDRESS), ADDRESS)
        return SecondRecord(record.name, (place, *map(_value, counts)), packed=True)
    if record.role != Role.LISTED:
        return SecondRecord(record.name, tuple(map(_value, record.values)))
    request, position = record.values
    values = (
        ProbeValue(request.name, argument(request.source.argument, ADDRESS), ADDRESS, request.unit),
        _value(position),
    )
    return SecondRecord(record.name, values, flavour.handle)


def _value(value: Value) -> ProbeValue:
    program, kind = _program(value.source)
    return ProbeValue(value.name, replace(program, marks=True), kind, value.unit)


def _program(source: ValueSource) -> tuple[ValueProgram, ValueType]:
    if not source.width:
        kind = ValueType(source.argument_width, not source.unsigned)
        return argument(source.argument, kind), kind
    kind = ValueType(source.width, not source.unsigned)
    program = argument(source.argument, ADDRESS).then(Step(source.offset, kind, load=True))
    if source.at_return:
        program = replace(program, late=len(program.steps) - 1)
    return program, kind
