"""Names of procedures as people read them: without arguments of templates, parameters, return
types, and namespaces that tell nothing apart.

``std::vector<int, std::allocator<int> >::push_back(int const&)`` is ``vector::push_back`` unless
another name shown beside it would be that, too: then both have more of their names, in the steps of
:data:`_STEPS`. Whole names are in JSON, exports and tooltips.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from hpcd.analysis.symbols.bare_names import bare_name

# What display names have in addition: places of loops and lines before, of Python functions after.
_BEFORE = re.compile(r"(?:loop at )?(?:\S*[^:\s]:\d+|unknown line) in ")
_ADDED = re.compile(r"(?:  \S[^\n]*:\d+)?(?: \[k\]| \[inlined\]| x\d+)*$")
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
# Names of Python and Java, which have brackets of their own, and others that brackets enclose.
_BRACKETED = re.compile(
    r"<(module|lambda|locals|listcomp|dictcomp|setcomp|genexpr)>|\.<(cl)?init>$|^<[^<>]*>$"
)
# What names are made of, and the most words that tell one from others.
_WORD = re.compile(r"[\w~]+(?:#\d+)?")
_TELLING = 3
# Brackets within brackets: whoever made a name that has more did not mean it to be read.
_DEEPEST = 40
_NO_NAMESPACE = ("(anonymous namespace)", "{anonymous}", "{{closure}}")
# Types whose names are several words.
_NUMBER = re.compile(r"(?:(?:unsigned|signed|long|short|int|char|double) ?){2,}")
# Arguments that hardly anyone gives, but compilers write out.
_DEFAULTS = {"allocator", "char_traits", "default_delete", "equal_to", "hash", "less"}


class _Detail(NamedTuple):
    """The parts of a name that are kept in addition to the function and its class or namespace."""

    inner: bool = False
    """Closures and namespaces without names."""
    namespaces: bool = False
    """All of them."""
    templates: int = 0
    """Levels of template arguments within each other, of each the last part of its name."""
    parameters: int = 0
    """As many levels of parameters and their template arguments."""
    telling: bool = False
    """Words that not all names have which are alike at the first step, as template arguments."""
    most: int = 2
    """Arguments of a list."""
    exact: bool = False
    """Pointers, and arguments that compilers add."""


_STEPS = (
    _Detail(),
    _Detail(inner=True),
    _Detail(inner=True, namespaces=True),
    _Detail(inner=True, templates=1),
    _Detail(inner=True, parameters=1),
    _Detail(inner=True, telling=True),
    _Detail(inner=True, templates=3, parameters=3, most=99),
    _Detail(inner=True, namespaces=True, templates=99, parameters=99, most=99, exact=True),
)
"""The steps, the shortest name first; the whole name follows the last one."""


def short_names(names: Sequence[str]) -> list[str]:
    """Return ``names`` shortened. Names that differ still do, also without the additions of
    display names (``[inlined]``). O(their letters)."""
    split = [_split(name) for name in names]
    short = {plain: _shortened(plain, 0) for _, plain, _ in split}
    common: dict[str, frozenset[str]] = {}
    for group in _alike(short):
        common |= dict.fromkeys(group, frozenset.intersection(*map(_words, group)))
    step = dict.fromkeys(short, 0)
    while crowded := [
        name for group in _alike(short) for name in group if step[name] < len(_STEPS)
    ]:
        for name in crowded:
            step[name] += 1
            short[name] = _shortened(name, step[name], common.get(name, frozenset()))
    return [before + short[plain] + added for before, plain, added in split]


def without_return_type(name: str) -> str:
    """Return the name of a C++ function without its return type, which the whole names of functions
    made of templates begin with: ``int std::max<int>(int, int)`` is of the standard library, and
    ``std::string app::join<int>(int)`` is not."""
    if "::" not in name or "(" not in name or " " not in name or _depth(name) > _DEEPEST:
        return name
    return name[_scan(name, _Detail())[1] :]


def _alike(short: dict[str, str]) -> list[list[str]]:
    """The names that have one short name with others."""
    names: dict[str, list[str]] = {}
    for name, text in short.items():
        names.setdefault(text, []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _split(name: str) -> tuple[str, str, str]:
    """A display name's procedure, and what stands before and after it."""
    added = _ADDED.search(name)
    end = added.start() if added else len(name)
    before = _BEFORE.match(name, 0, end)
    begin = before.end() if before else 0
    return name[:begin], name[begin:end], name[end:]


@lru_cache(1 << 16)
def _shortened(name: str, step: int, common: frozenset[str] = frozenset()) -> str:
    if step == len(_STEPS) or name.startswith("["):
        return name
    short = _without_details(bare_name(name), _STEPS[step]) or name
    if not _STEPS[step].telling:
        return short
    every = _WORD.findall(bare_name(name))
    words = dict.fromkeys(word for word in every if word not in common)
    telling = [word for word in words if word not in _DEFAULTS][:_TELLING]
    return f"{short}<{', '.join(telling)}>" if telling else short


@lru_cache(1 << 16)
def _words(name: str) -> frozenset[str]:
    return frozenset(_WORD.findall(bare_name(name)))


def _without_details(name: str, detail: _Detail) -> str:
    if "::" not in name and "/" in name:
        return name.rpartition("/")[2] or name  # Go's: a package's path, then its own name
    if not any(letter in name for letter in "<(:") or ".(*" in name:
        return name
    if _PLACE.match(name) or _BRACKETED.search(name) or _depth(name) > _DEEPEST:
        return name
    thunk = _THUNK.match(name)
    name = _RUST_HASH.sub("", name[thunk.end() :] if thunk else name)
    parts = _qualified(name, detail)
    kept = [
        part
        for before, part in pairwise(["", *parts])
        # What calls a lambda is the lambda.
        if (detail.inner or part not in _NO_NAMESPACE)
        and part != "__cxx11"
        and not (before.startswith("{") and part.startswith("operator()"))
    ]
    if not detail.namespaces:
        # A lambda is known by the function that it is in.
        inner = 2
        while inner < len(kept) and kept[-inner].startswith("{"):
            inner += 1
        kept = kept[-inner:]
    return "::".join(kept) or name


def _qualified(name: str, detail: _Detail) -> list[str]:
    """The parts of a qualified name, the outermost first, without what is in brackets."""
    return _scan(name, detail)[0]


def _scan(name: str, detail: _Detail) -> tuple[list[str], int]:
    """Return the parts of a qualified name, and where it begins behind its return type."""
    operators = {match.start(): match[0] for match in _OPERATOR.finditer(name)}
    parts, word, at, begin = list[str](), "", 0, 0
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
                begin = at
        else:
            word += text
            at = token.end()
    return [part for part in (*parts, word) if part], begin


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
    levels = detail.parameters if opened == "(" else detail.templates
    inner = detail._replace(namespaces=False, templates=max(levels - 1, 0), parameters=0)
    if opened == "<" and not word:
        # Rust: <Type as Trait>::method, <impl Trait for Type>::method.
        own, *other = re.split(r" as | for ", inside.removeprefix("impl "))
        if inside.startswith("impl ") and other:
            own, other = other[0], [own]
        if not levels:
            return _last(own, inner)
        return f"<{' as '.join(_last(one, inner) for one in (own, *other))}>"
    if not levels:
        return ""
    names = [_last(one, inner) for one in _arguments(inside)]
    if not detail.exact:
        names = [name for name in names if name.partition("<")[0] not in _DEFAULTS] or names
    if len(names) > detail.most:
        names[detail.most :] = ["…"]
    return f"{opened}{', '.join(names)}{_OPENED[opened]}" if names or opened == "(" else ""


def _last(name: str, detail: _Detail) -> str:
    """The last part of a type's qualified name."""
    name = name.strip()
    plain = name.rstrip("&*").strip()
    last = plain if _NUMBER.fullmatch(plain) else (_qualified(plain, detail) or [name])[-1]
    return last + (name[len(plain) :].strip() if detail.exact else "")


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
