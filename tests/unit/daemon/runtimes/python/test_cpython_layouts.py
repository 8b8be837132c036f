"""Interpreters whose structures are not known are refused, by a line that says which they are."""

from __future__ import annotations

import struct

import pytest

from hpcd.daemon.runtimes.python.cpython_layouts import (
    DEBUG_OFFSETS_BYTES,
    UnknownVersionError,
    layout_of,
)


def runtime(minor: int, *, free_threaded: bool = False) -> bytes:
    """The begin of a ``_PyRuntime`` of 3.13 or later, with no offsets."""
    head = struct.pack("<8sQQ", b"xdebugpy", 3 << 24 | minor << 16, free_threaded)
    return head.ljust(DEBUG_OFFSETS_BYTES, b"\0")


@pytest.mark.parametrize(
    ("minor", "begin", "why"),
    [
        (8, b"", "CPython 3.8"),
        (13, b"", "CPython 3.13 without the table of its offsets"),
        (14, runtime(13), "CPython 3.14 that calls itself another version"),
        (14, runtime(14, free_threaded=True), "CPython 3.14, free-threaded"),
        (14, runtime(14), "CPython 3.14 with impossible offsets"),
        (16, runtime(16), "CPython 3.16"),
    ],
)
def test_unknown_structures_are_refused(minor: int, begin: bytes, why: str) -> None:
    with pytest.raises(UnknownVersionError) as refused:
        layout_of((3, minor), begin)
    assert str(refused.value) == why
