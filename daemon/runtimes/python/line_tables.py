"""Lines of instructions: the tables of CPython's code objects.

A table says where lines begin and end, in units from the function's first instruction: two bytes,
in 3.9 one byte, as its frames count. What a damaged table says is wrong, but never raises.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field

# Numbers in a location table have 6 bits a byte; lines are ints.
_MOST_SHIFT = 30
_MOST_LINE = (1 << 31) - 1


@dataclass(slots=True)
class LineTable:
    """``ends``: where each stretch ends (units, ascending); ``lines``: its line. Instructions
    without a line have that of the stretch before."""

    first_line: int
    ends: array[int] = field(default_factory=lambda: array("q"))
    lines: array[int] = field(default_factory=lambda: array("q"))

    def line(self, unit: int) -> int:
        """Return the line of the instruction ``unit``."""
        at = bisect_right(self.ends, unit)
        return self.lines[at] if at < len(self.lines) else self.first_line


def read_line_table(version: tuple[int, int], data: bytes, first_line: int) -> LineTable:
    """Decode the table ``data`` of a code object of this version: O(its bytes)."""
    if version < (3, 10):
        return _line_numbers(data, first_line)
    if version < (3, 11):
        return _line_changes(data, first_line)
    return _locations(data, first_line)


def _line_numbers(data: bytes, first_line: int) -> LineTable:
    """co_lnotab of 3.9: pairs of bytes, the length of code and the signed change of the line that
    follows it."""
    table, line, end = LineTable(first_line), first_line, 0
    for length, change in zip(data[::2], data[1::2], strict=False):
        end += length
        table.ends.append(end)
        table.lines.append(line)
        line = _line(line + (change - 256 if change >= 128 else change))
    table.ends.append(_MOST_LINE)
    table.lines.append(line)
    return table


def _line_changes(data: bytes, first_line: int) -> LineTable:
    """co_linetable of 3.10: pairs of bytes, the length in bytes of code and the signed change of
    the line; -128 is no line, which leaves the running one."""
    table, line, end = LineTable(first_line), first_line, 0
    for length, change in zip(data[::2], data[1::2], strict=False):
        if change != 128:
            line = _line(line + (change - 256 if change > 128 else change))
        end += length // 2
        table.ends.append(end)
        table.lines.append(line)
    return table


def _locations(data: bytes, first_line: int) -> LineTable:
    """co_linetable since 3.11 (Objects/locations.md): entries whose first byte, the only one with
    its highest bit set, has a form and a length; forms 13 and 14 have a signed number, 10 to 12
    are changes by 0 to 2, 15 has no line."""
    table, line, end, position = LineTable(first_line), first_line, 0, 0
    while position < len(data):
        form, length = data[position] >> 3 & 15, (data[position] & 7) + 1
        position += 1
        change = form - 10 if 10 <= form <= 12 else 0
        if form in (13, 14):
            change = _signed_number(data, position)
        line = _line(line + change)
        end += length
        table.ends.append(end)
        table.lines.append(line)
        while position < len(data) and not data[position] & 0x80:
            position += 1
    return table


def _signed_number(data: bytes, position: int) -> int:
    value = shift = 0
    while position < len(data) and shift <= _MOST_SHIFT:
        value |= (data[position] & 0x3F) << shift
        if not data[position] & 0x40:
            break
        shift += 6
        position += 1
    return -(value >> 1) if value & 1 else value >> 1


def _line(line: int) -> int:
    return min(max(line, 0), _MOST_LINE)
