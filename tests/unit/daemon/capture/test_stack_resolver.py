"""From announced stacks to CCT nodes: which node a sample's slot stands for."""

from typing import Any

import numpy as np
import pytest

from hpcd.bpf.wire import (
    MAX_USER_FRAMES,
    OUTERMOST_FRAMES,
    SLOT_BITS,
    EventKind,
    Sample,
    StackEvent,
    SwitchEvent,
)
from hpcd.daemon.capture.paths.stack_resolver import StackResolver
from hpcd.daemon.capture.records.thread_lines import ThreadLines
from hpcd.model import frame as frames
from hpcd.model.codes import UnwindStatus
from hpcd.model.region import Region

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

    def to_module_frames(self, path: Any) -> Any:
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
    event = np.zeros(1, StackEvent.dtype())
    event["kind"], event["stack"], event["tgid"] = EventKind.STACK, number, 1
    event["user_frames"] = len(innermost_first)
    event["end_reason"] = status
    return event.tobytes() + np.array(innermost_first, np.uint64).tobytes()


def number(generation: int, slot: int) -> int:
    return generation << SLOT_BITS | slot


def add(stacks: StackResolver, event: bytes) -> None:
    paths = stacks.resolve([event])
    node = stacks.cct.insert(paths.frames, paths.length)
    stacks.caches.announce(paths.cache, paths.stack, node)


def node_of(stacks: StackResolver, stack_number: int) -> int | None:
    report = np.zeros(1, Sample.dtype())
    report["stack"] = stack_number
    node, _, forgotten, _ = stacks.caches.look_up(report, ThreadLines())
    return None if len(forgotten) else int(node[0])


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
    add(stacks, stack(number(1, 3), inner, outer))
    assert path_of(stacks, node_of(stacks, number(1, 3))) == [outer, inner]


def test_a_stack_is_known_in_the_round_its_slot_is_taken(stacks: StackResolver) -> None:
    old, new = number(1, 3), number(2, 3)
    add(stacks, stack(old, frames.module_frame(1, 8)))
    stacks.caches.end_round()
    stacks.caches.end_round()
    first = node_of(stacks, old)
    assert first is not None  # still in the cache
    add(stacks, stack(new, frames.module_frame(1, 16)))
    assert node_of(stacks, old) == first
    assert node_of(stacks, new) is not None
    stacks.caches.end_round()
    # A sample that was taken after the samples of that round, and before the announcement.
    assert node_of(stacks, old) == first
    assert node_of(stacks, new) is not None
    stacks.caches.end_round()
    assert node_of(stacks, old) is None
    assert node_of(stacks, new) is not None


def test_a_slot_taken_twice_in_a_round_gives_up_its_stack_after_the_next(
    stacks: StackResolver,
) -> None:
    numbers = [number(generation, 3) for generation in (1, 2, 3)]
    add(stacks, stack(numbers[0], frames.module_frame(1, 8)))
    stacks.caches.end_round()
    stacks.caches.end_round()
    paths = stacks.resolve(
        [
            stack(numbers[1], frames.module_frame(1, 16)),
            stack(numbers[2], frames.module_frame(1, 24)),
        ]
    )
    node = stacks.cct.insert(paths.frames, paths.length)
    stacks.caches.announce(paths.cache, paths.stack, node)
    stacks.caches.end_round()
    seen = [path_of(stacks, node_of(stacks, one)) for one in numbers]
    assert seen == [[frames.module_frame(1, offset)] for offset in (8, 16, 24)]


def test_reports_of_arriving_threads_need_no_stack(stacks: StackResolver) -> None:
    reports = np.zeros(2, Sample.dtype())
    reports["stack"], reports["event"] = number(9, 9), [0, SwitchEvent.SWITCHED_IN]
    node, _, forgotten, _ = stacks.caches.look_up(reports, ThreadLines())
    assert (forgotten.tolist(), int(node[1])) == ([0], 0)


def test_a_pending_stack_is_resolved_when_its_module_is(
    stacks: StackResolver, modules: Modules
) -> None:
    add(stacks, stack(number(1, 3), RAW))
    stacks.caches.end_round()
    assert path_of(stacks, node_of(stacks, number(1, 3))) == [RAW]
    modules.frame = RESOLVED
    stacks.resolve_pending_stacks()
    assert path_of(stacks, node_of(stacks, number(1, 3))) == [RESOLVED]


def test_a_pending_stack_whose_slot_was_taken_again_stays_out_of_it(
    stacks: StackResolver, modules: Modules
) -> None:
    add(stacks, stack(number(1, 3), RAW))
    stacks.caches.end_round()
    add(stacks, stack(number(2, 3), frames.module_frame(1, 8)))
    stacks.caches.end_round()
    modules.frame = RESOLVED
    stacks.resolve_pending_stacks()
    assert path_of(stacks, node_of(stacks, number(2, 3))) == [frames.module_frame(1, 8)]


def test_a_path_that_is_not_whole_hangs_below_a_marker(stacks: StackResolver) -> None:
    add(stacks, stack(number(1, 3), frames.module_frame(1, 8), status=UnwindStatus.NO_TABLE))
    assert path_of(stacks, node_of(stacks, number(1, 3))) == [
        frames.marker_frame(UnwindStatus.NO_TABLE),
        frames.module_frame(1, 8),
    ]


@pytest.mark.parametrize("depth", [1024, 1025, 1280, 1281, 5000, 16384])
def test_a_deep_stack_keeps_both_its_ends(stacks: StackResolver, depth: int) -> None:
    """As the walker leaves it: each frame beyond the innermost ones takes the oldest's place."""
    innermost = MAX_USER_FRAMES - OUTERMOST_FRAMES
    kept = [0] * MAX_USER_FRAMES
    for at in range(depth):
        ring = innermost + (at - innermost) % OUTERMOST_FRAMES
        kept[at if at < innermost else ring] = frames.module_frame(1, at)
    head = np.zeros(1, StackEvent.dtype())
    head["kernel_frames"], head["user_frames"] = 2, depth
    body = np.array([frames.module_frame(2, 77), frames.module_frame(2, 78), *kept], np.uint64)
    paths = stacks.resolve([head.tobytes() + body.tobytes()])
    path = paths.frames[::-1]
    assert len(path) == int(paths.length[0])
    assert path[:2].tolist() == body[:2].tolist()
    user = path[2:]
    if depth > MAX_USER_FRAMES:
        assert frames.omitted_count(user)[innermost] == depth - MAX_USER_FRAMES
        user = np.delete(user, innermost)
    offsets = (user & np.uint64(frames.OFFSET_MASK)).tolist()
    assert offsets[:innermost] == list(range(innermost))
    assert offsets[innermost:] == list(range(depth - OUTERMOST_FRAMES, depth))
