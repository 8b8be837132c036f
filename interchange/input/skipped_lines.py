"""Lines of a text that are not understood: counted, and said where they are many."""

from __future__ import annotations

from hpcd.errors import FormatError
from hpcd.interchange.input.recording_builder import RecordingBuilder

LABEL = "lines not understood"
# Of a short text some lines are many.
_ALWAYS = 10
_NOTED_SHARE = 0.01


class SkippedLines:
    """Counts unknown lines: each is ``kind``, such as "no sample of Austin".

    Up to the share ``most`` they are samples that ``builder`` has dropped, above 1 % with a note.
    """

    def __init__(self, builder: RecordingBuilder, kind: str, most: float) -> None:
        self._builder = builder
        self._kind = kind
        self._most = most
        self._first = 0
        self.count = 0
        """Number of them so far."""

    def add(self, number: int) -> None:
        """Count line ``number``, from 1 on. Raises FormatError when there are too many so far."""
        self._first = self._first or number
        self.count += 1
        if self.count > _ALWAYS + self._most * number:
            raise FormatError(f"{self._builder.source}: line {self._first} is {self._kind}")

    def finish(self, lines: int) -> None:
        """Say how many there were in a text of ``lines`` lines."""
        if not self.count:
            return
        self._builder.dropped[LABEL] += self.count
        if self.count > _NOTED_SHARE * lines:
            self._builder.notes.append(
                f"{self.count:,} of {lines:,} lines are not understood, the first is line"
                f" {self._first:,}"
            )
