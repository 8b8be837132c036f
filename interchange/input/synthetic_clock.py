"""Times for profiles without times.

Sums over a run have no order, and a trace needs one: call paths are laid end to end in the order of
the file, each as long as its share, so that the trace view shows only proportions. The
measurement says so (``times`` is ``synthetic``).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence

from hpcd.errors import FormatError
from hpcd.interchange.input.recording_builder import RecordingBuilder

_LONGEST_NS = 1000 * 1_000_000_000
_MAX_ENTRIES, _MAX_VALUES = 1 << 24, 1 << 26
_END_OF_VALUES = 1 << 64


class SyntheticClock:
    """Collects (line, node, values of each event), and lays them out at the end."""

    def __init__(self, builder: RecordingBuilder, width: int, primary: int = 0) -> None:
        """``width`` is the number of values; the value at ``primary`` gives the lengths."""
        self._builder = builder
        self._width = width
        self._primary = primary
        # As numbers: there may be millions.
        self._lines = array("Q")
        self._nodes = array("Q")
        self._values = array("Q")

    def add(self, line: int, node: int, values: tuple[int, ...]) -> None:
        """Add a call path of a line with a value for each event."""
        if len(self._lines) >= _MAX_ENTRIES or len(self._values) >= _MAX_VALUES:
            raise FormatError(
                f"{self._builder.source}: more than {len(self._lines):,} call paths"
                f" of {self._width} values"
            )
        if max(values) >= _END_OF_VALUES:
            raise FormatError(f"{self._builder.source}: a sample's value is out of range")
        self._lines.append(line)
        self._nodes.append(node)
        self._values.extend(values)

    def multiply(self, factor: int) -> None:
        """Multiply all values so far. Raises FormatError if they are too large."""
        if max(self._values, default=0) * factor >= _END_OF_VALUES:
            raise FormatError(f"{self._builder.source}: a sample's value is out of range")
        self._values = array("Q", (value * factor for value in self._values))

    def _lengths(self) -> Iterator[tuple[int, int, int]]:
        """Yield line, node and length of each call path."""
        values = self._values[self._primary :: self._width]
        for line, node, value in zip(self._lines, self._nodes, values, strict=True):
            yield line, node, max(value, 1)

    def finish(self, events: Sequence[int], unit_ns: float) -> None:
        """Write the records of ``events``; a value of 1 lasts ``unit_ns``, or less if the whole
        would take more than 1,000 s."""
        totals: Counter[int] = Counter()
        for line, _, length in self._lengths():
            totals[line] += length
        longest = max(totals.values(), default=1)
        total_ns = min(round(longest * unit_ns), _LONGEST_NS)
        at = dict.fromkeys(totals, 0)
        builder = self._builder
        width = self._width
        for number, (line, node, length) in enumerate(self._lengths()):
            values = self._values[number * width : (number + 1) * width]
            begin = at[line] * total_ns // longest
            at[line] += length
            end = max(at[line] * total_ns // longest - 1000, begin)
            for place, (event, value) in enumerate(zip(events, values, strict=True)):
                if not value:
                    continue
                # The trace view shows the record closest in time: one at either end.
                late = value // 2 if place == self._primary else 0
                builder.add(line, begin, node, event, value - late)
                if late:
                    builder.add(line, end, node, event, late)
