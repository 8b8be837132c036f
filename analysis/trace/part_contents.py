"""The contents of a measurement besides its records, and how a part keeps them.

Identities travel from the worker that read them to the merge; what may be big stays on the disk and
only its place travels. The tree, the sums and the symbols are of use until they are united with
those of other measurements: they are in a *companion*, a file beside the part, which is gone when
the database is whole.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.arrays.archive import archive_index, unpack_bytes
from hpcd.analysis.arrays.sparse_sums import Cells
from hpcd.analysis.trace.companion import (
    Companion,
    SymbolRow,
    companion,
    read_payloads,
    read_symbol_text,
    save_companion,
)
from hpcd.analysis.trace.part import Part, read_archive
from hpcd.analysis.trace.shared_companion import Member, open_shared
from hpcd.array_types import I64, U32
from hpcd.errors import FormatError
from hpcd.measurement.call_codec import Calls, decode_calls
from hpcd.measurement.codec import TIME_UNIT_NS
from hpcd.measurement.columns import pack_columns, unpack_columns
from hpcd.measurement.identity_columns import IdentityColumns, read_host, read_table, table_of
from hpcd.model.calls import (
    CalledFunction,
    CalledObject,
    function_row,
    object_row,
    read_function,
    read_object,
)
from hpcd.model.cct import CCT
from hpcd.model.identity import Event, Host, Module, Process, Thread
from hpcd.regular_file import read_regular


@dataclass(frozen=True, slots=True)
class PartContents:
    """A measurement's identities and the extent of its records.

    ``lines`` ``uint32[k]`` ascending are the measurement's trace lines, with or without records;
    ``counts``, ``first_ns``, ``last_ns`` ``int64[k]`` their entries in the trace and those'
    monotonic times (0 without). ``size`` is how many bytes the measurement had: one still being
    written may have more later. ``part`` is where the rest of it is.
    """

    path: Path
    part: Path
    size: int
    id: int
    host: Host
    options: dict[str, Any]
    events: dict[int, Event]
    processes: Mapping[int, Process]
    threads: Mapping[int, Thread]
    modules: dict[int, Module]
    symbols: frozenset[int]
    clock_pairs: I64
    summary: dict[str, Any] | None
    closed: bool
    damage: tuple[str, ...]
    nodes: int
    lines: U32
    counts: I64
    first_ns: I64
    last_ns: I64
    events_used: frozenset[int]
    functions: dict[int, CalledFunction] = field(default_factory=dict)
    objects: dict[int, CalledObject] = field(default_factory=dict)
    calls: int = 0
    """Recorded calls, and ``call_chunks`` entries of the archive that hold them."""
    call_chunks: int = 0
    checksums: tuple[int, ...] = ()
    """CRC-32 of each block of the part's file, if it was read while it was made."""
    united: bool = False
    """The tree, the sums and the symbols are those of a database: the part is without companion."""
    member: Member | None = None
    """Where its companion is, if it is one of others, too."""

    def by_column(self) -> PartContents:
        """Return these contents with processes and threads by column, to travel and to be kept."""
        if isinstance(self.processes, IdentityColumns):
            return self
        return replace(
            self,
            processes=IdentityColumns.of(Process, self.processes),
            threads=IdentityColumns.of(Thread, self.threads),
        )

    @property
    def records(self) -> int:
        """Entries in the trace of all lines."""
        return int(self.counts.sum())


def windows_of(measurements: Sequence[PartContents]) -> I64:
    """``int64[n, 2]``: monotonic times between which each of ``measurements`` watched."""
    number = np.arange(len(measurements))
    begin, end = np.full((2, len(measurements)), _NEVER)
    end *= -1
    clocks = [contents.clock_pairs[:, 0] for contents in measurements]
    owner, times = np.repeat(number, list(map(len, clocks))), np.concatenate([_NO_TIMES, *clocks])
    np.minimum.at(begin, owner, times)
    np.maximum.at(end, owner, times)
    owner = np.repeat(number, [len(contents.lines) for contents in measurements])
    counts, first, last = (
        np.concatenate([_NO_TIMES, *(getattr(contents, name) for contents in measurements)])
        for name in ("counts", "first_ns", "last_ns")
    )
    seen = counts > 0
    np.minimum.at(begin, owner[seen], first[seen])
    np.maximum.at(end, owner[seen], last[seen])
    windows = np.stack((begin, end), axis=1)
    windows[begin > end] = 0
    return windows


# Later than any time.
_NEVER = (1 << 63) - 1
_NO_TIMES = np.zeros(0, np.int64)


def pack_contents(
    contents: PartContents, order: U32, calls: Sequence[bytes] = (),
    texts: Mapping[str, bytes] | None = None, events_used: frozenset[int] | None = None,
) -> dict[str, bytes]:  # fmt: skip
    """Return the entries of a part's archive about a measurement, by name. ``order`` ``uint32[k]``
    are the nodes that records number from 0 on (all others follow); ``calls`` are payloads of CALLS
    chunks, whose nodes are the measurement's: for these alone the order is kept. ``texts`` has
    tables as JSON already, by name; ``events_used`` takes the place of those of ``contents``."""
    known = texts or {}
    identity: dict[str, Any] = {
        "path": contents.path.name,
        "size": contents.size,
        "id": contents.id,
        "node": asdict(contents.host),
        "options": contents.options,
        "summary": contents.summary,
        "closed": contents.closed,
        "damage": contents.damage,
        "events_used": sorted(contents.events_used if events_used is None else events_used),
        "cct_nodes": contents.nodes,
    }
    if contents.functions:
        identity |= {
            "functions": [function_row(row) for row in contents.functions.values()],
            "objects": [object_row(row) for row in contents.objects.values()],
            "calls": contents.calls,
            "call_chunks": contents.call_chunks,
        }
    for name, kind in _TABLES.items():
        if name not in known:
            identity[name] = [table_of(kind, getattr(contents, name).values())]
    text = json.dumps(identity, separators=(",", ":")).encode()
    rows = [b',"%s":%s' % (name.encode(), known[name]) for name in sorted(known)]
    archive = {
        "identity": b"".join([text[:-1], *rows, b"}"]),
        "clock": pack_columns(contents.clock_pairs.ravel()),
    }
    if calls:
        archive["order"] = pack_columns(order)
    for number, payload in enumerate(calls):
        archive[f"calls-{number}"] = payload
    return archive


def write_companion(
    part: Path, tree: CCT, order: U32, cells: Cells, modules: Collection[int],
    symbols: Sequence[bytes], *, alone: bool = False,
) -> None:  # fmt: skip
    """Write what uniting measurements needs of one besides its part. ``cells`` are by row, not by
    line, and of the nodes that ``order`` says; ``symbols`` are payloads of SYMBOLS chunks, those of
    ``modules``; ``alone`` where the part numbers no others, and all
    that have no children are among them. Raises :class:`OSError`."""
    save_companion(
        part, (tree.parent, tree.frame), order,
        (cells.line, cells.node, cells.event, cells.records, cells.value),
        sorted(modules), symbols, alone=alone,
    )  # fmt: skip


_TABLES: dict[str, type[Any]] = {
    "events": Event, "processes": Process, "threads": Thread, "modules": Module,
}  # fmt: skip


def _read_tables(kind: type[Any], tables: list[Any]) -> dict[int, Any]:
    """The rows of tables by number; later ones replace earlier ones."""
    rows: dict[int, Any] = {}
    for table in tables:
        rows.update(read_table(kind, table).items())
    return rows


def read_contents(part: Part, member: Member | None = None) -> PartContents:
    """Return the contents of the measurement that ``part`` was made of; ``member`` is its place in
    a shared companion, if it has one. Raises :class:`FormatError`."""
    archive = part.archive()
    try:
        identity = json.loads(unpack_bytes(archive["identity"]))
        (clock,) = unpack_columns(unpack_bytes(archive["clock"]), np.uint64)
        return PartContents(
            path=Path(identity["path"]),
            part=part.path,
            size=int(identity["size"]),
            id=int(identity["id"]),
            host=read_host(identity["node"]),
            options=dict(identity["options"]),
            events=_read_tables(Event, identity["events"]),
            processes=_read_tables(Process, identity["processes"]),
            threads=_read_tables(Thread, identity["threads"]),
            modules=_read_tables(Module, identity["modules"]),
            symbols=_symbols(part.path, member),
            clock_pairs=clock.view(np.int64).reshape(-1, 2),
            summary=identity["summary"],
            closed=bool(identity["closed"]),
            damage=tuple(identity["damage"]),
            nodes=int(identity["cct_nodes"]),
            lines=part.lines.source.astype(np.uint32),
            counts=part.lines.records.astype(np.int64),
            first_ns=part.lines.first * TIME_UNIT_NS,
            last_ns=part.lines.last * TIME_UNIT_NS,
            events_used=frozenset(identity["events_used"]),
            functions={row["id"]: read_function(row) for row in identity.get("functions", [])},
            objects={row["id"]: read_object(row) for row in identity.get("objects", [])},
            calls=int(identity.get("calls", 0)),
            call_chunks=int(identity.get("call_chunks", 0)),
            united=member is None and not companion(part.path).exists(),
            member=member,
        )
    except (KeyError, TypeError, ValueError, RecursionError):
        raise FormatError(f"{part.path}: damaged (identities in its archive)") from None


def _symbols(part: Path, member: Member | None) -> frozenset[int]:
    """The modules that a part's companion has symbols of."""
    if member is not None:
        return open_shared(member.path).named(member.number)
    own = Companion.of(part)
    return own.modules() if own else frozenset()


def _united(part: Path) -> Companion:
    """Return the companion of ``part``, an empty one where there is none. Raises
    :class:`FormatError`."""
    return Companion.of(part) or Companion({})


def load_tree(part: Path) -> CCT:
    """The measurement's calling context tree. Raises :class:`FormatError`."""
    try:
        tree = CCT(*_united(part).tree())
    except KeyError:
        raise FormatError(f"{part}: damaged (no calling context tree in its archive)") from None
    tree.validate(str(part))
    return tree


def load_sums(part: Path, nodes: int) -> tuple[U32, Cells]:
    """Return the sums of a part with so many ``nodes``, and before them ``uint32[k]``: the
    measurement's node of each number that the part gives one; ``line`` of sums is the row in the
    part. Raises :class:`FormatError`."""
    united = _united(part)
    first = _first_nodes(part, united)
    order = _whole(part, first, nodes)
    return order[: len(first)] if united.alone else order, _cells(part, united)


def load_order(part: Path, nodes: int) -> U32:
    """``uint32[nodes]``: the measurement's node of each number that the records of a part with
    calls have. Raises :class:`FormatError`."""
    archive = read_archive(part)
    first: U32 = np.zeros(0, np.uint32)
    if "order" in archive:
        (first,) = unpack_columns(unpack_bytes(archive["order"]), np.uint32)
    return _whole(part, first, nodes)


def _first_nodes(part: Path, united: Companion) -> U32:
    try:
        return united.order()
    except KeyError:
        raise FormatError(f"{part}: damaged (numbers of nodes in its archive)") from None


def _whole(part: Path, first: U32, nodes: int) -> U32:
    order = whole_order(first, nodes)
    if order is None:
        raise FormatError(f"{part}: damaged (numbers of nodes in its archive)")
    return order


def whole_order(first: U32, nodes: int) -> U32 | None:
    """``uint32[nodes]``: the nodes ``first``, then all others; None where that cannot be."""
    if int(first.max(initial=0)) >= nodes:
        return None
    others = np.ones(nodes, bool)
    others[first] = False
    order = np.concatenate((first, np.flatnonzero(others).astype(np.uint32)))
    return order if len(order) == nodes else None


def load_cells(part: Path) -> Cells:
    """The sums of a part: ``line`` is the row in it. Raises :class:`FormatError`."""
    return _cells(part, _united(part))


def _cells(part: Path, united: Companion) -> Cells:
    try:
        columns = united.cells()
    except KeyError:
        raise FormatError(f"{part}: damaged (no sums in its archive)") from None
    if len({len(column) for column in columns}) != 1:
        raise FormatError(f"{part}: damaged (columns of sums differ in length)")
    line, node, event, records, value = columns
    return Cells(line, node, event, records, value)


def load_calls(part: Path, chunks: int) -> Iterator[Calls]:
    """The calls of a part, a chunk at a time, sorted by line and time within it; lines, nodes,
    functions and objects are the measurement's. Raises :class:`FormatError`."""
    archive = read_archive(part)
    for number in range(chunks):
        try:
            yield decode_calls(unpack_bytes(archive[f"calls-{number}"]))
        except KeyError:
            raise FormatError(f"{part}: damaged (calls are missing in its archive)") from None


def load_symbols(place: Path, module: int) -> list[SymbolRow]:
    """The symbols (start, size, name) of ``module``: those that the measurement of the part
    ``place`` brought along, or those in the archive ``place`` of a database. Raises
    :class:`FormatError`."""
    try:
        if place.suffix == ".part":
            return _united(place).symbols()[module]
        return read_symbol_text(
            unpack_bytes(archive_index(read_regular(place))[f"symbols-{module}"])
        )
    except (KeyError, FormatError, OSError):
        raise FormatError(f"{place}: damaged (symbols of module {module})") from None


def load_several_symbols(place: Path | Member, modules: Sequence[int]) -> list[list[SymbolRow]]:
    """Return the symbols (start, size, name) of each of ``modules`` of a part, or of one whose
    companion is shared. Raises :class:`FormatError`."""
    try:
        if isinstance(place, Member):
            symbols = read_payloads(open_shared(place.path).symbols(place.number))
        else:
            symbols = _united(place).symbols()
        return [symbols[module] for module in modules]
    except (KeyError, FormatError):
        raise FormatError(f"{place}: damaged (symbols of modules)") from None
