"""Announced stacks become the call paths, and these the CCT nodes, that a plain reading makes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcd.bpf.wire import MAX_USER_FRAMES, OUTERMOST_FRAMES, SLOT_BITS, EventKind, StackEvent
from hpcd.daemon.capture.paths.cct_builder import CCTBuilder
from hpcd.daemon.capture.paths.stack_resolver import KernelFrames, StackResolver
from hpcd.model import frame as frames
from hpcd.model.codes import UnwindStatus
from hpcd.model.region import Region
from hpcd.model.unwind_status import is_whole

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

    def to_module_frames(self, path: Any) -> Any:
        module = np.uint64(1 << frames.MODULE_SHIFT) | (path & np.uint64(0xFFFFFF))
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
    event = np.zeros(1, StackEvent.dtype())
    event["kind"], event["stack"], event["tgid"] = EventKind.STACK, 1 << SLOT_BITS | number, 1
    event["kernel_frames"], event["user_frames"] = kernel, user
    event["end_reason"], event["cache"] = random.choice(ENDINGS), number & 1
    inner = KERNEL + random.integers(0, 160, kernel).astype(np.uint64)
    kept = min(user, MAX_USER_FRAMES)
    outer = random.choice(
        [frames.module_frame(3, 8), frames.module_frame(4, 16), frames.SPECIAL | USER + 8,
         frames.SPECIAL | USER + 9, frames.SPECIAL | 4096], kept, p=[0.5, 0.3, 0.07, 0.07, 0.06],
    )  # fmt: skip
    body = np.concatenate([inner, outer.astype(np.uint64)]).astype(np.uint64)
    return event.tobytes() + body.tobytes()


Path = tuple[int, ...]


def plain_path(event: bytes) -> tuple[Path, bool]:
    """The path of a stack, outermost frame first, and whether it waits for a module."""
    head = np.frombuffer(event, StackEvent.dtype(), 1)[0]
    body = np.frombuffer(event, np.uint64, offset=StackEvent.BYTES).tolist()
    kernel, user, ending = (
        int(head[key]) for key in ("kernel_frames", "user_frames", "end_reason")
    )
    if user > MAX_USER_FRAMES:
        ring = body[-OUTERMOST_FRAMES:]
        oldest = (user - (MAX_USER_FRAMES - OUTERMOST_FRAMES)) % OUTERMOST_FRAMES
        body[-OUTERMOST_FRAMES:] = [
            frames.omitted_frames(user - MAX_USER_FRAMES), *ring[oldest:], *ring[:oldest]
        ]  # fmt: skip
    interrupted = [at for at in range(len(body)) if not at or within(body[at - 1], ENTRY)]
    changing = any(within(body[at], SIGNALS) for at in interrupted)
    inner = 0
    if head["cache"] & 1:
        inner = next((at for at, frame in enumerate(body) if within(frame, SCHEDULER)), 0)
    path, waits = [], False
    for at in range(inner, kernel if changing else len(body)):
        frame = body[at]
        if frame & frames.KERNEL == frames.KERNEL:
            frame = frames.module_frame(1, (frame - (at > inner)) & 0xFFFFFF)
        elif frame >> 61 == frames.SPECIAL >> 61:
            address = frame & frames.RAW_MASK
            known = address >= USER and address & 1
            waits |= address >= USER and not known
            frame = frames.module_frame(7, address & 0xFFF) if known else frame
        path.append(frame)
    ending = UnwindStatus.REGISTERS_CHANGING if changing else ending
    if not is_whole(UnwindStatus(ending)):
        path.append(frames.marker_frame(ending))
    return tuple(path[::-1]), waits


def within(address: int, span: tuple[np.uint64, np.uint64]) -> bool:
    return span[0] <= address < span[1]


def plain_ending(path: Path) -> tuple[int, int]:
    """How a path ended, and the module of its first frame if it is truncated."""
    if not path or path[0] >> 61 != frames.MARKER >> 61:
        return 0, 0
    first = path[1] if len(path) > 1 else 0
    return path[0] & 0xFF, first >> frames.MODULE_SHIFT if first >> 62 == 0 else 0


def path_of(cct: CCTBuilder, node: int) -> Path:
    path: list[int] = []
    while node:
        assert cct.parent[node] < node  # parents come first
        path.append(int(cct.frame[node]))
        node = int(cct.parent[node])
    return tuple(path[::-1])


@given(seed=st.integers(0, 1 << 30), rounds=st.lists(st.integers(1, 60), min_size=1, max_size=3))
@settings(max_examples=40)
def test_paths_nodes_endings_and_pending_stacks(seed: int, rounds: list[int]) -> None:
    random = np.random.default_rng(seed)
    stacks, events, nodes = resolver(), [], []
    for count in rounds:
        announced = [a_stack(random, number) for number in range(count)]
        nodes += stacks.insert(announced).tolist()
        events += announced
    cct, plain = stacks.cct, [plain_path(event) for event in events]
    paths = [path for path, _ in plain]
    assert [path_of(cct, node) for node in nodes] == paths
    # Equal paths are one node, and there are no others.
    prefixes = {path[:depth] for path in paths for depth in range(1, len(path) + 1)}
    assert cct.count == 3 + len(prefixes)  # with the root and two markers
    assert stacks._pending == [
        event for event, (_, waits) in zip(events, plain, strict=True) if waits
    ]

    cct.count_samples(np.array(nodes, np.uint32))
    counted: dict[int, Counter[int]] = defaultdict(Counter)
    for path in paths:
        ending, module = plain_ending(path)
        counted[ending][module] += 1
    assert cct.endings() == counted


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
    table, address = KernelFrames(), np.arange(1, 9001, dtype=np.uint64) * np.uint64(4096)
    table.add(address[:10], address[:10])
    table.add(address[10:], address[10:])
    known = table.addresses > 0
    assert sorted(table.frames[known].tolist()) == address.tolist()
    assert 2 * len(address) <= len(table.addresses)
