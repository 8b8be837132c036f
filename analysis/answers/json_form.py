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
        answer = answer.tolist()
    if isinstance(answer, Mapping):
        return {key: json_form(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [json_form(value) for value in answer]
    if isinstance(answer, Enum):
        return getattr(answer, "label", answer.value)
    return None if isinstance(answer, float) and not math.isfinite(answer) else answer


def rows(columns: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Return columns of one length, by name, as a list of objects."""
    return [
        dict(zip(columns, json_form(row), strict=True))
        for row in zip(*columns.values(), strict=True)
    ]
