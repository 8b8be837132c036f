"""The kernel's reports of mappings agree with what processes map."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from hpcd.bpf.events import mapping_events, mapping_history
from hpcd.bpf.events.mapping_events import MmapEvents
from hpcd.bpf.kernel.maps import possible_cpus
from hpcd.daemon.access import processes

pytestmark = pytest.mark.root

# Prints where it has mapped the C library's code.
CHILD = """
for line in open("/proc/self/maps"):
    if "r-xp" in line and "/libc" in line:
        print(line.split("-")[0], line.split()[-1])
"""


def libc_of_a_child(events: MmapEvents) -> tuple[int, int, str, int]:
    """(pid, address, path, when it was there) of a process that has ended."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        start, path = child.stdout.readline().split()
        when = time.monotonic_ns()
    assert child.pid in events.take()
    return child.pid, int(start, 16), path, when


def test_what_was_mapped_is_known_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    events = MmapEvents(possible_cpus())
    try:
        before = time.monotonic_ns()
        pid, address, path, when = libc_of_a_child(events)
        mapped = events.history.lookup(pid, address, when)
        assert mapped and mapped.path == path and mapped.start <= address < mapped.end
        assert events.history.lookup(pid, 4096, when) is None
        assert events.history.lookup(pid, address, before) is None
        monkeypatch.setattr(mapping_history, "_MAX_ENTRIES", 400)
        newer = [libc_of_a_child(events) for _ in range(60)]
        assert events.history.lookup(pid, address, when) is None
        pid, address, path, when = newer[-1]
        mapped = events.history.lookup(pid, address, when)
        assert mapped and mapped.path == path
    finally:
        events.close()


# Its main thread ends, and another goes on, and maps another library when its standard input ends.
GOES_ON = """
import ctypes, sys, threading
def go_on():
    sys.stdin.read()
    ctypes.CDLL("libz.so.1")
threading.Thread(target=go_on).start()
print("started", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_of_processes_that_ended_long_ago_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    events = MmapEvents(possible_cpus())
    try:
        with subprocess.Popen(
            [sys.executable, "-c", GOES_ON], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as going_on:
            assert going_on.stdout and going_on.stdout.readline()
            while not processes.has_ended(going_on.pid, going_on.pid):
                time.sleep(0.01)
            pid, address, _, when = libc_of_a_child(events)
            monkeypatch.setattr(mapping_events, "_REMEMBERED_NS", 0)
            monkeypatch.setattr(mapping_events, "_FORGOTTEN_EVERY_NS", 0)
            assert events.history.lookup(pid, address, when)
            events.take()
            assert events.history.lookup(pid, address, when) is None
            assert events.history.program_of(going_on.pid, time.monotonic_ns())
        events.take()
        assert not events.history.program_of(going_on.pid, time.monotonic_ns())
    finally:
        events.close()
