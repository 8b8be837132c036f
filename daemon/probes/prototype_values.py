"""The values of a function whose prototype debug information tells."""

from __future__ import annotations

import re

from hpcd.daemon.probes.debug_prototypes import DeclaredType, Prototype
from hpcd.daemon.probes.probe_spec import ProbeValue
from hpcd.daemon.probes.value_program import MAX_VALUES, argument, result
from hpcd.daemon.probes.value_types import ValueType

_NAME = re.compile(r"[A-Za-z_]\w*$")
# A larger result is written where a hidden first argument points.
_MOST_RETURNED = 16


def prototype_values(prototype: Prototype) -> tuple[list[ProbeValue], list[str]]:
    """The values, and a line for each parameter that cannot be one.

    Integers and pointers have their places in order; floating point has none among them. Behind a
    structure that is passed in parts, which take places or not, no place is known.
    """
    values: list[ProbeValue] = []
    left_out: list[str] = []
    hidden = prototype.result.kind == "parts" and prototype.result.size > _MOST_RETURNED
    position = int(hidden)
    returned = _value_type(prototype.result)
    most = MAX_VALUES - (returned is not None)
    for number, (name, declared) in enumerate(prototype.parameters, 1):
        name = name if _NAME.match(name) else f"arg{number}"
        if name in [value.name for value in values]:
            name = f"arg{number}"
        kind = _value_type(declared)
        if kind is None and declared.kind == "floating":
            left_out.append(f"{name} is floating point")
            continue
        if kind is None:
            left_out.append(f"{name} and what follows: it is passed in parts")
            break
        if len(values) == most:
            left_out.append(f"{name} and what follows: a call has {MAX_VALUES} values")
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
