"""Frames as ``perf script`` prints them: address, symbol and offset, load module in brackets.

Any of them can be missing (``-F``), and symbols and paths have spaces and brackets of their own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_KERNEL_ADDRESS = 1 << 63
# perf pads addresses to the width of 64 bits.
_WIDTH = 16
_MOST_COLUMNS = 8
_ADDRESS = re.compile(rb"([\t ]*)([0-9a-fA-F]{1,16})(?:\s+(.*))?$", re.DOTALL)
_OFFSET = re.compile(rb"\+0x[0-9a-f]+$")
_INLINED = b" (inlined)"
_UNKNOWN = b"[unknown]"
_LONGEST_FIELDS = 1 << 12
# Behind an offset, or where there is no symbol, nothing but the module follows.
_BEHIND_OFFSET = re.compile(rb"(.*?\+0x[0-9a-f]+|\[unknown\]) \((.*)\)$", re.DOTALL)
# No symbol has a bracket before a path or a name that perf invented.
_PATH = re.compile(rb"(?:(.*?) )?\(([/\[].*)\)$", re.DOTALL)
_BEHIND_FIELDS = re.compile(
    rb".*\s([0-9a-f]{6,16} (?:\S.*?\+0x[0-9a-f]+|\[unknown\]) \(.*\))", re.DOTALL
)
_JIT = re.compile(rb"(?:.*/)?perf-\d+\.map$|\[JIT\] tid \d+")
_KERNEL = re.compile(rb"\[kernel[.\]]|(?:.*/)?(?:vmlinu[xz](?:[-.].*)?|kallsyms|kcore)$")
_KERNEL_PART = re.compile(rb"\[guest\.kernel\.|.*\.ko(?:\.\w{2,4})?$")


class PerfFrame(NamedTuple):
    """A frame. ``address`` is None, ``symbol`` and ``module`` are empty if unknown."""

    address: int | None
    symbol: bytes
    module: bytes
    kernel: bool


def parse_frame(line: bytes) -> PerfFrame | None:
    """Return the frame in an indented line; None if there is no text in it."""
    match = _ADDRESS.match(line)
    if match:
        indent, digits, text = match[1], match[2], match[3] or b""
        # Some names of functions are hexadecimal numbers.
        padded = len(indent) - indent.startswith((b"\t", b" ")) + len(digits) >= _WIDTH
        if padded or (text and _opening_bracket(text) != 0):
            return _frame(int(digits, 16), text)
    text = line.strip()
    return _frame(None, text) if text else None


def parse_last_column(text: bytes) -> PerfFrame | None:
    """Return the frame at the end of a one-line sample, None without a frame; ``text`` is the part
    after the event."""
    for _ in range(_MOST_COLUMNS):
        # Other columns may precede the frame, such as the address of data (-F +addr).
        column = _column(text)
        if not column or not _column(text[column : column + 2 * _WIDTH]):
            break
        text = text[column:]
    match = _ADDRESS.match(text)
    if match and match[3] and (_column(text) or match[3].rstrip().endswith(b")")):
        return parse_frame(text)
    behind = _BEHIND_FIELDS.match(text) if len(text) < _LONGEST_FIELDS else None
    return parse_frame(behind[1]) if behind else None


def _column(text: bytes) -> int:
    """Return the width of the padded number that ``text`` begins with, else 0."""
    match = re.match(rb" ?( *[0-9a-f]{1,16})(?= |$)", text)
    return match.end() if match and match.end() >= _WIDTH else 0


def _frame(address: int | None, text: bytes) -> PerfFrame:
    symbol, module = _split(text.rstrip())
    symbol = _OFFSET.sub(b"", symbol)
    if symbol == _UNKNOWN:
        symbol = b""
    if module == _UNKNOWN:
        module = b""
    kernel = (address or 0) >= _KERNEL_ADDRESS or bool(_KERNEL_PART.match(module))
    if _KERNEL.match(module):
        kernel, module = True, b"kernel"
    elif _JIT.match(module):
        module = b"[jit]"
    return PerfFrame(address, symbol, module, kernel)


def _split(text: bytes) -> tuple[bytes, bytes]:
    """Return symbol and module."""
    if text.endswith(_INLINED):
        return text[: -len(_INLINED)], b"[inlined]"
    # Registers can be behind it (-F +iregs). Patterns that end where the text does take no more
    # time than it is long.
    closed = text[: text.rfind(b")") + 1]
    match = _BEHIND_OFFSET.match(closed) or _PATH.match(closed)
    if match:
        return match[1] or b"", match[2]
    at = _opening_bracket(text)
    # Without a space before it, these are a function's parameters.
    if at == 0 or text[at - 1 : at] == b" ":
        return text[:at].rstrip(), text[at + 1 : -1]
    return text, b""


def _opening_bracket(text: bytes) -> int:
    """Return where the bracket opens that ``text`` ends with; -1 if it ends with none."""
    depth = 0
    if not text.endswith(b")"):
        return -1
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] == ord(")")) - (text[at] == ord("("))
        if not depth:
            return at
    return -1
