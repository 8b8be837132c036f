"""Functions to probe and the values to record of each call: ``--probe``'s argument.

::

    LIB:FUNCTION                            count and time of the calls
    LIB:FUNCTION(int n, void *buffer)       and the values of the named parameters
    LIB:FUNCTION(int) -> long               and the returned value
    LIB:FUNCTION(...)                       parameters and result as debug information has them
    LIB:FUNCTION(long len = *(u64*)(arg2+24))   a value of the given expression
    usdt:LIB:PROVIDER:NAME(u64 size, int)   a static tracepoint, with its arguments

LIB and FUNCTION may be patterns (``*``, ``?``, ``[...]``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hpcd.bpf.wire import PROBE_VALUES, HeapRole
from hpcd.daemon.probe_places.value_program import Step, ValueProgram, argument, result
from hpcd.daemon.probe_places.value_types import WORD, ValueType, type_called
from hpcd.daemon.probes.value_expression import parse_expression
from hpcd.errors import UsageError

GROUPS = ("probe", "mpi", "memory")
PROGRAM = "[program]"
"""In place of a library: files that are no shared libraries, whose functions are linked in."""
ALLOCATOR = "[allocator]"
"""In place of a library: shared libraries that export ``malloc`` and ``free``, but the C library's;
which do only the file says."""
C_LIBRARIES = ("libc", "ld-musl*", "libc.musl*")
_LOADERS = ("ld-linux*", "ld64*")  # of glibc before 2.35: they call the C library's malloc
_LONGEST = 4096
_HEAD = re.compile(r"(?P<library>[^:()]+):(?P<function>[^:()][^()]*)$")
_USDT = re.compile(
    r"usdt:(?P<library>[^:()]+):(?P<provider>[\w.$*?\[\]-]+):(?P<name>[\w.$*?\[\]-]+)$"
)
_NAME = re.compile(r"[A-Za-z_]\w{0,63}$")
_PARAMETER = re.compile(r"(?P<type>.*?[\s*])?(?P<name>[A-Za-z_]\w*)\s*(?:\[\d*\])?$", re.DOTALL)
_TYPE_WORDS = frozenset(
    [
        "void",
        "char",
        "short",
        "int",
        "long",
        "signed",
        "unsigned",
        "float",
        "double",
        "bool",
        "const",
        "volatile",
        "enum",
        "struct",
    ]
)


@dataclass(frozen=True, slots=True)
class ProbeValue:
    """One value of each call: its name, the program that computes it, and its type.

    ``unit`` is "" or a unit such as "bytes". ``position`` of a static tracepoint's value is the
    number of its argument, whose place only the file's note contains; else -1.
    """

    name: str
    program: ValueProgram
    type: ValueType
    unit: str = ""
    position: int = -1

    @property
    def kind(self) -> str:
        """``signed``, ``unsigned`` or ``address``: how the 64 bits are to be read."""
        return "address" if self.type.address else "signed" if self.type.signed else "unsigned"


@dataclass(frozen=True, slots=True)
class SecondRecord:
    """Another record of each call: further values, recorded as a function called ``name``.

    With ``width`` there is a record for each entry of an array that the function is entered with:
    the first of ``values`` is its address, the second the number of entries, of ``width``
    bytes each; an entry and its position are recorded under these two names. With ``packed`` a
    record has several entries: the first value is the address of the array; the position
    of the first entry is recorded, and two entries in each of the other values.
    """

    name: str
    values: tuple[ProbeValue, ...]
    width: int = 0
    packed: bool = False


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """A probe that ``--probe`` requests; ``text`` is how it was written."""

    text: str
    library: str
    function: str
    values: tuple[ProbeValue, ...] = ()
    group: str = "probe"
    provider: str = ""
    """Provider of a static tracepoint; "" for functions."""
    by_debug_info: bool = False
    returns: str = "auto"
    """How returns are observed: a value of :data:`RETURNS`."""
    one_in: int = 1
    """One call of this number is recorded."""
    per_target: bool = False
    """Whether to attach to each target separately, although calls of new processes are missed."""
    optional: bool = False
    """Whether a library without the function is no cause for a message."""
    second: SecondRecord | None = None
    poll: str = ""
    """The value that is 0 when a returned call did nothing: such calls are counted only."""
    expendable: bool = False
    """Whether it is dropped before other functions, to keep the budget."""
    heap: HeapRole = HeapRole.NONE
    """How it allocates or frees: its calls are chosen by their bytes, and it is never dropped."""

    def applies_to(self, path: str) -> bool:
        """Whether the file at ``path`` is the library that is meant."""
        return library_matches(self.library, path)


RETURNS = ("auto", "trampoline", "instructions", "none")


def library_matches(pattern: str, path: str) -> bool:
    """Whether ``path`` is meant: by its whole path, its end (``./program``), or its name with or
    without ``.so.N``."""
    if pattern == PROGRAM:
        return ".so" not in path.rpartition("/")[2]
    if pattern == ALLOCATOR:
        others = (PROGRAM, *C_LIBRARIES, *_LOADERS)
        return not any(library_matches(other, path) for other in others)
    if "/" in pattern:
        if pattern[0] not in "/*":
            # Which folder it is relative to is not known here.
            pattern = "*/" + re.sub(r"^(\.{1,2}/)+", "", pattern)
        return path == pattern or fnmatchcase(path, pattern)
    name = path.rpartition("/")[2]
    stem = name.partition(".so")[0]
    # libmpi.so.40 is libmpi.so.40.30.4 too.
    versioned = ".so" in pattern and name.startswith(pattern + ".")
    return versioned or any(fnmatchcase(text, pattern) for text in (name, stem))


def parse_probe(text: str) -> ProbeSpec:
    """Return the probe that ``--probe text`` requests. Raises :class:`UsageError` in one line."""
    try:
        if len(text) > _LONGEST or not text.isprintable():
            raise UsageError("longer than 4096 characters, or not printable")
        return _parse(text)
    except UsageError as error:
        raise UsageError(f"--probe {text[:200]!r}: {error}") from None


def _parse(text: str) -> ProbeSpec:
    head, parameters, returned = split_spec(text)
    usdt = _USDT.match(head)
    if usdt:
        if returned:
            raise UsageError("a static tracepoint returns nothing")
        values = tracepoint_values(parameters or "")
        return ProbeSpec(text, usdt["library"], usdt["name"], values, provider=usdt["provider"])
    match = _HEAD.match(head)
    if head.startswith("usdt:") or not match:
        raise UsageError(
            "write LIB:FUNCTION, LIB:FUNCTION(TYPE NAME, ...) -> TYPE or usdt:LIB:PROVIDER:NAME"
        )
    if parameters == "...":
        if returned:
            raise UsageError("(...) has the type of the result from debug information")
        return ProbeSpec(text, match["library"], match["function"].strip(), by_debug_info=True)
    values = declared_values(parameters or "", returned, {})
    return ProbeSpec(text, match["library"], match["function"].strip(), values)


def split_spec(text: str) -> tuple[str, str | None, str]:
    """Return (text before the parentheses, text inside or None, the type behind ``->``)."""
    head, opening, rest = text.partition("(")
    if not opening:
        head, _, returned = text.partition("->")
        return head.strip(), None, returned.strip()
    depth, end = 1, -1
    for at, letter in enumerate(rest):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            end = at
            break
    if end < 0:
        raise UsageError("a parenthesis is not closed")
    behind = rest[end + 1 :].strip()
    if behind and not behind.startswith("->"):
        raise UsageError(f"{behind[:40]!r} is not understood; write -> TYPE for the returned value")
    return head.strip(), rest[:end].strip(), behind.removeprefix("->").strip()


def split_parameters(text: str) -> list[str]:
    """``text`` at the commas that are in no parentheses."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append(text[begin:at].strip())
            begin = at + 1
    parts.append(text[begin:].strip())
    return [] if parts == [""] else parts


def declared_values(
    parameters: str, returned: str, types: dict[str, str], units: dict[str, str] | None = None
) -> tuple[ProbeValue, ...]:
    """Return the values of a declared function: its named parameters, expressions, its result.

    Raises :class:`UsageError`.
    """
    units = units or {}
    values: list[ProbeValue] = []
    known: dict[str, ValueProgram] = {}
    position = 0
    for part in split_parameters(parameters):
        if part in ("void", "..."):
            continue
        declaration, equals, expression = part.partition("=")
        name, kind = _declared(declaration.strip(), types, expected=bool(equals))
        if equals:
            program, result_type = parse_expression(expression, known, types)
            if kind is not None and kind.size < 8:
                program = program.then(Step(0, kind))
            values.append(ProbeValue(name, program, kind or result_type, units.get(name, "")))
            continue
        if kind is not None and name:
            known[name] = argument(position, kind)
            values.append(ProbeValue(name, known[name], kind, units.get(name, "")))
        position += 1
    kind = type_called(returned, types) if returned else None
    if kind:
        values.append(ProbeValue("returned", result(kind), kind, units.get("returned", "")))
    return checked_values(values)


def checked_values(values: Sequence[ProbeValue]) -> tuple[ProbeValue, ...]:
    """``values`` when they are as many as a call has, each with a name of its own.

    Raises :class:`UsageError`.
    """
    if len(values) > PROBE_VALUES:
        raise UsageError(
            f"{len(values)} values; a call has {PROBE_VALUES} at most, leave some unnamed"
        )
    names = [value.name for value in values]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two values are called {name!r}")
    return tuple(values)


def _declared(text: str, types: dict[str, str], *, expected: bool) -> tuple[str, ValueType | None]:
    """Name ("": none, it is not recorded) and type of a parameter; the type None where an
    expression's own will do."""
    match = _PARAMETER.match(text)
    name = match["name"] if match else ""
    kind_text = (match["type"] or "") if match else text
    if expected:
        if not _NAME.match(name):
            raise UsageError(f"{text!r} is no name for a value")
        return name, type_called(kind_text, types) if kind_text.strip() else None
    if not match or not kind_text.strip() or name in _TYPE_WORDS or name in types:
        return "", None  # only a type: it takes a place and is not recorded
    return name, type_called(kind_text, types)


def tracepoint_values(parameters: str) -> tuple[ProbeValue, ...]:
    """The values of a static tracepoint, whose note has the arguments' places.

    Raises :class:`UsageError`.
    """
    values = []
    for position, part in enumerate(split_parameters(parameters)):
        name, kind = _declared(part, {}, expected=False)
        if not name and _NAME.match(part) and part not in _TYPE_WORDS:
            name, kind = part, WORD
        if name:
            program = argument(0, WORD)  # placeholder: the file's note has the place
            values.append(ProbeValue(name, program, kind or WORD, position=position))
    return checked_values(values)
