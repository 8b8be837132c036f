"""What processes have mapped, as the kernel said when they did."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hpcd.bpf import mmap_events
from hpcd.bpf.maps import possible_cpus
from hpcd.bpf.mmap_events import MmapEvents

pytestmark = pytest.mark.root

# Prints where it has mapped the C library's code.
CHILD = """
for line in open("/proc/self/maps"):
    if "r-xp" in line and "/libc" in line:
        print(line.split("-")[0], line.split()[-1])
"""


def libc_of_a_child(events: MmapEvents) -> tuple[int, int, str]:
    """(pid, address, path) of a process that has ended."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        start, path = child.stdout.read().split()
    assert child.pid in events.take()
    return child.pid, int(start, 16), path


def test_the_last_to_map_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    events = MmapEvents(possible_cpus())
    try:
        pid, address, path = libc_of_a_child(events)
        found = events.lookup(pid, address)
        assert found and found.path == path and found.start <= address < found.end
        assert events.lookup(pid, 4096) is None
        monkeypatch.setattr(mmap_events, "_MAX_MAPPINGS", 20)
        newer = [libc_of_a_child(events) for _ in range(8)]
        assert events.lookup(pid, address) is None
        found = events.lookup(*newer[-1][:2])
        assert found and found.path == path
    finally:
        events.close()
