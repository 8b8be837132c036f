"""Reading identities and symbols from JSON by kernels, straight into columns: what
:mod:`hpcd.measurement.identity_rows` and :mod:`hpcd.measurement.reader` do by :mod:`json`.

They read what writers of this version write, and nothing else: no spaces, no escapes, numbers of up
to 18 digits, all fields in order.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from hpcd.array_types import I64
from hpcd.kernels.library import kernels
from hpcd.measurement.identity_columns import Column, IdentityColumns, pack_numbers
from hpcd.model.identity import Process, Thread

_Row = TypeVar("_Row", Process, Thread)
_KINDS = {"int": 0, "int | None": 1, "str": 2, "tuple[str, ...]": 3}
_TEXT, _WORDS = _KINDS["str"], _KINDS["tuple[str, ...]"]
_LEAST, _MOST, _NONES, _ALIKE, _FACTS = range(5)
_MOST_MODULES = 512
_MOST_ID = 1 << 32


class _Form:
    """What the text of rows of one kind looks like."""

    def __init__(self, kind: type[Any]) -> None:
        columns = fields(kind)
        names = [
            f'{"," if number else "{"}"{column.name}":'.encode()
            for number, column in enumerate(columns)
        ]
        self.names = b"".join(names)
        self.bounds = np.cumsum([0, *map(len, names)], dtype=np.int64)
        self.kinds = np.array([_KINDS[str(column.type)] for column in columns], np.int64)


_FORMS = {kind: _Form(kind) for kind in (Process, Thread)}


def columns_of(
    kind: type[_Row], text: bytes, share: Callable[[Any], Any]
) -> IdentityColumns[_Row] | None:
    """The rows that ``text`` says, a JSON list, by column; ``share`` is asked for the object
    to keep for each value that is no number. None where it is written in another way, and where
    their numbers do not ascend or are not below 2^32."""
    form = _FORMS[kind]
    most = len(text) // len(form.names) + 1
    begin = np.empty((len(form.kinds), most), np.int64)
    end, facts = np.empty_like(begin), np.empty((len(form.kinds), _FACTS), np.int64)
    rows = kernels.identity_rows(
        text, len(text), form.names, form.bounds, form.kinds, len(form.kinds), most, begin, end,
        facts,
    )  # fmt: skip
    if rows < 0 or (rows and begin[0, rows - 1] >= _MOST_ID):
        return None
    if not rows:
        return IdentityColumns(kind, 0, ((),) * len(form.kinds))
    columns: list[Column] = []
    known = zip(form.kinds.tolist(), facts.tolist(), strict=True)
    for number, (of, fact) in enumerate(known):
        if of in (_TEXT, _WORDS):
            count = 1 if fact[_ALIKE] else rows
            places = zip(begin[number, :count].tolist(), end[number, :count].tolist(), strict=True)
            values = [text[a:b].decode() for a, b in places]
            if of == _WORDS:
                words = {value: tuple(json.loads(value)) for value in set(values)}
                columns.append(tuple(share(words[value]) for value in values))
            else:
                columns.append(tuple(map(share, values)))
        elif fact[_ALIKE]:
            columns.append((None if fact[_NONES] else fact[_LEAST],))
        elif fact[_NONES]:
            none = end[number, :rows].tolist()
            columns.append(tuple(
                None if missing else value
                for value, missing in zip(begin[number, :rows].tolist(), none, strict=True)
            ))  # fmt: skip
        else:
            columns.append(pack_numbers(begin[number, :rows], fact[_LEAST], fact[_MOST]))
    return IdentityColumns(kind, rows, tuple(columns))


def symbol_modules(text: bytes) -> list[int] | None:
    """The modules that ``text``, a JSON object of symbols by module, has any of; None where it
    is written in another way."""
    modules: I64 = np.empty(_MOST_MODULES, np.int64)
    symbols: I64 = np.empty(_MOST_MODULES, np.int64)
    number = kernels.symbol_modules(text, len(text), _MOST_MODULES, modules, symbols)
    if number < 0:
        return None
    found: list[int] = modules[:number][symbols[:number] > 0].tolist()
    return found
