"""When a device was idle, from made calls of its runtime."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hpcd.analysis.profile.device_idle import idle_times
from hpcd.model.calls import CalledFunction, CallValue, ValueKind

NAMES = (
    "cudaLaunchKernel", "cudaDeviceSynchronize", "cudaMemcpy", "cudaStreamSynchronize",
    "cudaStreamCreate", "cudaSetDevice", "cudaFree", "malloc",
)  # fmt: skip
LAUNCH, SYNCHRONIZE, COPY, OF_STREAM, MAKE_STREAM, SET_DEVICE, FREE, OTHER = range(len(NAMES))
TO_DEVICE, TO_HOST = 1, 2
FUNCTIONS = [
    CalledFunction(number, name, "/libcudart.so.12", "probe",
                   (CallValue("device" if number == SET_DEVICE else "direction",
                              ValueKind.NUMBER),))
    for number, name in enumerate(NAMES)
]  # fmt: skip


def database(calls: list[tuple[int, ...]], process: list[int], weight: int = 1) -> Any:
    """Make a database of calls (line, function, begin, duration[, value]), in its order."""
    rows = np.array([(*call, 0)[:5] for call in sorted(calls)], np.int64).reshape(-1, 5)
    line, function, time, duration, value = rows.T
    recorded = SimpleNamespace(
        line=line, function=function, time=time, duration=duration,
        weight=np.full(len(rows), weight), functions=FUNCTIONS, value=lambda number: value,
    )  # fmt: skip
    lines = SimpleNamespace(process=np.array(process), pid=np.array(process) + 100)
    return SimpleNamespace(calls=recorded, lines=lines)


def windows(calls: list[tuple[int, ...]], process: tuple[int, ...] = (0, 0)) -> list[Any]:
    idle = idle_times(database(calls, list(process)))
    assert idle.notes == ()
    return list(zip(idle.begin.tolist(), idle.end.tolist(), strict=True))


def test_idle_from_the_wait_to_the_next_launch() -> None:
    calls = [(0, LAUNCH, 10, 2), (0, SYNCHRONIZE, 20, 30), (0, OTHER, 55, 1), (0, LAUNCH, 80, 2)]
    assert windows(calls) == [(50, 80)]
    # Waiting again for nothing is no end of it, and the last call is.
    assert windows([*calls[:2], (0, SYNCHRONIZE, 60, 5), (0, FREE, 90, 7)]) == [(50, 97)]
    # A wait that did not return waited for nothing.
    assert windows([(0, LAUNCH, 10, 2), (0, SYNCHRONIZE, 20, 0), (0, LAUNCH, 80, 2)]) == []


def test_what_another_thread_launches_meanwhile_is_not_waited_for() -> None:
    calls = [(0, LAUNCH, 10, 2), (0, SYNCHRONIZE, 20, 30), (0, LAUNCH, 80, 2)]
    assert windows([*calls, (1, LAUNCH, 40, 2)]) == []
    assert windows([*calls, (1, LAUNCH, 19, 2)]) == []
    assert windows([*calls, (1, LAUNCH, 15, 2)]) == [(50, 80)]
    assert windows([*calls, (1, LAUNCH, 60, 2)]) == [(50, 60)]
    # That of another process has its own device.
    assert windows([*calls, (1, LAUNCH, 40, 2)], (0, 1)) == [(50, 80)]


def test_streams_and_copies() -> None:
    copied = [(0, LAUNCH, 10, 2), (0, COPY, 20, 30, TO_HOST), (0, LAUNCH, 80, 2)]
    assert windows(copied) == [(50, 80)]
    assert windows([(0, LAUNCH, 10, 2), (0, COPY, 20, 30, TO_DEVICE), (0, LAUNCH, 80, 2)]) == []
    waited = [(0, LAUNCH, 10, 2), (0, OF_STREAM, 20, 30), (0, LAUNCH, 80, 2)]
    assert windows(waited) == [(50, 80)]
    assert windows([*waited, (0, MAKE_STREAM, 1, 1)]) == []


@pytest.mark.parametrize(
    ("more", "weight", "why"),
    [
        ([(0, SET_DEVICE, 1, 1, 0), (0, SET_DEVICE, 2, 1, 1)], 1, "several devices"),
        ([], 4, "passed over"),
    ],
)
def test_what_is_not_known_is_said(more: list[tuple[int, ...]], weight: int, why: str) -> None:
    calls = [(0, LAUNCH, 10, 2), (0, SYNCHRONIZE, 20, 30), (0, LAUNCH, 80, 2), *more]
    idle = idle_times(database(calls, [0], weight))
    assert not len(idle.begin)
    (note,) = idle.notes
    assert why in note and "process 100 " in note
