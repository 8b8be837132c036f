"""Names of procedures as people read them: without arguments of templates, parameters, return
types, and namespaces that tell nothing apart.

``std::vector<int, std::allocator<int> >::push_back(int const&)`` is ``vector::push_back`` unless
another name shown beside it would be that, too: then both have more of their names, in the steps of
:class:`_Detail`. Whole names are in JSON, exports and tooltips.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise

from hpcd.analysis.symbols.bare_names import bare_name

# What display names have in addition.
_ADDED = re.compile(r"( \[k\]| \[inlined\]| x\d+)+$")
# The names of operators have brackets of their own; a conversion's name is its type.
_OPERATOR = re.compile(
    r"\boperator(?: ?(?:\(\)|\[\]|<=>|<<=?|>>=?|->\*?|<=|>=|<|>)| (?:new|delete)(?:\[\])?)"
)
_TOKEN = re.compile(r"[<>()\[\]{}]|::| |[^<>()\[\]{}: ]+|:")
_OPENED = {"<": ">", "(": ")", "[": "]", "{": "}"}
_THUNK = re.compile(r"^(?:non-)?virtual thunk to |^covariant return thunk to ")
# rustc's hash at the end of mangled names of old.
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
# Places in sources, and loops there.
_PLACE = re.compile(r"loop at |\S*[^:]:\d+( |$)")
# Python's names, which have brackets of their own.
_PYTHON = re.compile(r"<(module|lambda|locals|listcomp|dictcomp|setcomp|genexpr)>")
# Brackets within brackets: whoever made a name that has more did not mean it to be read.
_DEEPEST = 40
_NO_NAMESPACE = ("(anonymous namespace)", "{anonymous}", "{{closure}}")


class _Detail(IntEnum):
    """How much of a name is kept."""

    OWNER = 0
    """The function and the class or namespace that it is in."""
    QUALIFIED = 1
    """All namespaces."""
    ARGUMENTS = 2
    """The last parts of template arguments and parameters, too."""
    WHOLE = 3


def short_names(names: Sequence[str]) -> list[str]:
    """Return ``names`` shortened; those that differ still do. O(their letters)."""
    detail = dict.fromkeys(names, _Detail.OWNER)
    while True:
        alike: dict[str, list[str]] = {}
        for name in detail:
            alike.setdefault(_shortened(name, detail[name]), []).append(name)
        crowded = [name for group in alike.values() if len(group) > 1 for name in group]
        crowded = [name for name in crowded if detail[name] < _Detail.WHOLE]
        if not crowded:
            return [_shortened(name, detail[name]) for name in names]
        for name in crowded:
            detail[name] = _Detail(detail[name] + 1)


@lru_cache(1 << 16)
def _shortened(name: str, detail: _Detail) -> str:
    if detail is _Detail.WHOLE or name.startswith("["):
        return name
    added = _ADDED.search(name)
    plain = name[: added.start()] if added else name
    short = _without_details(bare_name(plain), detail) or plain
    return short + (added[0] if added else "")


def _without_details(name: str, detail: _Detail) -> str:
    if "::" not in name and "/" in name:
        return name.rpartition("/")[2] or name  # Go's: a package's path, then its own name
    if not any(letter in name for letter in "<(:") or ".(*" in name:
        return name
    if _PLACE.match(name) or _PYTHON.search(name) or _depth(name) > _DEEPEST:
        return name
    thunk = _THUNK.match(name)
    name = _RUST_HASH.sub("", name[thunk.end() :] if thunk else name)
    parts = _qualified(name, detail)
    kept = [
        part
        for before, part in pairwise(["", *parts])
        # What calls a lambda is the lambda.
        if part not in _NO_NAMESPACE
        and not (before.startswith("{") and part.startswith("operator()"))
    ]
    if detail is _Detail.OWNER:
        # A lambda is known by the function that it is in.
        inner = 2
        while inner < len(kept) and kept[-inner].startswith("{"):
            inner += 1
        kept = kept[-inner:]
    return "::".join(kept) or name


def _qualified(name: str, detail: _Detail) -> list[str]:
    """The parts of a qualified name, the outermost first, without what is in brackets."""
    operators = {match.start(): match[0] for match in _OPERATOR.finditer(name)}
    parts, word, at = [], "", 0
    while at < len(name):
        if at in operators:
            word += operators[at]
            at += len(operators[at])
            continue
        token = _TOKEN.match(name, at)
        if token is None:
            break
        text = token[0]
        if text in _OPENED:
            end = _closing(name, at)
            inside = name[at + 1 : end]
            word += _bracketed(text, inside, word, detail)
            at = end + 1
        elif text == "::":
            parts.append(word)
            word, at = "", at + 2
        elif text == " ":
            if name.startswith(" <", at):
                at += 1  # of an operator that ends in < itself
            elif _is_qualifier(name[at + 1 :]):
                at += len(name[at:].split("::", 1)[0]) if "::" in name[at:] else len(name)
            elif word.endswith("operator"):
                word, at = word + " ", at + 1
            else:
                parts, word, at = [], "", at + 1  # a return type ends here
        else:
            word += text
            at = token.end()
    return [part for part in (*parts, word) if part]


def _bracketed(opened: str, inside: str, word: str, detail: _Detail) -> str:
    """Return what is kept of a name's part in brackets."""
    if inside == "anonymous namespace":
        return "(anonymous namespace)"
    if opened == "{":
        number = re.search(r"#\d+", inside)
        kind = re.match(r"[\w' ]+", inside)
        return "{" + (kind[0] if kind else inside) + (number[0] if number else "") + "}"
    if opened == "[":
        return f"[{inside}]" if "abi:" not in inside and "clone" not in inside else ""
    if opened == "<" and not word:
        # Rust: <Type as Trait>::method, <impl Trait for Type>::method.
        return _last(re.split(r" as | for ", inside)[-1 if inside.startswith("impl ") else 0])
    if detail < _Detail.ARGUMENTS:
        return ""
    arguments = ", ".join(_last(one) for one in _arguments(inside))
    return f"{opened}{arguments}{_OPENED[opened]}"


def _last(name: str) -> str:
    """The last part of a type's qualified name."""
    return (_qualified(name.strip().rstrip("&*").strip(), _Detail.OWNER) or [name])[-1]


def _arguments(inside: str) -> list[str]:
    """A list of arguments, at its commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(inside):
        if letter in "<([{":
            depth += 1
        elif letter in ">)]}":
            depth -= 1
        elif letter == "," and not depth:
            parts.append(inside[begin:at])
            begin = at + 1
    return [part for part in (*parts, inside[begin:]) if part.strip()]


def _closing(name: str, at: int) -> int:
    """Return where the bracket closes that opens at ``at``; the end if none does."""
    depth = 0
    while at < len(name):
        letter = name[at]
        if letter in "<([{":
            depth += 1
        elif letter == ">" and name[at - 1] == "-":
            pass  # the arrow of a pointer's or a return type
        elif letter in ">)]}":
            depth -= 1
            if not depth:
                return at
        at += 1
    return at


def _depth(name: str) -> int:
    """The most brackets that are open at one place."""
    depth = deepest = 0
    for letter in name:
        if letter in "<([{":
            depth += 1
            deepest = max(deepest, depth)
        elif letter in ">)]}":
            depth -= 1
    return deepest


def _is_qualifier(rest: str) -> bool:
    """Whether what follows a name says more of it than its name: ``const``, ``&``, ``volatile``."""
    return bool(re.match(r"(const|volatile|&&?|noexcept)(?![\w])|\[clone |\[abi:", rest))
