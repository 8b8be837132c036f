"""The compiled loops make of announced stacks the call paths that numpy makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcd.array_types import U32
from hpcd.bpf.layouts import MAX_USER_FRAMES, SLOT_BITS, STACK_EVENT, EventKind
from hpcd.daemon.capture import cct_builder, stack_resolver
from hpcd.daemon.capture.cct_builder import CCTBuilder
from hpcd.daemon.capture.path_loops import FrameTable, path_loops
from hpcd.daemon.capture.stack_resolver import StackResolver
from hpcd.model import frame as frames
from hpcd.model.region import Region
from hpcd.model.unwind_status import UnwindStatus

pytestmark = pytest.mark.skipif(path_loops() is None, reason="the library is not compiled")
KERNEL = 0xFFFFFFFF81000000
ENTRY, SCHEDULER, SIGNALS = (
    (np.uint64(KERNEL + begin), np.uint64(KERNEL + begin + 16)) for begin in (0, 32, 64)
)
USER = 0x7F00_0000_1000
ENDINGS = [UnwindStatus.COMPLETE, UnwindStatus.COMPLETE, UnwindStatus.KERNEL_ONLY,
           UnwindStatus.NO_TABLE, UnwindStatus.READ_FAULT]  # fmt: skip


class Kernel:
    """Stands for the kernel's naming: module 1 is the kernel."""

    def __init__(self) -> None:
        self.symbols = self

    def range_of(self, _: str) -> tuple[np.uint64, np.uint64]:
        return SCHEDULER

    def entry_text(self) -> tuple[np.uint64, np.uint64]:
        return ENTRY

    def signal_ranges(self) -> list[tuple[np.uint64, np.uint64]]:
        return [SIGNALS]

    def to_module_frames(self, path: Any, depth: Any) -> Any:
        address = path - (depth > 0).astype(np.uint64)
        module = np.uint64(1 << frames.MODULE_SHIFT) | (address & np.uint64(0xFFFFFF))
        return np.where(frames.is_kernel(path), module, path)


class Modules:
    """Stands for the modules: of addresses that are odd the frame is known."""

    def frame_in(self, _: int, __: Region, address: int) -> int | None:
        return frames.module_frame(7, address & 0xFFF) if address & 1 else None


def resolver() -> StackResolver:
    kernel: Any = Kernel()
    modules: Any = Modules()
    region = Region(USER, USER + 0x1000, 0, "08:01", 99, "/lib/a.so")

    def mapping(_: int, address: int, __: int) -> Region | None:
        return region if region.start <= address < region.end else None

    return StackResolver(modules, kernel, mapping, 2)


def a_stack(random: np.random.Generator, number: int) -> bytes:
    deep = random.random() < 0.02
    kernel = int(random.integers(0, 6))
    user = int(random.integers(0, 5)) + (MAX_USER_FRAMES if deep else 0)
    event = np.zeros(1, STACK_EVENT)
    event["kind"], event["stack"], event["tgid"] = EventKind.STACK, 1 << SLOT_BITS | number, 1
    event["kernel_frames"], event["user_frames"] = kernel, user
    event["ending"], event["cache"] = random.choice(ENDINGS), number & 1
    inner = KERNEL + random.integers(0, 160, kernel).astype(np.uint64)
    kept = min(user, MAX_USER_FRAMES)
    outer = random.choice(
        [frames.module_frame(3, 8), frames.module_frame(4, 16), frames.SPECIAL | USER + 8,
         frames.SPECIAL | USER + 9, frames.SPECIAL | 4096], kept, p=[0.5, 0.3, 0.07, 0.07, 0.06],
    )  # fmt: skip
    body = np.concatenate([inner, outer.astype(np.uint64)]).astype(np.uint64)
    return event.tobytes() + body.tobytes()


def described(stacks: StackResolver, node: U32) -> list[tuple[tuple[int, ...], int, int]]:
    """Of each node its path, its ending, and the module that is in."""
    cct, rows = stacks.cct, []
    for leaf in node.tolist():
        path, at = [], leaf
        while at:
            assert cct.parent[at] < at  # parents come first
            path.append(int(cct.frame[at]))
            at = int(cct.parent[at])
        ending = int(cct.ending[leaf])
        rows.append((tuple(path), ending, int(cct.ended_in[leaf]) if ending else 0))
    return rows


@given(seed=st.integers(0, 1 << 30), rounds=st.lists(st.integers(1, 60), min_size=1, max_size=3))
@settings(deadline=None, max_examples=20)
def test_the_same_paths_endings_and_pending_stacks(seed: int, rounds: list[int]) -> None:
    random = np.random.default_rng(seed)
    compiled, plain = resolver(), resolver()
    for count in rounds:
        events = [a_stack(random, number) for number in range(count)]
        node = compiled.insert(events)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stack_resolver, "path_loops", lambda: None)
            patch.setattr(cct_builder, "path_loops", lambda: None)
            by_numpy = plain.insert(events)
        assert described(compiled, node) == described(plain, by_numpy)
        assert compiled.cct.count == plain.cct.count
        assert sorted(compiled._pending) == sorted(plain._pending)
        compiled.cct.count_samples(node)
        plain.cct.count_samples(by_numpy)
        assert compiled.cct.endings() == plain.cct.endings()


def test_room_is_made_for_as_many_nodes_as_there_are() -> None:
    cct = CCTBuilder()
    frame = np.arange(1, 30_001, dtype=np.uint64)
    leaf = cct.insert(frame, np.full(30, 1000))
    assert cct.count == 30_001
    assert (cct.insert(frame, np.full(30, 1000)) == leaf).all()
    with pytest.raises(ValueError, match="other lengths"):
        cct.insert(frame, np.full(31, 1000))


def test_a_stack_that_is_cut_is_refused() -> None:
    with pytest.raises(ValueError, match="as many frames"):
        resolver().insert([a_stack(np.random.default_rng(0), 1)[:-8]])


def test_a_table_of_addresses_grows() -> None:
    table, address = FrameTable(), np.arange(1, 9001, dtype=np.uint64) * np.uint64(4096)
    table.add(address[:10], address[:10])
    table.add(address[10:], address[10:])
    known = table.addresses > 0
    assert sorted(table.frames[known].tolist()) == address.tolist()
    assert 2 * len(address) <= len(table.addresses)
