"""Measurements that are asked for before they are read are in memory by then."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.merge.read import prefetch
from hpcd.analysis.merge.read.prefetch import Prefetch, Stretch
from hpcd.array_types import U8

_BYTES = 1 << 19


def _segment(folder: Path, number: int) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"segment-{number:06d}.hpcd"
    path.write_bytes(os.urandom(_BYTES))
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
    return path


def _pages(path: Path) -> U8:
    """Return for each page of a file whether it is in memory; none is read to find out."""
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        held = np.frombuffer(data, np.uint8)
        pages = np.zeros(-(-len(data) // mmap.PAGESIZE), np.uint8)
        assert mincore(held.ctypes.data, len(data), pages.ctypes.data) == 0
        del held
    return pages & 1


def _come(condition: Callable[[], bool]) -> None:
    """The disk brings them while others go on."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()


def test_stretches_are_asked_for_across_segments(tmp_path: Path) -> None:
    first, second = (_segment(tmp_path / "measurement", number) for number in (0, 1))
    if _pages(first).any():
        pytest.skip("this file system keeps all it has in memory")
    half = _BYTES // 2
    gone = Stretch(tmp_path / "gone", 0, 1)
    Prefetch([gone, Stretch(first.parent, half, _BYTES + half)]).keep_up(0)
    pages = half // mmap.PAGESIZE
    _come(lambda: bool(_pages(first)[pages:].all() and _pages(second)[:pages].all()))
    assert not _pages(first)[:pages].any()
    assert not _pages(second)[pages:].any()


def test_no_more_is_asked_for_than_is_soon_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "_AHEAD_BYTES", _BYTES)
    folders = [_segment(tmp_path / str(number), 0) for number in range(3)]
    if _pages(folders[0]).any():
        pytest.skip("this file system keeps all it has in memory")
    ahead = Prefetch([Stretch(path.parent, 0, _BYTES) for path in folders])
    ahead.keep_up(0)
    _come(lambda: bool(_pages(folders[0]).all()))
    ahead.keep_up(1)
    _come(lambda: bool(_pages(folders[1]).all()))
    assert not _pages(folders[2]).any()
