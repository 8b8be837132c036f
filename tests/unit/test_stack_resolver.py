"""From announced stacks to CCT nodes: which node a sample's slot stands for."""

from typing import Any

import numpy as np
import pytest

from hpcd.bpf.layouts import (
    MAX_USER_FRAMES,
    OUTERMOST_FRAMES,
    SLOT_BITS,
    STACK_EVENT,
    EventKind,
)
from hpcd.daemon.capture.deep_stacks import unfold
from hpcd.daemon.capture.stack_resolver import StackResolver
from hpcd.model import frame as frames
from hpcd.model.region import Region
from hpcd.model.unwind_status import UnwindStatus

NOWHERE = np.uint64(0), np.uint64(0)
ADDRESS = 0x7F00_0000_1000
RAW = frames.SPECIAL | ADDRESS
RESOLVED = frames.module_frame(5, 0x1000)


class NoKernel:
    """Stands for the kernel's naming: there are no kernel frames."""

    def __init__(self) -> None:
        self.symbols = self

    def range_of(self, _: str) -> tuple[np.uint64, np.uint64]:
        return NOWHERE

    def entry_text(self) -> tuple[np.uint64, np.uint64]:
        return NOWHERE

    def signal_ranges(self) -> list[tuple[np.uint64, np.uint64]]:
        return []

    def to_module_frames(self, path: Any, _: Any) -> Any:
        return path


class Modules:
    """Stands for the modules: the frame of any address, once it is known."""

    frame: int | None = None

    def frame_in(self, *_: object) -> int | None:
        return self.frame


@pytest.fixture
def modules() -> Modules:
    return Modules()


@pytest.fixture
def stacks(modules: Modules) -> StackResolver:
    kernel: Any = NoKernel()
    stand_in: Any = modules
    mapping = Region(ADDRESS, ADDRESS + 0x1000, 0, "08:01", 99, "/lib/a.so")
    return StackResolver(stand_in, kernel, lambda _pid, _address, _time: mapping, 1)


def stack(
    number: int, *innermost_first: int, status: UnwindStatus = UnwindStatus.COMPLETE
) -> bytes:
    event = np.zeros(1, STACK_EVENT)
    event["kind"], event["stack"], event["tgid"] = EventKind.STACK, number, 1
    event["user_frames"] = len(innermost_first)
    event["ending"] = status
    return event.tobytes() + np.array(innermost_first, np.uint64).tobytes()


def number(generation: int, slot: int) -> int:
    return generation << SLOT_BITS | slot


def node_of(stacks: StackResolver, stack_number: int) -> int | None:
    node, is_resolved = stacks.nodes_of(
        np.zeros(1, np.uint16), np.array([stack_number], np.uint32), np.ones(1, bool)
    )
    return int(node[0]) if is_resolved[0] else None


def path_of(stacks: StackResolver, node: int | None) -> list[int]:
    """Frames of a node, outermost first."""
    assert node is not None
    path: list[int] = []
    while node:
        path.insert(0, int(stacks.cct.frame[node]))
        node = int(stacks.cct.parent[node])
    return path


def test_a_path_begins_with_the_outermost_frame(stacks: StackResolver) -> None:
    inner, outer = frames.module_frame(1, 8), frames.module_frame(1, 16)
    stacks.add([stack(number(1, 3), inner, outer)])
    assert path_of(stacks, node_of(stacks, number(1, 3))) == [outer, inner]


def test_a_stack_is_known_in_the_round_its_slot_is_taken(stacks: StackResolver) -> None:
    old, new = number(1, 3), number(2, 3)
    stacks.add([stack(old, frames.module_frame(1, 8))])
    stacks.end_round()
    stacks.end_round()
    first = node_of(stacks, old)
    assert first is not None  # still in the cache
    stacks.add([stack(new, frames.module_frame(1, 16))])
    assert node_of(stacks, old) == first
    assert node_of(stacks, new) is not None
    stacks.end_round()
    assert node_of(stacks, old) is None
    assert node_of(stacks, new) is not None


def test_samples_without_a_path_need_no_stack(stacks: StackResolver) -> None:
    _, is_resolved = stacks.nodes_of(
        np.zeros(2, np.uint16), np.full(2, number(9, 9), np.uint32), np.array([True, False])
    )
    assert is_resolved.tolist() == [False, True]


def test_a_pending_stack_is_resolved_when_its_module_is(
    stacks: StackResolver, modules: Modules
) -> None:
    stacks.add([stack(number(1, 3), RAW)])
    stacks.end_round()
    assert path_of(stacks, node_of(stacks, number(1, 3))) == [RAW]
    modules.frame = RESOLVED
    stacks.resolve_pending_stacks()
    assert path_of(stacks, node_of(stacks, number(1, 3))) == [RESOLVED]


def test_a_pending_stack_whose_slot_was_taken_again_stays_out_of_it(
    stacks: StackResolver, modules: Modules
) -> None:
    stacks.add([stack(number(1, 3), RAW)])
    stacks.end_round()
    stacks.add([stack(number(2, 3), frames.module_frame(1, 8))])
    stacks.end_round()
    modules.frame = RESOLVED
    stacks.resolve_pending_stacks()
    assert path_of(stacks, node_of(stacks, number(2, 3))) == [frames.module_frame(1, 8)]


def test_a_path_that_is_not_whole_hangs_below_a_marker(stacks: StackResolver) -> None:
    stacks.add([stack(number(1, 3), frames.module_frame(1, 8), status=UnwindStatus.NO_TABLE)])
    assert path_of(stacks, node_of(stacks, number(1, 3))) == [
        frames.marker_frame(UnwindStatus.NO_TABLE),
        frames.module_frame(1, 8),
    ]


@pytest.mark.parametrize("depth", [1025, 1280, 1281, 5000, 16384])
def test_a_deep_stack_keeps_both_its_ends(depth: int) -> None:
    """As the walker leaves it: each frame beyond the innermost ones takes the oldest's place."""
    innermost = MAX_USER_FRAMES - OUTERMOST_FRAMES
    kept = np.zeros(MAX_USER_FRAMES, np.uint64)
    for number in range(depth):
        ring = innermost + (number - innermost) % OUTERMOST_FRAMES
        kept[number if number < innermost else ring] = number
    head = np.zeros(1, STACK_EVENT)
    head["kernel_frames"], head["user_frames"] = 2, depth
    kernel = np.array([77, 78], np.uint64)
    event = unfold(head.tobytes() + kernel.tobytes() + kept.tobytes())
    size = STACK_EVENT.itemsize
    told = np.frombuffer(event[:size], STACK_EVENT)
    body = np.frombuffer(event[size:], np.uint64)
    assert int(told["user_frames"][0]) + int(told["kernel_frames"][0]) == len(body)
    user = body[2:].tolist()
    assert user[:innermost] == list(range(innermost))
    assert frames.omitted_count(body[2:])[innermost] == depth - MAX_USER_FRAMES
    assert user[innermost + 1 :] == list(range(depth - OUTERMOST_FRAMES, depth))
