"""Expressions such as ``*(u64*)(arg3+24)``: values recorded of a call in addition to its arguments.

::

    expression = term { ("+" | "-") number }
    term       = "*" "(" type "*" ")" term      the memory at that address
               | "(" expression ")"
               | "argN" | "ret" | name | number

``argN`` counts from 1; a name is a declared parameter. ``@return`` behind an expression has its
outermost read of memory done when the function has returned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from hpcd.bpf.wire import NO_SOURCE
from hpcd.daemon.probe_places.value_program import (
    MOST_ARGUMENTS,
    Step,
    ValueProgram,
    argument,
    result,
)
from hpcd.daemon.probe_places.value_types import WORD, ValueType, type_called
from hpcd.errors import UsageError

_TOKEN = re.compile(r"\s*(0x[0-9a-fA-F]+|\d+|[A-Za-z_]\w*|[-+*()])")
_ARGUMENT = re.compile(r"arg([1-9]\d?)$")
_MOST_NESTED = 16
_OFFSETS = 1 << 31


def parse_expression(
    text: str, parameters: Mapping[str, ValueProgram], types: dict[str, str]
) -> tuple[ValueProgram, ValueType]:
    """The program of an expression, and the type of its value.

    ``parameters`` are the programs of declared parameters. Raises :class:`UsageError`.
    """
    body, at_return, rest = text.partition("@return")
    if rest.strip():
        raise UsageError(f"{text.strip()!r}: @return ends an expression")
    parser = _Parser(body, parameters, types)
    program, kind = parser.expression(0)
    parser.require_end()
    if at_return:
        if not program.steps or not program.steps[-1].load:
            raise UsageError(f"{text.strip()!r}: @return needs a read of memory, *(TYPE*)...")
        program = replace(program, late=len(program.steps) - 1)
    return program, kind


class _Parser:
    def __init__(
        self, text: str, parameters: Mapping[str, ValueProgram], types: dict[str, str]
    ) -> None:
        self._text = text.strip()
        self._parameters = parameters
        self._types = types
        self._tokens: list[str] = []
        at = 0
        while at < len(self._text):
            match = _TOKEN.match(self._text, at)
            if not match:
                raise self._error(f"{self._text[at:].strip()[:20]!r} is not understood")
            self._tokens.append(match[1])
            at = match.end()
        self._at = 0

    def _error(self, what: str) -> UsageError:
        return UsageError(f"expression {self._text!r}: {what}")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self._peek()
        if not token or (expected and token != expected):
            raise self._error(f"{expected or 'a value'!r} is missing")
        self._at += 1
        return token

    def require_end(self) -> None:
        if self._peek():
            raise self._error(f"{self._peek()!r} is not understood there")

    def expression(self, depth: int) -> tuple[ValueProgram, ValueType]:
        program, kind = self._term(depth)
        while self._peek() in ("+", "-"):
            sign = 1 if self._take() == "+" else -1
            number = self._take()
            if not number[0].isdigit():
                raise self._error("only numbers can be added")
            program = program.then(Step(sign * self._number(number), WORD))
            kind = WORD
        return program, kind

    def _number(self, text: str) -> int:
        number = int(text, 0) if text[:2] == "0x" else int(text)
        if number >= _OFFSETS:
            raise self._error(f"{text} is not below 2^31")
        return number

    def _term(self, depth: int) -> tuple[ValueProgram, ValueType]:
        if depth > _MOST_NESTED:
            raise self._error("nested too deeply")
        token = self._take()
        if token == "*":
            kind = self._pointed_type()
            program, _ = self._term(depth + 1)
            return program.then(Step(0, kind, load=True)), kind
        if token == "(":
            inner = self.expression(depth + 1)
            self._take(")")
            return inner
        if token == "ret":
            return result(WORD), WORD
        if token[0].isdigit():
            return ValueProgram(NO_SOURCE).then(Step(self._number(token), WORD)), WORD
        if token in self._parameters:
            return self._parameters[token], WORD
        match = _ARGUMENT.match(token)
        if match and int(match[1]) <= MOST_ARGUMENTS:
            return argument(int(match[1]) - 1, WORD), WORD
        raise self._error(f"{token!r} is neither argN, ret nor a declared parameter")

    def _pointed_type(self) -> ValueType:
        self._take("(")
        words = []
        while self._peek() not in ("*", ")", ""):
            words.append(self._take())
        stars = 0
        while self._peek() == "*":
            self._take()
            stars += 1
        self._take(")")
        if not stars:
            raise self._error("a read is written *(TYPE*)address")
        kind = type_called(" ".join(words) + "*" * (stars - 1), self._types)
        if kind is None:
            raise self._error("void has no value to read")
        return kind
