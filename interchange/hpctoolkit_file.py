"""What the files of an HPCToolkit database have alike: headers, footers, sections, identifiers."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

from hpcd.interchange.export_selection import ExportSelection
from hpcd.interchange.text import utf8

_MAGIC = b"HPCTOOLKIT"
_VERSION = (4, 0)
FOOTER = {"meta": b"_meta.db", "prof": b"_prof.db", "ctxt": b"__ctx.db", "trce": b"trace.db"}


def header_size(sections: int) -> int:
    """Bytes of a header."""
    return 16 + 16 * sections


def write_header(file: BinaryIO, kind: str, sections: list[tuple[int, int]]) -> None:
    """The header of a file of ``kind``, at its beginning: (size, position) of each section."""
    file.seek(0)
    file.write(_MAGIC + kind.encode() + bytes(_VERSION))
    for section in sections:
        file.write(struct.pack("<QQ", *section))


def align(file: BinaryIO, to: int = 8) -> int:
    """Fill the file up to a multiple of ``to`` bytes; the position."""
    at = file.tell()
    file.write(bytes(-at % to))
    return at + -at % to


def c_string(text: str) -> bytes:
    """``text`` with a NUL at its end and none within."""
    return utf8(text).replace("\0", "\\x00").encode() + b"\0"


class StringTable:
    """Strings that lie at ``start`` in a file, one after another."""

    def __init__(self, start: int) -> None:
        self.data = bytearray()
        self._start = start
        self._place: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """Where ``text`` is."""
        if text not in self._place:
            self._place[text] = self._start + len(self.data)
            self.data += c_string(text)
        return self._place[text]


@dataclass(frozen=True)
class MetricIds:
    """The metrics' names as HPCToolkit has them, and ``rows``, their places in the selection.

    Number ``n`` is inclusive ``2 n`` in profiles of threads and exclusive ``2 n + 1``; in the
    summary ``2 · metrics`` is added.
    """

    names: list[str]
    rows: list[int]


def metric_ids(selection: ExportSelection) -> MetricIds:
    """The metrics of ``selection``: CPU time first, by the name that HPCToolkit has for it, and
    samples last, which every context has."""
    rows = sorted(
        range(len(selection.names)),
        key=lambda row: (selection.names[row] == "samples", selection.names[row] != "cpu_time"),
    )
    names = []
    for row in rows:
        name, unit = selection.names[row], selection.units[row]
        name = "CPUTIME" if name == "cpu_time" else name
        unit = "sec" if unit == "s" else unit
        names.append(f"{name} ({unit})" if unit else name)
    return MetricIds(names, rows)
