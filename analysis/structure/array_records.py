"""Records of arrays and texts: the tables of a load module's code, as named arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from hpcd.analysis.arrays.named_arrays import Arrays
from hpcd.array_types import I64, Array
from hpcd.errors import FormatError

T = TypeVar("T")


def within(values: Array, low: int, high: int) -> bool:
    """Whether all ``values`` are at least ``low`` and below ``high``."""
    return not len(values) or (int(values.min()) >= low and int(values.max()) < high)


def to_arrays(record: Any) -> Arrays:
    """The fields of a dataclass of arrays and :class:`Strings`."""
    arrays: dict[str, Array] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Strings):
            arrays[f"{field.name}.data"] = value.data
            arrays[f"{field.name}.bounds"] = value.bounds
        else:
            arrays[field.name] = value
    return arrays


def from_arrays(kind: type[T], arrays: Arrays) -> T:
    """The dataclass :func:`to_arrays` took apart. Raises :class:`FormatError`."""
    values: dict[str, object] = {}
    try:
        for field in fields(kind):  # type: ignore[arg-type]
            if field.type == "Strings":
                data, bounds = arrays[f"{field.name}.data"], arrays[f"{field.name}.bounds"]
                values[field.name] = Strings(data, bounds)
            else:
                values[field.name] = arrays[field.name]
    except KeyError as error:
        raise FormatError(f"structure has no {error}") from None
    return kind(**values)


class Strings(Sequence[str]):
    """Many texts, each decoded on access.

    ``data`` ``uint8[m]`` holds them end to end, ``bounds`` ``int64[n + 1]`` says where each begins.
    """

    def __init__(self, data: Array, bounds: Array) -> None:
        if (
            len(bounds) == 0
            or int(bounds[0]) != 0
            or int(bounds[-1]) > len(data)
            or bool((np.diff(bounds) < 0).any())
        ):
            raise FormatError("structure has damaged names")
        self.data, self.bounds = data, bounds

    @staticmethod
    def of(texts: Sequence[str]) -> Strings:
        """Return ``texts`` as a table."""
        encoded = [text.encode(errors="surrogateescape") for text in texts]
        bounds = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=bounds[1:])
        return Strings(np.frombuffer(b"".join(encoded), np.uint8), bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[index] for index in range(*number.indices(len(self)))]
        number = range(len(self))[number]
        low, high = int(self.bounds[number]), int(self.bounds[number + 1])
        return self.data[low:high].tobytes().decode(errors="replace")

    def take(self, numbers: I64) -> Strings:
        """The texts of these numbers, in their order."""
        if len(numbers) == len(self) and bool((numbers == np.arange(len(self))).all()):
            return self
        data = self.data.tobytes()
        low, high = self.bounds[numbers], self.bounds[numbers + 1]
        bounds = np.zeros(len(numbers) + 1, np.int64)
        np.cumsum(high - low, out=bounds[1:])
        parts = [data[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True)]
        return Strings(np.frombuffer(b"".join(parts), np.uint8), bounds)

    @staticmethod
    def joined(parts: Sequence[Strings]) -> Strings:
        """The texts of all ``parts``."""
        bounds = [np.zeros(1, np.int64)]
        total = 0
        for part in parts:
            bounds.append(part.bounds[1:] + total)
            total += int(part.bounds[-1])
        data = [part.data[: int(part.bounds[-1])] for part in parts]
        return Strings(np.concatenate([np.zeros(0, np.uint8), *data]), np.concatenate(bounds))
