"""Names as the source has them: C++, Rust, and what compilers append to clones of functions."""

from __future__ import annotations

import re

from hpcd.analysis.symbols import demangle as demangle_cpp

# A hash that makes Rust's symbols of two compilations differ.
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
_RUST_ESCAPES = {
    "$SP$": "@", "$BP$": "*", "$RF$": "&", "$LT$": "<", "$GT$": ">", "$LP$": "(", "$RP$": ")",
    "$C$": ",", "..": "::",
}  # fmt: skip
_RUST_ESCAPE = re.compile(r"\$(?:SP|BP|RF|LT|GT|LP|RP|C)\$|\$u[0-9a-f]{1,6}\$|\.\.")


def demangle(name: str) -> str:
    """The name as the source has it; unchanged where it is not mangled."""
    plain = demangle_cpp(name)
    if _RUST_HASH.search(plain):
        plain = _RUST_ESCAPE.sub(_unescape, _RUST_HASH.sub("", plain)).replace("::_<", "::<")
        return plain.removeprefix("_") if plain.startswith("_<") else plain
    return plain


def _unescape(match: re.Match[str]) -> str:
    text = match[0]
    if text.startswith("$u"):
        code = int(text[2:-1], 16)
        return chr(code) if code < 0x110000 else text
    return _RUST_ESCAPES[text]
