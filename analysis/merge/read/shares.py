"""A large measurement read by several workers: each reads a share, and all make one part.

A share is the records of some consecutive chunks. Its blocks, entries of overviews and sums go into
files next to the parts; joining the shares of a measurement
copies the blocks and adds up the rest. The number of shares depends on the measurement's
size only, so that the database does not depend on how many workers there are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.arrays.named_arrays import Arrays, json_bytes, load_arrays, save_arrays
from hpcd.analysis.arrays.sparse_sums import Cells
from hpcd.analysis.merge.read.part_output import PartOutput
from hpcd.analysis.trace.overview import OverviewEntries
from hpcd.analysis.trace.part_format import BLOCK
from hpcd.analysis.trace.part_writer import PartWriter
from hpcd.analysis.trace.short_waits import ShortWaits
from hpcd.array_types import I64, U32

# Approximate stored bytes of a share: opening the measurement and scanning its nodes takes some
# hundredths of the time of reading that many.
_SHARE_BYTES = 16 << 20
_SUMS = ("line", "node", "event", "records", "value")
_COUNTS = ("counts", "first", "last")


@dataclass(frozen=True, slots=True)
class Share:
    """Share ``number`` of ``count`` of a measurement that had ``size`` bytes."""

    number: int
    count: int
    size: int

    @property
    def begin(self) -> int:
        """The byte of the measurement's segments at which the share begins."""
        return self.size * self.number // self.count

    @property
    def end(self) -> int:
        """The byte of the measurement's segments at which the next share begins."""
        return self.size * (self.number + 1) // self.count

    @property
    def bytes(self) -> int:
        """The size of the share in bytes."""
        return self.end - self.begin


def divide(size: int) -> list[Share]:
    """The shares of a measurement of ``size`` bytes; none where it is better read as a whole."""
    count = round(size / _SHARE_BYTES)
    return [Share(number, count, size) for number in range(count)] if count > 1 else []


@dataclass(frozen=True, slots=True)
class ReadShare:
    """The files of a share that was read: ``stem`` with ``.blocks``, ``.entries``, ``.tables``."""

    stem: Path

    def files(self) -> list[Path]:
        """Return the paths of all files of the share."""
        return [self.blocks, self.entries, self.tables]

    @property
    def blocks(self) -> Path:
        """The file of blocks that a :class:`PartWriter` wrote."""
        return self.stem.with_suffix(".blocks")

    @property
    def entries(self) -> Path:
        """The entries of overviews."""
        return self.stem.with_suffix(".entries")

    @property
    def tables(self) -> Path:
        """All else. It is there when the share is whole."""
        return self.stem.with_suffix(".tables")

    def remove(self) -> None:
        """Remove the files."""
        for path in self.files():
            path.unlink(missing_ok=True)

    def save(
        self, source: I64, output: PartOutput, part: PartWriter, damage: Sequence[str]
    ) -> None:
        """Write the tables of ``output`` for the lines ``source``, whose blocks are in
        ``part``. Raises :class:`StorageError`."""
        table, offset, content = part.blocks()
        overviews = output.overview.finish()
        cells = output.sums.result()
        columns: dict[str, Any] = {
            "source": source, "order": output.order, "table": table.view(np.uint8),
            "offset": offset, "content": content,
            "unsorted": np.array(sorted(output.unsorted), np.int64),
            "damage": json_bytes(damage),
        }  # fmt: skip
        columns |= {name: getattr(output, name) for name in _COUNTS}
        columns |= {f"sum_{name}": getattr(cells, name) for name in _SUMS}
        short = ShortWaits.joined(output.short_waits)
        columns |= {f"short_{name}": column for name, column in short._asdict().items()}
        columns |= {
            f"overview_{name}": getattr(overviews, name)
            for name in OverviewEntries.__slots__
            if name != "entries"
        }
        columns["kind"] = overviews.entries[:0]
        unfinished = self.stem.with_suffix(".unfinished")
        save_arrays(unfinished, columns)
        unfinished.rename(self.tables)

    def load(self) -> LoadedShare:
        """Read the tables that :meth:`save` wrote. Raises :class:`FormatError`."""
        return LoadedShare(self, load_arrays(self.tables))


class LoadedShare:
    """A share that was read, and the rows that its lines have in the part."""

    def __init__(self, files: ReadShare, columns: Arrays) -> None:
        self._files = files
        self._columns = columns
        self.source: I64 = columns["source"]
        self.order: U32 = columns["order"]
        self.damage: list[str] = json.loads(columns["damage"].tobytes())
        self.unsorted: list[int] = self.source[columns["unsorted"]].tolist()
        """Lines whose records are not in order."""

    def add_to(self, output: PartOutput, part: PartWriter, source: I64) -> OverviewEntries:
        """Append blocks, sums and counts to the part with the lines ``source``; return the
        entries of overviews by the part's rows."""
        rows = np.searchsorted(source, self.source)
        columns = self._columns
        table = columns["table"].view(BLOCK).copy()
        table["line"] = rows[table["line"]]
        part.append(self._files.blocks, table, columns["offset"], columns["content"])
        cells = Cells(*(columns[f"sum_{name}"] for name in _SUMS))
        output.sums.add_sums(
            Cells(rows[cells.line].astype(np.uint32), cells.node, cells.event, cells.records,
                  cells.value)
        )  # fmt: skip
        short = ShortWaits(*(columns[f"short_{name}"] for name in ShortWaits._fields))
        output.short_waits.append(short._replace(line=rows[short.line]))
        output.go_on(rows, *(columns[name] for name in _COUNTS))
        output.unsorted.update(np.searchsorted(source, self.unsorted).tolist())
        kind = columns["kind"].dtype
        entries: Any = np.zeros(0, kind)
        if self._files.entries.stat().st_size:
            entries = np.asarray(np.memmap(self._files.entries, kind, "r"))
        overview_columns = {
            name: entries if name == "entries" else columns[f"overview_{name}"]
            for name in OverviewEntries.__slots__
        }
        return OverviewEntries(**overview_columns).of_rows(rows, len(source))


def lines_of(shares: Iterable[LoadedShare]) -> set[int]:
    """The lines that any of ``shares`` has."""
    return {line for share in shares for line in share.source.tolist()}
