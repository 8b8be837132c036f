"""Blocks of table memory: how many are taken, and what becomes of those given back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hpcd.bpf.table_memory import MAX_MAPPINGS, Blocks, space_blocks
from hpcd.bpf.wire import MAPPINGS_PER_BLOCK


def test_a_started_block_of_mappings_is_a_block() -> None:
    counts = (0, 1, MAPPINGS_PER_BLOCK, MAPPINGS_PER_BLOCK + 1, MAX_MAPPINGS, MAX_MAPPINGS + 1)
    most = MAX_MAPPINGS // MAPPINGS_PER_BLOCK
    assert [space_blocks(count) for count in counts] == [1, 1, 1, 2, most, most]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_runs_are_apart_and_all_is_free_in_the_end(sizes: list[int], random: object) -> None:
    blocks = Blocks()
    runs = [(blocks.take(size), size) for size in sizes]
    taken = [block for start, size in runs for block in range(start, start + size)]
    assert len(set(taken)) == sum(sizes) and 0 not in taken
    random.shuffle(runs)  # type: ignore[attr-defined]
    for run in runs:
        blocks.give(*run)
    # More than there ever was: memory is as new.
    assert blocks.take(sum(sizes) + 1) == 1
