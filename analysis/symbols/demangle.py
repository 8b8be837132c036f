"""Source names of C++, Rust and Fortran symbols; C and Go do not mangle names.

A name of C++ refers to its own parts, so that 250 characters can mean gigabytes, or hours without a
result. :func:`demangle` is for confined processes, and for names that :func:`is_bounded` accepts;
other callers use :func:`~hpcd.analysis.symbols.confined_demangling.demangle_all`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import cxxfilt

# Nothing a compiler emits for real code is longer.
_MAX_MANGLED = 4096
_MAX_PLAIN, _MAX_MADE = 1 << 16, 1 << 18
# Of 244,000 symbols of LLVM, Clang, LAMMPS, SciPy and libstdc++ the plain name has at most 31 times
# the characters of the mangled one. The bound keeps a small file from becoming a large database.
_MAX_GROWTH = 64
# References to earlier parts of a name, and to arguments of its templates: S_, S1_, St3_, T_, T0_.
_REFERENCE = re.compile(r"[ST][0-9A-Z]*_")
# Characters, and steps, that a name may cost this process; 93 of 100 symbols are within it.
_MAX_WORK = 1 << 18
_MAX_DEPTH = 200

# A hash that makes the symbols of two compilations differ.
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
_RUST_ESCAPE = re.compile(r"\$(SP|BP|RF|LT|GT|LP|RP|C)\$|\$u([0-9a-f]{1,6})\$|\.\.")
_RUST_ESCAPES = {
    "SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ",",
}  # fmt: skip
# Suffix of link-time optimisation.
_LLVM = re.compile(r"\.llvm\.[0-9A-F]+$")
_FORTRAN = re.compile(r"__(\w+?)_MOD_(\w+)(.*)", re.DOTALL)
# Suffix of PLT stubs, and of Go functions of the stack-based calling convention.
_STUB, _GO_CONVENTION = "@plt", ".abi0"


def is_bounded(name: str) -> bool:
    """Return whether the work of demangling ``name`` is known to be small, without doing it.

    A reference at most doubles the text of a name: it repeats earlier text.
    """
    if not name.startswith("_Z") or len(name) > _MAX_MANGLED:
        return True
    references = len(_REFERENCE.findall(name))
    return len(name) << min(references, _MAX_WORK.bit_length()) <= _MAX_WORK


def demangle(name: str) -> str:
    """The name as the source has it; unchanged where it is not mangled or means too much text.

    Raises :class:`MemoryError` where the process's memory ends first.
    """
    if len(name) > _MAX_MANGLED or not name.startswith("_"):
        return name.removesuffix(_GO_CONVENTION)
    if name.endswith(_STUB) and name.count("@") == 1:
        return demangle(name.removesuffix(_STUB)) + _STUB
    if name.startswith("_R"):
        return _rust(name)
    if name.startswith("__") and (match := _FORTRAN.fullmatch(name)):
        return f"{match[1]}::{match[2]}{match[3]}"
    if not name.startswith("_Z"):
        return name
    try:
        plain = str(cxxfilt.demangle(_LLVM.sub("", name)))
    except (cxxfilt.InvalidName, UnicodeError):
        return name
    except cxxfilt.InternalError:
        # cxxfilt raises it only when malloc failed.
        raise MemoryError from None
    if len(plain) > min(_MAX_PLAIN, _MAX_GROWTH * len(name)):
        return name
    return _old_rust(plain) if _RUST_HASH.search(plain) else plain


def _old_rust(plain: str) -> str:
    """Rust's first scheme: C++'s, with escapes and a hash."""
    parts = _RUST_HASH.sub("", plain).split("::")
    # An escape at its beginning is kept from being a digit's by an underscore.
    parts = [part[1:] if part.startswith("_$") else part for part in parts]
    return _RUST_ESCAPE.sub(_unescape, "::".join(parts))


def _unescape(match: re.Match[str]) -> str:
    if match[1]:
        return _RUST_ESCAPES[match[1]]
    if match[2]:
        code = int(match[2], 16)
        return chr(code) if code < 0x110000 else match[0]
    return "::"


def _rust(name: str) -> str:
    """Rust's second scheme. (RFC 2603; lifetimes, hashes of crates and suffixes are left out.)"""
    body = name[2:].split(".", 1)[0]
    if not body or not body.isascii():
        return name
    try:
        return _RustName(body).path(in_value=True)
    except (ValueError, LookupError, OverflowError, RecursionError):
        return name


_RUST_TYPES = {
    "a": "i8", "b": "bool", "c": "char", "d": "f64", "e": "str", "f": "f32", "h": "u8",
    "i": "isize", "j": "usize", "l": "i32", "m": "u32", "n": "i128", "o": "u128", "p": "_",
    "s": "i16", "t": "u16", "u": "()", "v": "...", "x": "i64", "y": "u64", "z": "!",
}  # fmt: skip
_DIGITS = {digit: value for value, digit in enumerate(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")}  # fmt: skip


class _RustName:
    """A recursive descent through a mangled name. Raises :class:`ValueError` and the like."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._made = 0

    def path(self, in_value: bool = False) -> str:
        self._enter()
        kind = self._take()
        if kind == "C":
            plain = self._identifier()[0]
        elif kind == "M":
            self._disambiguator()
            self.path()
            plain = f"<{self._type()}>"
        elif kind == "X":
            self._disambiguator()
            self.path()
            plain = f"<{self._type()} as {self.path()}>"
        elif kind == "Y":
            plain = f"<{self._type()} as {self.path()}>"
        elif kind == "N":
            space = self._take()
            outer = self.path(in_value)
            inner, number = self._identifier()
            if space.isupper():
                label = {"C": "closure", "S": "shim"}.get(space, space)
                inner = f"{{{label}{':' if inner else ''}{inner}#{number}}}"
            plain = f"{outer}::{inner}" if inner else outer
        elif kind == "I":
            outer = self.path(in_value)
            arguments = [argument for argument in self._until_end(self._argument) if argument]
            shown = f"<{', '.join(arguments)}>" if arguments else ""
            plain = f"{outer}::{shown}" if in_value and shown else f"{outer}{shown}"
        elif kind == "B":
            plain = self._again(lambda: self.path(in_value))
        else:
            raise ValueError(kind)
        return self._leave(plain)

    def _type(self) -> str:
        self._enter()
        kind = self._take()
        if kind in _RUST_TYPES:
            plain = _RUST_TYPES[kind]
        elif kind == "A":
            plain = f"[{self._type()}; {self._constant()}]"
        elif kind == "S":
            plain = f"[{self._type()}]"
        elif kind == "T":
            parts = self._until_end(self._type)
            plain = f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        elif kind in "RQ":
            if self._peek() == "L":
                self._argument()
            plain = f"&{'mut ' if kind == 'Q' else ''}{self._type()}"
        elif kind in "PO":
            plain = f"*{'const' if kind == 'P' else 'mut'} {self._type()}"
        elif kind == "F":
            plain = self._function()
        elif kind == "D":
            self._binder()
            plain = f"dyn {' + '.join(self._until_end(self._bound))}"
            self._argument()
        elif kind == "B":
            plain = self._again(self._type)
        else:
            self._at -= 1
            plain = self.path()
        return self._leave(plain)

    def _function(self) -> str:
        self._binder()
        before = ""
        if self._peek() == "U":
            self._take()
            before = "unsafe "
        if self._peek() == "K":
            self._take()
            abi = "C"
            if self._peek() == "C":
                self._take()
            else:
                abi = self._identifier()[0].replace("_", "-")
            before += f'extern "{abi}" '
        parts = self._until_end(self._type)
        result = self._type()
        return f"{before}fn({', '.join(parts)}){'' if result == '()' else f' -> {result}'}"

    def _bound(self) -> str:
        plain = self.path()
        bindings = []
        while self._peek() == "p":
            self._take()
            name = self._identifier()[0]
            bindings.append(f"{name} = {self._type()}")
        if not bindings:
            return plain
        inside = ", ".join(bindings)
        return f"{plain[:-1]}, {inside}>" if plain.endswith(">") else f"{plain}<{inside}>"

    def _argument(self) -> str:
        if self._peek() == "L":
            self._take()
            self._number()
            return ""
        if self._peek() == "K":
            self._take()
            return self._constant()
        return self._type()

    def _constant(self) -> str:
        self._enter()
        kind = self._take()
        if kind == "p":
            return self._leave("_")
        if kind == "B":
            return self._leave(self._again(self._constant))
        if kind not in _RUST_TYPES:
            raise ValueError(kind)
        sign = ""
        if self._peek() == "n":
            self._take()
            sign = "-"
        end = self._text.index("_", self._at)
        value = int(self._text[self._at : end] or "0", 16)
        self._at = end + 1
        if kind == "b":
            return self._leave(str(bool(value)).lower())
        if kind == "c":
            return self._leave(repr(chr(value)) if value < 0x110000 else "_")
        return self._leave(f"{sign}{value}")

    def _identifier(self) -> tuple[str, int]:
        number = self._disambiguator()
        encoded = self._peek() == "u"
        if encoded:
            self._take()
        begin = self._at
        # A leading zero is the whole number: the identifier is empty.
        while self._peek().isdigit():
            self._at += 1
            if self._text[begin] == "0":
                break
        size = int(self._text[begin : self._at])
        if self._peek() == "_":
            self._take()
        name = self._text[self._at : self._at + size]
        if len(name) != size:
            raise ValueError("identifier is cut off")
        self._at += size
        if encoded:
            basic, _, rest = name.rpartition("_")
            name = f"{basic}-{rest}".encode().decode("punycode")
        return name, number

    def _disambiguator(self) -> int:
        if self._peek() != "s":
            return 0
        self._take()
        return self._number() + 1

    def _binder(self) -> None:
        if self._peek() == "G":
            self._take()
            self._number()

    def _number(self) -> int:
        if self._peek() == "_":
            self._take()
            return 0
        value = 0
        while (digit := self._take()) != "_":
            value = value * 62 + _DIGITS[digit]
        return value + 1

    def _again(self, read: Callable[[], str]) -> str:
        """Read the text at an earlier place again."""
        here = self._at - 1
        place = self._number()
        if place >= here:
            raise ValueError("reference forward")
        back, self._at = self._at, place
        plain = read()
        self._at = back
        return plain

    def _until_end(self, read: Callable[[], str]) -> list[str]:
        parts = []
        while self._peek() != "E":
            parts.append(read())
        self._take()
        return parts

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._text[self._at]
        self._at += 1
        return character

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")

    def _leave(self, plain: str) -> str:
        self._depth -= 1
        # References make names of names: endless growth is given up.
        self._made += len(plain) + 1
        if self._made > _MAX_MADE or len(plain) > _MAX_PLAIN:
            raise ValueError("too long")
        return plain
