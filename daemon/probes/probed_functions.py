"""The probed functions of a recording: their places, and the values recorded of their calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hpcd.bpf.calls.probe_maps import ProbeMaps
from hpcd.bpf.calls.uprobes import ProbedInstruction
from hpcd.bpf.wire import (
    MAX_PROBED,
    POINT_RETURN,
    PROBE_LIST,
    PROBE_PACKED_LIST,
    PROBE_RETURNS,
    PROBE_STANDS_IN,
    PROBE_TRAMPOLINE,
    PROBE_VALUES,
)
from hpcd.daemon.probe_places.debug_prototypes import DeclaredType, Prototype
from hpcd.daemon.probe_places.static_tracepoints import operand_programs
from hpcd.daemon.probe_places.value_program import argument, result
from hpcd.daemon.probe_places.value_types import ValueType
from hpcd.daemon.probes.found_points import FoundPoint
from hpcd.daemon.probes.probe_spec import ALLOCATOR, ProbeSpec, ProbeValue, SecondRecord
from hpcd.model.calls import CalledFunction, CallValue, ValueKind

_NAME = re.compile(r"[A-Za-z_]\w*$")
# A larger result is written where a hidden first argument points.
_MOST_RETURNED = 16
_KINDS = {"bytes": "B", "count": "", "time": "ns"}


@dataclass(slots=True)
class ProbedFunction:
    """One probed function of one file. ``index`` is its number among the probed, ``number`` among
    the recorded functions."""

    index: int
    number: int
    name: str
    library: str
    spec: ProbeSpec
    one_in: int
    flags: int
    let_go: bool = False
    """Whether it was detached to keep the cost down."""


class ProbedFunctions:
    """Numbers the functions, and configures the BPF programs for each.

    ``first`` is the first free number among recorded functions; ``announce`` takes each
    function, ``problem`` a line about each failure.
    """

    def __init__(
        self,
        maps: ProbeMaps,
        first: int,
        announce: Callable[[CalledFunction], None],
        problem: Callable[[str], None],
        limit: int | None,
    ) -> None:
        """``limit`` is how many functions a user may have probed; None: it is root."""
        self._maps = maps
        self._first = first
        self._announce = announce
        self._problem = problem
        self._limited = limit is not None
        self._most = min(limit or MAX_PROBED, MAX_PROBED)
        self._left_out = False
        self.all: list[ProbedFunction] = []
        self._packed: list[int] = []
        self._entries = 0

    def read_entries(self, entries: int) -> None:
        """Read at least ``entries`` entries of arrays that have one for each rank."""
        if entries > self._entries:
            self._entries = entries
            for index in self._packed:
                self._maps.set_width(index, entries)

    def add(
        self, spec: ProbeSpec, point: FoundPoint, library: str, *, thrown: bool,
        inner: tuple[int, int] = (0, 0),
    ) -> list[ProbedInstruction]:  # fmt: skip
        """Number the function at ``point`` of ``library``; returns where it is to be probed.

        ``thrown`` says whether exceptions may be thrown through the library's functions; ``inner``
        are the offsets between which an allocator calls its own functions.
        """
        if len(self.all) >= self._most:
            if not self._left_out:
                self._problem(
                    f"{library}: {point.name} and further ones are not probed: more than"
                    f" {self._most} functions"
                )
            self._left_out = True
            return []
        values = self._values(spec, point, library)
        way = self._way(spec, point, library, thrown=thrown)
        flags = {"trampoline": PROBE_RETURNS | PROBE_TRAMPOLINE, "instructions": PROBE_RETURNS}.get(
            way, 0
        )
        if not flags:
            values = tuple(value for value in values if not _late(value))
        start = point.start if spec.heap and point.start else point.offset
        index = len(self.all)
        function = ProbedFunction(
            index, self._first + index, point.name, library, spec, spec.one_in, flags
        )
        self.all.append(function)
        second = self._add_second(function, spec.second) if spec.second and flags else -1
        names = [value.name for value in values]
        poll = names.index(spec.poll) if spec.poll in names else -1
        self._maps.set_function(
            index,
            function.number,
            [value.program.pack() for value in values],
            one_in=spec.one_in,
            flags=flags | (PROBE_STANDS_IN if spec.library == ALLOCATOR else 0),
            second=second,
            poll=poll,
            heap=spec.heap,
            inner=(inner[0] - start, inner[1] - start),
        )
        self._announce(
            CalledFunction(
                function.number, point.name, library, spec.group, tuple(map(_declared, values))
            )
        )
        places = [ProbedInstruction(start, index, point.semaphore, way == "trampoline")]
        if way == "instructions":
            places += [ProbedInstruction(offset, index | POINT_RETURN) for offset in point.returns]
        return places

    def _add_second(self, function: ProbedFunction, second: SecondRecord) -> int:
        """Number a second record of calls of ``function``; returns its index."""
        index = len(self.all)
        if index >= self._most:
            return -1
        number = self._first + index
        spec, library = function.spec, function.library
        self.all.append(ProbedFunction(index, number, second.name, library, spec, spec.one_in, 0))
        # An array has programs for its address and length only: the rest of the record is entries.
        programs = [value.program.pack() for value in second.values[: 1 if second.packed else 6]]
        flags = PROBE_PACKED_LIST if second.packed else PROBE_LIST if second.width else 0
        width = self._entries if second.packed else second.width
        self._maps.set_function(index, number, programs, one_in=1, flags=flags, width=width)
        if second.packed:
            self._packed.append(index)
        values = tuple(map(_declared, second.values))
        self._announce(CalledFunction(number, second.name, library, spec.group, values))
        return index

    def _way(self, spec: ProbeSpec, point: FoundPoint, library: str, *, thrown: bool) -> str:
        """Return the way to see returns: by a replaced return address (``trampoline``), at the
        function's return instructions, or not (``none``)."""
        if spec.provider or spec.returns == "none":
            return "none"
        # A user's would also be in the way of exceptions of another user's probed process.
        if spec.returns == "trampoline" and not (self._limited and thrown):
            return "trampoline"
        # The kernel keeps 64 replaced return addresses of a thread: recursion goes deeper.
        if not point.exits and (thrown or point.recursive or spec.returns == "instructions"):
            return "instructions"
        if spec.returns == "auto" and not thrown:
            return "trampoline"
        reason = "an exception could not be thrown through it otherwise, and " if thrown else ""
        self._problem(
            f"{library}: returns of {point.name} are not seen: {reason}{point.exits};"
            ' returns = "trampoline" in a file of probes demands them'
        )
        return "none"

    def _values(self, spec: ProbeSpec, point: FoundPoint, library: str) -> tuple[ProbeValue, ...]:
        """The values of ``spec``; the values of a tracepoint with the places from its note."""
        if spec.by_debug_info:
            return self._debug_values(point, library)
        if not spec.provider:
            return spec.values
        places = operand_programs(point.operands)
        values = []
        for value in spec.values:
            known = value.position < len(places)
            place = places[value.position] if known else "the tracepoint has no such argument"
            if isinstance(place, str):
                self._problem(f"{library}: {point.name}: {value.name} is not recorded: {place}")
            else:
                values.append(ProbeValue(value.name, place, value.type, value.unit))
        return tuple(values)

    def _debug_values(self, point: FoundPoint, library: str) -> tuple[ProbeValue, ...]:
        if point.prototype is None:
            self._problem(
                f"{library} has no debug information of {point.name}: declare its parameters"
            )
            return ()
        values, left_out = prototype_values(point.prototype)
        for line in left_out:
            self._problem(f"{library}: {point.name}: not recorded: {line}")
        return tuple(values)

    def note_allocator(self, pid: int) -> None:
        """Ignore mappings by process ``pid``: its own allocator makes them."""
        self._maps.note_allocator(pid)

    def foreign_calls(self, indices: Iterable[int]) -> int:
        """Calls of processes that are no targets, of the functions with these numbers."""
        return sum(int(self._maps.counts(index)[0]["foreign"]) for index in indices)

    def stop(self, functions: Iterable[ProbedFunction]) -> None:
        """Record no further call of ``functions``, nor the end of calls that have begun."""
        for function in functions:
            self._maps.set_one_in(function.index, 0)

    def set_one_in(self, function: ProbedFunction, one_in: int) -> None:
        """Record one in ``one_in`` calls of ``function`` from now on."""
        function.one_in = one_in
        self._maps.set_one_in(function.index, one_in)


def _late(value: ProbeValue) -> bool:
    """Whether a value is known only when the function has returned."""
    return value.program.at_return or value.program.late < len(value.program.steps)


def _declared(value: ProbeValue) -> CallValue:
    if value.unit in _KINDS:
        return CallValue(value.name, ValueKind(value.unit), _KINDS[value.unit])
    plain = {"signed": ValueKind.SIGNED, "address": ValueKind.ADDRESS}
    return CallValue(value.name, plain.get(value.kind, ValueKind.NUMBER), value.unit)


def prototype_values(prototype: Prototype) -> tuple[list[ProbeValue], list[str]]:
    """The values of a function of ``prototype``, and a line for each parameter without a value.

    Integers and pointers have their places in order; floating point takes no such place. Behind a
    structure that is passed in parts, which may take places, no place is known.
    """
    values: list[ProbeValue] = []
    left_out: list[str] = []
    hidden = prototype.result.kind == "parts" and prototype.result.size > _MOST_RETURNED
    position = int(hidden)
    returned = _value_type(prototype.result)
    most = PROBE_VALUES - (returned is not None)
    for number, (name, declared) in enumerate(prototype.parameters, 1):
        name = name if _NAME.match(name) else f"arg{number}"
        if name in [value.name for value in values]:
            name = f"arg{number}"
        kind = _value_type(declared)
        if kind is None and declared.kind == "floating":
            left_out.append(f"{name} is floating point")
            continue
        if kind is None:
            left_out.append(f"{name} and later parameters: it is passed in parts")
            break
        if len(values) == most:
            left_out.append(f"{name} and later parameters: a call has {PROBE_VALUES} values")
            break
        values.append(ProbeValue(name, argument(position, kind), kind))
        position += 1
    if returned is not None:
        values.append(ProbeValue("returned", result(returned), returned))
    return values, left_out


def _value_type(declared: DeclaredType) -> ValueType | None:
    if declared.kind not in ("signed", "unsigned", "address") or declared.size not in (1, 2, 4, 8):
        return None
    return ValueType(declared.size, declared.kind == "signed", declared.kind == "address")
