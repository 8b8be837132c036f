"""JSON that is written piece by piece, in ASCII."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TextIO

# Bytes of a column in memory: a trace line of a million records fits.
_IN_MEMORY = 8 << 20
_COPIED = 1 << 20


def as_json(value: object) -> str:
    """Return ``value`` as compact JSON in ASCII."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


@contextmanager
def json_columns(names: Sequence[str], folder: Path) -> Iterator[JsonColumns]:
    """Open columns; beyond some MB they are kept in nameless files in ``folder``."""
    with ExitStack() as stack:
        texts = []
        for _ in names:
            texts.append(stack.enter_context(SpooledTemporaryFile(_IN_MEMORY, dir=str(folder))))
        yield JsonColumns(names, texts)


class JsonColumns:
    """``"name":[...]`` for each of ``names``, made together and written in sequence.

    So a trace is read once for any number of columns. ``count`` is the number of entries of each
    column.
    """

    def __init__(self, names: Sequence[str], texts: Sequence[SpooledTemporaryFile[bytes]]) -> None:
        self.count = 0
        self._names = names
        self._texts = texts

    def add(self, *columns: str, count: int) -> None:
        """Add ``count`` entries to each column, divided by commas."""
        if count:
            for text, column in zip(self._texts, columns, strict=True):
                text.write(("," + column if self.count else column).encode("ascii"))
            self.count += count

    def write(self, file: TextIO) -> None:
        """Write the columns, each after a comma."""
        for name, text in zip(self._names, self._texts, strict=True):
            file.write(f",{as_json(name)}:[")
            file.flush()
            text.seek(0)
            shutil.copyfileobj(text, file.buffer, _COPIED)
            file.write("]")
