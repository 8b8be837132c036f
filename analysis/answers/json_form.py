"""The JSON form of answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np


def json_form(answer: object) -> Any:
    """Return ``answer`` as plain JSON values: fields of dataclasses by their names, kinds by their
    labels, arrays as lists; null for what is not a finite number."""
    if is_dataclass(answer) and not isinstance(answer, type):
        return {field.name: json_form(getattr(answer, field.name)) for field in fields(answer)}
    if isinstance(answer, np.ndarray | np.generic):
        floats = answer.dtype.kind == "f"
        whole = answer.dtype.kind in "biu" or (floats and bool(np.isfinite(answer).all()))
        answer = answer.tolist()
        if whole:
            return answer
    if isinstance(answer, Mapping):
        return {key: json_form(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [json_form(value) for value in answer]
    if isinstance(answer, Enum):
        return getattr(answer, "label", answer.value)
    return None if isinstance(answer, float) and not math.isfinite(answer) else answer


def rows(columns: Mapping[str, Iterable[Any]]) -> list[dict[str, object]]:
    """Return columns of one length, by name, as a list of objects."""
    lists = [json_form(one if isinstance(one, np.ndarray) else [*one]) for one in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
