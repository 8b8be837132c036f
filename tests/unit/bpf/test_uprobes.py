"""Descriptors of probes, as far as no probe is needed."""

from __future__ import annotations

import os
import signal

import pytest

from hpcd.bpf.calls.uprobes import close_in_child, has_ended


def test_a_child_closes_descriptors_and_holds_no_others() -> None:
    read, write = os.pipe()
    other_read, other_write = os.pipe()
    child = close_in_child([write])
    os.close(write)
    os.close(other_write)
    assert os.read(other_read, 1) == b""
    assert os.read(read, 1) == b""
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert has_ended(child)
    os.close(read)
    os.close(other_read)


def test_a_child_that_the_kernel_has_reaped_has_ended() -> None:
    usual = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        child = close_in_child([])
        with pytest.raises(ChildProcessError):
            os.waitpid(child, 0)
        assert has_ended(child)
    finally:
        signal.signal(signal.SIGCHLD, usual)
