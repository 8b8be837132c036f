"""Rows of symbols that measurements brought along, in SYMBOLS chunks and in a database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpcd.analysis.arrays.named_arrays import NamedArrays
from hpcd.errors import FormatError
from hpcd.measurement.recorded_symbols import SymbolRow, read_symbols
from hpcd.measurement.zstd_contexts import unpack_frame
from hpcd.regular_file import read_regular

PREFIX = "symbols-"
"""The names of tables in a database's archive of symbols: this, and the module's number."""

_ADDRESSES = 1 << 63


def read_payloads(payloads: Sequence[bytes]) -> dict[int, list[SymbolRow]]:
    """The symbols of modules that the payloads of SYMBOLS chunks have, within bounds. Raises
    :class:`FormatError`."""
    symbols: dict[int, list[SymbolRow]] = {}
    try:
        for payload in payloads:
            for module, (columns, _) in read_symbols(payload).items():
                symbols.setdefault(module, []).extend(_bounded(*columns))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise FormatError("symbols of a measurement are damaged") from None
    return symbols


def _bounded(
    starts: Sequence[int], sizes: Sequence[int], names: Sequence[str]
) -> Iterable[SymbolRow]:
    # Hostile values are cut to the ranges of addresses and names.
    if starts and (min(*starts, *sizes, 0) < 0 or max(*starts, *sizes) >= _ADDRESSES):
        starts, sizes = (
            [min(max(number, 0), _ADDRESSES - 1) for number in column] for column in (starts, sizes)
        )
    if any("\0" in name for name in names):
        names = [name.replace("\0", "") for name in names]
    return zip(starts, sizes, names, strict=True)


def pack_rows(rows: Sequence[SymbolRow]) -> bytes:
    """JSON of symbols by column; ``rows`` is not empty."""
    return json.dumps(list(zip(*rows, strict=True))).encode()


def read_rows(text: bytes) -> list[SymbolRow]:
    """The symbols that :func:`pack_rows` wrote. Raises :class:`FormatError`."""
    try:
        columns = json.loads(text)
        return [(int(a), int(b), str(name)) for a, b, name in zip(*columns, strict=True)]
    except (ValueError, TypeError, RecursionError):
        raise FormatError("symbols are damaged") from None


def load_symbols(store: Path, module: int) -> list[SymbolRow]:
    """The symbols of ``module`` in the archive ``store`` of a database. Raises
    :class:`FormatError`."""
    try:
        return read_rows(unpack_frame(NamedArrays(read_regular(store))[f"{PREFIX}{module}"].data))
    except (KeyError, FormatError, OSError):
        raise FormatError(f"{store}: damaged (symbols of module {module})") from None
