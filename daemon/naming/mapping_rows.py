"""Mappings of load modules as the walker reads them."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from hpcd.bpf.table_memory import ModuleTables
from hpcd.bpf.wire import MAPPING_FRAME_POINTER
from hpcd.daemon.unwind.packed_table import PackedTable
from hpcd.model.identity import Module, ModuleKind
from hpcd.model.region import Region

PAGE = 4096
# Programs map a file in one way, or two.
_MAX_KNOWN_ROWS = 16


@dataclass
class KnownModule:
    """A module and the state of its unwind table."""

    module: Module
    table: PackedTable | None = None
    placed: ModuleTables | None = None
    failure: str = ""
    undecodable: bool = False
    """It is an ELF file without a table; files of other kinds hold a compiler's code."""
    user: int = 0
    """The user whose process mapped it first."""
    contents: tuple[int, ...] = ()
    """Identity of its file's contents when it was mapped first."""
    wanted: bool = False
    """A call path has waited for its table."""
    future: Future[PackedTable] | None = field(default=None, repr=False)
    rows: dict[tuple[int, int], list[tuple[int, ...]]] = field(default_factory=dict, repr=False)
    """Rows of mappings by file offset and length, as if they began at address 0."""


def mapping_rows(region: Region, entry: KnownModule) -> list[tuple[int, ...]]:
    """Return the :data:`hpcd.bpf.table_memory.MAPPING` rows of ``region``, clipped to what the
    module's table covers."""
    pages = (region.end - region.start) // PAGE
    module = entry.module
    if module.kind is ModuleKind.JIT:
        return [(region.start, module.base, pages, 0, 0, module.id | MAPPING_FRAME_POINTER)]
    if entry.failure:
        # A compiler's code has frame pointers if anything.
        chained = 0 if entry.undecodable else MAPPING_FRAME_POINTER
        return [(region.start, region.start - region.offset, pages, 0, 0, module.id | chained)]
    if entry.table is None or entry.placed is None:
        return [(region.start, region.start, pages, 0, 0, 0)]
    length = region.end - region.start
    known = entry.rows.get((region.offset, length))
    if known is None:
        known = _rows_from(entry, entry.table, entry.placed, region.offset, length)
        if len(entry.rows) < _MAX_KNOWN_ROWS:
            entry.rows[region.offset, length] = known
    begin = region.start
    return [
        (begin + start, begin + bias & 0xFFFFFFFFFFFFFFFF, *rest) for start, bias, *rest in known
    ]


def _rows_from(
    entry: KnownModule, table: PackedTable, placed: ModuleTables, offset: int, length: int
) -> list[tuple[int, ...]]:
    rows: list[tuple[int, ...]] = []
    for segment in table.segments:
        # The kernel maps whole pages, so a segment's mapping begins on the page it begins in.
        file_start = segment.offset & ~(PAGE - 1)
        file_end = (segment.offset + segment.filesz + PAGE - 1) & ~(PAGE - 1)
        low = max(offset, file_start)
        high = min(offset + length, file_end)
        if not segment.executable or low >= high:
            continue
        rows.append(
            (
                low - offset,
                segment.offset - segment.vaddr - offset,
                (high - low) // PAGE,
                table.base >> 12,
                placed.directory,
                entry.module.id,
            )
        )
    return rows
