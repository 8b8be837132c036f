"""``--heap``: probes of the functions that allocate memory and free it.

Functions of the C library, of any library that exports functions in place of its own, and of
programs linked with theirs. ``operator new`` of the C++ library calls ``malloc``, where it is seen;
an allocator's own does not. A program's is its allocator's if it is among those functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hpcd.bpf.wire import NO_SOURCE, HeapRole
from hpcd.daemon.probe_places.value_program import Step, ValueProgram, argument, result
from hpcd.daemon.probe_places.value_types import ADDRESS, WORD
from hpcd.daemon.probes.found_points import FoundPoint
from hpcd.daemon.probes.probe_spec import (
    ALLOCATOR,
    C_LIBRARIES,
    PROGRAM,
    ProbeSpec,
    ProbeValue,
)
from hpcd.model.calls import Group

_FUNCTIONS = {
    "malloc": HeapRole.SIZE_0,
    "calloc": HeapRole.PRODUCT,
    "realloc": HeapRole.RESIZES,
    "aligned_alloc": HeapRole.SIZE_1,
    "posix_memalign": HeapRole.SIZE_2,
    "valloc": HeapRole.SIZE_0,
    "pvalloc": HeapRole.SIZE_0,
    "free": HeapRole.FREES,
}
# Probed in the C library only: other allocators map their own memory with these functions.
_MAPS = {"mmap": HeapRole.MAPS, "munmap": HeapRole.FREES}
# musl's memalign jumps to aligned_alloc: it would count twice.
_NOT_OF_MUSL = {"memalign": HeapRole.SIZE_1}
# The C library's calls realloc.
_NOT_OF_C_LIBRARIES = {"reallocarray": HeapRole.RESIZES_ARRAY}
_OPERATORS = {"_Znwm*": HeapRole.SIZE_0, "_Znam*": HeapRole.SIZE_0, "_ZdlPv*": HeapRole.FREES,
              "_ZdaPv*": HeapRole.FREES}  # fmt: skip
# Functions of one allocator in a C library or program are adjacent; distant ones belong to others.
_MOST_CODE = 1 << 16
# Filled in by the BPF programs according to the function's role.
_FILLED_IN = ValueProgram(NO_SOURCE)


def heap_probes() -> list[ProbeSpec]:
    """Probes of each function, in each library that may have it."""
    return [
        _probe(library, function, role)
        for libraries, functions in (
            ((*C_LIBRARIES, PROGRAM), _FUNCTIONS),
            (C_LIBRARIES, _MAPS),
            (("libc.so.6", PROGRAM), _NOT_OF_MUSL),
            ((PROGRAM,), _OPERATORS),
            ((ALLOCATOR,), _FUNCTIONS | _NOT_OF_MUSL | _NOT_OF_C_LIBRARIES | _OPERATORS),
        )
        for library in libraries
        for function, role in functions.items()
    ]


def _probe(library: str, function: str, role: HeapRole) -> ProbeSpec:
    address = ProbeValue("address", result(ADDRESS), ADDRESS)
    if role is HeapRole.FREES:
        address = ProbeValue("address", argument(0, ADDRESS), ADDRESS)
    elif function == "posix_memalign":
        block = argument(0, ADDRESS).then(Step(0, ADDRESS, load=True))
        address = ProbeValue("address", replace(block, late=0), ADDRESS)
    return ProbeSpec(
        f"{library}:{function}",
        library,
        function,
        (
            ProbeValue("allocated", _FILLED_IN, WORD, "bytes"),
            ProbeValue("freed", _FILLED_IN, WORD, "bytes"),
            address,
            ProbeValue("serial", _FILLED_IN, WORD),
        ),
        group=Group.HEAP,
        returns="none" if role is HeapRole.FREES else "trampoline",
        per_target=True,
        optional=True,
        heap=role,
    )


def has_allocator(specs: Sequence[ProbeSpec]) -> bool:
    """Whether ``specs``, the probes of one file, belong to an allocator other than the C library's
    that maps memory for itself."""
    return any(spec.heap and spec.library in (PROGRAM, ALLOCATOR) for spec in specs)


def is_of_allocator(spec: ProbeSpec, offset: int, code: tuple[int, int]) -> bool:
    """Whether the function at ``offset`` of a file allocates by itself, if ``code`` is between the
    offsets of its allocator: the C++ library's operators, which a program is linked with, call
    malloc."""
    return spec.library != PROGRAM or spec.function not in _OPERATORS or code[0] <= offset < code[1]


def allocator_code(
    specs: Sequence[ProbeSpec], points: Sequence[FoundPoint], size: int
) -> Callable[[ProbeSpec], tuple[int, int]]:
    """Return a function that gives for each of ``specs`` the range of offsets in its file, of
    ``size`` bytes, whose code calls it for the allocator itself; ``points`` are their places."""
    offsets = [
        point.offset
        for point in points
        if specs[point.query].function in _FUNCTIONS and not point.why
    ]
    low, high = min(offsets, default=0), max(offsets, default=0)
    if any(spec.library == ALLOCATOR for spec in specs):
        low, high = 0, size
    elif high - low > _MOST_CODE:
        low = high = 0
    return lambda spec: (0, size) if spec.heap is HeapRole.MAPS else (low, high)
