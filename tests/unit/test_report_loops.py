"""Records are put in order and encoded by compiled loops as numpy does it, to the byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcd.measurement import codec, writer
from hpcd.measurement.record_writing import record_writing

pytestmark = pytest.mark.skipif(record_writing() is None, reason="the library is not compiled")


def without(call: Any, *arguments: Any) -> Any:
    """What a call returns where the library was not compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "record_writing", lambda: None)
        patch.setattr(writer, "record_writing", lambda: None)
        return call(*arguments)


def random_records(seed: int, n: int, nodes: int) -> list[Any]:
    random = np.random.default_rng(seed)
    time = random.integers(0, 20_000 * max(n, 1), n) + 10**15
    event = random.choice([0, 0, 1, 2, 65_535], n)
    value = random.choice([1, 1, 2, 15, 3000, 1 << 45], n)
    columns = (random.integers(0, random.choice([1, 3, 4000, 70_000]), n), time,
               random.integers(0, nodes, n), event, value)  # fmt: skip
    types = (np.uint32, np.uint64, np.uint32, np.uint16, np.uint64)
    return [column.astype(kind) for column, kind in zip(columns, types, strict=True)]


@given(
    seed=st.integers(0, 1 << 30),
    n=st.one_of(st.integers(0, 300), st.just(2000)),
    nodes=st.sampled_from([1, 9, 1 << 24]),
)
@settings(deadline=None, max_examples=60)
def test_chunks_are_the_same(seed: int, n: int, nodes: int) -> None:
    records: Any = tuple(random_records(seed, n, nodes))
    ordered = without(writer.in_order, records)
    compiled = writer.in_order(records)
    assert all(np.array_equal(a, b) for a, b in zip(ordered, compiled, strict=True))
    order = writer.by_line_and_time(*records[:2])
    assert np.array_equal(order, without(writer.by_line_and_time, *records[:2]))
    encoded = codec.encode_records(*ordered, [1, 65_535])
    assert encoded == without(codec.encode_records, *ordered, [1, 65_535])


def test_an_order_that_is_hostile_is_sorted_in_passes() -> None:
    n = 200_000  # 20,000,000,000 steps, if they were quadratic
    line = np.zeros(n, np.uint32)
    time = np.arange(n, 0, -1).astype(np.uint64)
    assert (writer.by_line_and_time(line, time) == np.arange(n)[::-1]).all()
