"""The text that says which calls mark phases."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcd.errors import UsageError

SYNTAX = (
    "FUNCTION, 'FUNCTION(VALUE)', 'FUNCTION(VALUE=PATTERN)', BEGIN..END, or BEGIN..; of all the"
    " process's threads with @process"
)


_SPEC = re.compile(r"([^(),=@]+?)(?:\(([^()]*)\))?(?:(\.\.)([^(),=@]*))?(@process)?")
# What a pattern, or the syntax, takes for something else.
_SPECIAL = re.compile(r"[(),=@*?\[\]]")
_BETWEEN = re.compile(r",(?![^()]*\))")


@dataclass(frozen=True, slots=True)
class PhaseSpec:
    """A kind of phase, marked by calls of functions that the pattern ``begin`` fits, told apart by
    ``values`` (name, pattern of the value as text; empty: any).

    ``end`` None: a phase is a call. Else it lasts from a call of ``begin`` to that of ``end``, as
    brackets pair; empty: until the thread's next of ``begin``. ``shared``: threads that mark none
    are in the phases of the first thread of their process that does.
    """

    begin: str
    values: tuple[tuple[str, str], ...] = ()
    end: str | None = None
    shared: bool = False

    def alone(self, function: str, values: dict[str, object]) -> str:
        """Return the text that selects phases marked by calls of ``function`` with these values.
        Letters that mean something in it are ``?``, which any fits.
        """
        named = ", ".join(f"{name}={_SPECIAL.sub('?', str(word))}" for name, word in values.items())
        text = _SPECIAL.sub("?", function) + (f"({named})" if named else "")
        end = "" if self.end is None else f"..{self.end}"
        return text + end + ("@process" if self.shared else "")


def parse_phase_specs(text: str) -> list[PhaseSpec]:
    """``solve``, ``solve(n)``, ``app:begin(step)..app:end``, ``solve@process``, several between
    commas. Raises :class:`UsageError`."""
    specs = []
    for part in map(str.strip, _BETWEEN.split(text)):
        match = _SPEC.fullmatch(part)
        if match is None:
            raise UsageError(f"phase {part!r}: expected {SYNTAX}")
        begin, values, dots, end, shared = match.groups()
        begin, named = begin.strip(), []
        for value in values.split(",") if values is not None else ():
            name, _, pattern = map(str.strip, value.partition("="))
            if not name:
                raise UsageError(f"phase {part!r}: expected {SYNTAX}")
            named.append((name, pattern))
        end = (end.strip() if end.strip() != begin else "") if dots else None
        specs.append(PhaseSpec(begin, tuple(named), end, shared=bool(shared)))
    return specs
