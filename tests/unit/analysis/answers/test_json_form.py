"""The JSON form of answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from hpcd.analysis.answers.json_form import json_form, rows
from hpcd.analysis.messages.wait_states import WaitKind


class Plain(IntEnum):
    TWO = 2


@dataclass(frozen=True)
class Part:
    kind: WaitKind
    values: Any


def test_answers_become_plain_values() -> None:
    """Written by json, without a value that is no JSON."""
    part = Part(WaitKind.LATE_SENDER, (np.float64(0.5), float("nan"), np.inf, None, Plain.TWO))
    answer = json_form(
        {"parts": [part], "array": np.array([[1, 2]], np.uint32), "number": np.int64(3)}
    )
    text = json.dumps(answer, allow_nan=False)
    assert json.loads(text) == {
        "parts": [{"kind": "late sender", "values": [0.5, None, None, None, 2]}],
        "array": [[1, 2]],
        "number": 3,
    }


def test_columns_become_rows() -> None:
    columns = {"rank": np.array([0, 1]), "seconds": [0.5, float("inf")]}
    assert rows(columns) == [{"rank": 0, "seconds": 0.5}, {"rank": 1, "seconds": None}]
