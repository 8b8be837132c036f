"""Ends of processes are told by descriptors."""

from __future__ import annotations

import subprocess

from hpcd.daemon.capture.loop.descriptors import readable
from hpcd.daemon.capture.loop.session import ProcessEnds


def test_the_end_of_a_process_wakes_whoever_waits() -> None:
    with subprocess.Popen(["sleep", "1000"]) as one, subprocess.Popen(["sleep", "1000"]) as other:
        ends = ProcessEnds([one.pid, other.pid])
        assert len(ends.descriptors) == 2
        assert readable(ends.descriptors, 0) == []
        assert not ends.take([])
        one.kill()
        woken = readable(ends.descriptors, 60)
        assert len(woken) == 1
        assert ends.take([*woken, 0])
        assert len(ends.descriptors) == 1
        other.kill()
        ends.close()
        assert not ends.descriptors


def test_processes_that_are_gone_are_passed_over() -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    assert not ProcessEnds([gone.pid]).descriptors
