"""Symbols that measurements brought along, united by load module: a database has one table each.

Ranks of one program have the same names; a table for each of thousands took as many bytes as
their trees.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcd.analysis.arrays.column_files import storage_error
from hpcd.analysis.arrays.named_arrays import NamedArrays, pack_archive
from hpcd.analysis.merge.unite.canonical_modules import CanonicalModule
from hpcd.analysis.merge.unite.scratch import Scratch
from hpcd.analysis.symbols.symbol_rows import (
    PREFIX,
    pack_rows,
    read_payloads,
    read_rows,
)
from hpcd.array_types import U32, Array
from hpcd.errors import FormatError
from hpcd.measurement.recorded_symbols import SymbolRow
from hpcd.measurement.zstd_contexts import unpack_frame
from hpcd.model.identity import SOURCE_KINDS, ModuleKind

_OWNERS = "measurements"
# Kinds of modules with only the names that a measurement has met: all measurements' names are
# united. For other kinds one measurement's table is complete.
_BY_NAME = (ModuleKind.NAMED, ModuleKind.NAMED_KERNEL, *SOURCE_KINDS)


@dataclass(frozen=True, slots=True)
class WantedSymbols:
    """Symbols of module ``source`` of a part, for ``module`` of the database; ``together`` with
    other measurements' symbols of it."""

    source: int
    module: int
    together: bool


@dataclass(frozen=True, slots=True)
class SymbolUnion:
    """Tables that tasks left in ``files``, and tables of the database ``earlier`` for the modules
    ``modules`` (its number to the new one's), to be united in ``out``.

    ``owners`` are the measurements that provide the tables of other modules.
    """

    files: tuple[Path, ...]
    earlier: Path | None
    modules: Mapping[int, int]
    together: frozenset[int]
    owners: Mapping[int, int]
    out: Path


def choose(
    modules: Sequence[CanonicalModule], maps: Sequence[U32], symbols: Sequence[frozenset[int]],
    ids: Sequence[int], earlier: Mapping[int, int],
) -> tuple[list[tuple[WantedSymbols, ...]], dict[int, int]]:  # fmt: skip
    """Return the symbols to unite of each measurement, and by module the id of the measurement that
    provides its table, unless the table is united.

    ``maps`` are the measurements' modules in numbers of ``modules``, ``symbols`` the modules that
    each measurement has symbols of, ``ids`` their ids; ``earlier`` has by module the number of the
    measurement whose table a database has already.
    """
    wanted: list[list[WantedSymbols]] = [[] for _ in ids]
    owners: dict[int, int] = {}
    sources: dict[int, list[tuple[int, int]]] = {}
    for number, (table, named) in enumerate(zip(maps, symbols, strict=True)):
        known = table.tolist()
        for id in sorted(named):
            if 0 < id < len(known):
                sources.setdefault(known[id], []).append((number, id))
    for module in modules:
        module_sources = sources.get(module.id, [])
        if module.kind in _BY_NAME:
            for number, id in module_sources:
                wanted[number].append(WantedSymbols(id, module.id, True))
            continue
        kept = earlier.get(module.id)
        if module_sources and (kept is None or module_sources[0][0] <= kept):
            number, id = module_sources[0]
            wanted[number].append(WantedSymbols(id, module.id, False))
            owners[module.id] = ids[number]
        elif kept is not None:
            owners[module.id] = ids[kept]
    return [tuple(measurement_wants) for measurement_wants in wanted], owners


def gather(parts: Sequence[tuple[Scratch, Sequence[Sequence[WantedSymbols]]]], out: Path) -> None:
    """Leave the symbols that are wanted of each measurement of ``parts`` in ``out``. Raises
    :class:`FormatError`, :class:`StorageError`."""
    united: dict[int, set[SymbolRow]] = {}
    tables: dict[int, list[SymbolRow]] = {}
    for scratch, wanted in parts:
        if not any(wanted):
            continue
        # Measurements of one job have the same symbols.
        known: dict[tuple[bytes, ...], dict[int, list[SymbolRow]]] = {}
        for payloads, some in zip(scratch.symbols(), wanted, strict=True):
            if some and tuple(payloads) not in known:
                known[tuple(payloads)] = read_payloads(payloads)
            for want in some:
                rows = known[tuple(payloads)].get(want.source, [])
                if want.together:
                    united.setdefault(want.module, set()).update(rows)
                else:
                    tables[want.module] = rows
    tables |= {module: sorted(rows) for module, rows in united.items()}
    _write(out, {f"{PREFIX}{module}": pack_rows(tables[module]) for module in sorted(tables)
                 if tables[module]})  # fmt: skip


def unite_symbols(union: SymbolUnion) -> None:
    """Write the symbols of a database. Raises :class:`FormatError`, :class:`StorageError`."""
    united: dict[int, set[SymbolRow]] = {}
    tables: dict[int, bytes] = {}
    for file in union.files:
        for name, frame in NamedArrays(file.read_bytes()).items():
            module, text = int(name.removeprefix(PREFIX)), unpack_frame(frame.data)
            if module in union.together:
                united.setdefault(module, set()).update(read_rows(text))
            else:
                tables[module] = text
    if union.earlier is not None:
        frames, _ = _read(union.earlier)
        for old, module in union.modules.items():
            if module in union.together and old in frames:
                united.setdefault(module, set()).update(read_rows(unpack_frame(frames[old].data)))
            elif old in frames and module not in tables:
                tables[module] = unpack_frame(frames[old].data)
    tables |= {module: pack_rows(sorted(rows)) for module, rows in united.items()}
    owners = {str(module): f"{union.owners[module]:x}" for module in sorted(tables)
              if module in union.owners}  # fmt: skip
    entries = {f"{PREFIX}{module}": tables[module] for module in sorted(tables)}
    _write(union.out, {_OWNERS: json.dumps(owners).encode(), **entries})


def united_modules(modules: Sequence[CanonicalModule]) -> frozenset[int]:
    """Return the modules whose tables are united."""
    return frozenset(module.id for module in modules if module.kind in _BY_NAME)


def table_of(store: Path) -> tuple[dict[int, int], frozenset[int]]:
    """Return by module the measurement that provides its table of symbols in a database, unless the
    table is united; and the modules that have symbols. Raises :class:`FormatError`."""
    frames, owners = _read(store)
    return owners, frozenset(frames)


def _read(store: Path) -> tuple[dict[int, Array], dict[int, int]]:
    try:
        entries = dict(NamedArrays(store.read_bytes(), store))
        owners = json.loads(unpack_frame(entries.pop(_OWNERS).data))
        return (
            {int(name.removeprefix(PREFIX)): frame for name, frame in entries.items()},
            {int(module): int(uid, 16) for module, uid in owners.items()},
        )
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RecursionError):
        raise FormatError(f"{store}: damaged (symbols of load modules)") from None


def _write(out: Path, entries: Mapping[str, bytes]) -> None:
    try:
        out.write_bytes(pack_archive(entries))
    except OSError as error:
        raise storage_error(out, error) from None
