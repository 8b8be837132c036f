"""The kernel's unwind step on saved stacks: the same C, without privilege."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpcd.model.codes import UnwindStatus
from hpcd.model.frame import OFFSET_MASK
from tests.support.paths import ROOT
from tests.support.replay import Replay, SavedStack

DATA = ROOT / "tests/data/stacks"
SAVED = sorted(DATA.glob("*.npz"))


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    return Replay(tmp_path_factory.mktemp("replay"))


def expected(saved: SavedStack) -> np.ndarray:
    """The independent unwinder's program counters as ELF addresses of attributed instructions."""
    address = saved.frames.copy()
    # Callers are return addresses, except for what a signal interrupted; those frames are told
    # apart by the walker alone, so both readings are accepted by the comparison.
    index = np.searchsorted(saved.mappings["start"], address, "right") - 1
    return address - saved.mappings["bias"][index]


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_walk_finds_what_an_independent_unwinder_found(path: Path, replay: Replay) -> None:
    saved = SavedStack.load(path)
    frames, ending = replay.walk(saved)
    assert ending is UnwindStatus.COMPLETE
    vaddr = frames & np.uint64(OFFSET_MASK)
    truth = expected(saved)
    assert len(vaddr) == len(truth)
    assert vaddr[0] == truth[0]
    back = truth - vaddr
    assert set(back[1:].tolist()) <= {0, 1}


def test_there_are_saved_stacks_of_every_kind() -> None:
    assert {path.stem.rsplit("-", 2)[0] for path in SAVED} >= {
        "paths", "deep", "templates", "python-numpy", "xz", "aarch64",
    }  # fmt: skip


def test_a_cut_stack_ends_with_its_reason(replay: Replay) -> None:
    saved = SavedStack.load(DATA / "deep-0-0.npz")
    saved.stack = saved.stack[:4096]
    frames, ending = replay.walk(saved)
    assert ending is UnwindStatus.READ_FAULT
    assert 1 < len(frames) < 900


def test_a_missing_module_ends_with_its_reason(replay: Replay) -> None:
    saved = SavedStack.load(DATA / "deep-0-0.npz")
    saved.mappings = saved.mappings[-1:]
    _, ending = replay.walk(saved)
    assert ending is UnwindStatus.NO_MAPPING


def test_random_stacks_never_hang_the_walker(replay: Replay) -> None:
    """Whatever a stack holds, the walk ends within the frame limit."""
    random = np.random.default_rng(3)
    for path in SAVED[::4]:
        saved = SavedStack.load(path)
        for _ in range(20):
            words = np.frombuffer(saved.stack[: len(saved.stack) & ~7], np.uint64).copy()
            hit = random.random(len(words)) < 0.05
            words[hit] = random.choice(words, int(hit.sum()))
            saved.stack = words.tobytes()
            frames, ending = replay.walk(saved)
            assert 1 <= len(frames) <= 1024
            assert ending in set(UnwindStatus)
