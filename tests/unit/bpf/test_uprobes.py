"""Descriptors of probes, as far as no probe is needed."""

from __future__ import annotations

import os

from hpcd.bpf.uprobes import close_in_child


def test_a_child_closes_descriptors_and_holds_no_others() -> None:
    read, write = os.pipe()
    other_read, other_write = os.pipe()
    child = close_in_child([write])
    os.close(write)
    os.close(other_write)
    assert os.read(other_read, 1) == b""
    assert os.read(read, 1) == b""
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(read)
    os.close(other_read)
