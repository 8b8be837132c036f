"""``--heap``: probes of the functions that allocate memory and free it.

Those of the C library, of allocators that stand in for it, and of programs that are linked with
theirs. ``operator new`` of the C++ library calls ``malloc``, where it is seen; that of other
allocators does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpcd.bpf.probe_maps import HeapRole
from hpcd.daemon.probes.found_points import FoundPoint
from hpcd.daemon.probes.probe_spec import PROGRAM, ProbeSpec, ProbeValue, library_matches
from hpcd.daemon.probes.value_program import NO_REGISTER, Step, ValueProgram, argument, result
from hpcd.daemon.probes.value_types import ADDRESS, WORD
from hpcd.model.calls import Group

_ALLOCATORS = ("libjemalloc", "libtcmalloc*", "libmimalloc*")
_C_LIBRARIES = ("libc", "ld-musl*", "libc.musl*", PROGRAM)
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
# musl's memalign goes on to aligned_alloc by a jump: it would count twice.
_NOT_OF_MUSL = {"memalign": HeapRole.SIZE_1}
_OPERATORS = {"_Znwm*": HeapRole.SIZE_0, "_Znam*": HeapRole.SIZE_0, "_ZdlPv*": HeapRole.FREES,
              "_ZdaPv*": HeapRole.FREES}  # fmt: skip
# Functions of one allocator in a C library or program lie together; further apart they are others.
_MOST_CODE = 1 << 16
_EVERYWHERE = (-(1 << 30), 1 << 30)


def heap_probes() -> list[ProbeSpec]:
    """Probes of each function, in each library that may have it."""
    return [
        _probe(library, function, role)
        for libraries, functions in (
            (_C_LIBRARIES, _FUNCTIONS),
            (("libc.so.6", PROGRAM), _NOT_OF_MUSL),
            (_ALLOCATORS, _FUNCTIONS | _NOT_OF_MUSL | _OPERATORS),
        )
        for library in libraries
        for function, role in functions.items()
    ]


def _probe(library: str, function: str, role: HeapRole) -> ProbeSpec:
    # The programs fill in the size and the serial number, by the role.
    size = ProbeValue("size", ValueProgram(NO_REGISTER), WORD, "bytes")
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
        (size, address, ProbeValue("serial", ValueProgram(NO_REGISTER), WORD)),
        group=Group.HEAP,
        returns="none" if role is HeapRole.FREES else "trampoline",
        per_target=True,
        optional=True,
        heap=role,
    )


def allocator_code(
    specs: Sequence[ProbeSpec], points: Sequence[FoundPoint], path: str
) -> tuple[int, int]:
    """Return from which offset to which code of the file at ``path`` is its allocator's, which
    calls functions of its own."""
    offsets = [point.offset for point in points if specs[point.query].heap and not point.why]
    if not offsets:
        return 0, 0
    if any(library_matches(library, path) for library in _ALLOCATORS):
        return min(offsets) + _EVERYWHERE[0], max(offsets) + _EVERYWHERE[1]
    low, high = min(offsets), max(offsets)
    return (low, high) if high - low < _MOST_CODE else (0, 0)
