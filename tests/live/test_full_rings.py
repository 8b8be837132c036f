"""The reader of the programs' rings sleeps until they say that they fill; what has no room in them
is counted."""

from __future__ import annotations

import select
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hpcd.bpf import sampler_options
from hpcd.bpf.kernel import syscalls
from hpcd.bpf.kernel.maps import possible_cpus
from hpcd.bpf.sampler import Sampler
from hpcd.bpf.sampler_options import SamplerOptions
from hpcd.bpf.sampler_programs import SamplerPrograms
from hpcd.bpf.wire import Drop, EventHead, EventKind
from hpcd.daemon.capture.loop.session import Session, readable
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.capture.start.recording import Recording
from hpcd.daemon.targets.selector import Selector

pytestmark = pytest.mark.root
WAITING = "import time\nwhile True: time.sleep(0.0001)"
TOLD = "input()\n"
ENDING = """import time
end = time.monotonic() + 1.5
while time.monotonic() < end: time.sleep(0.0001)"""


def test_a_ring_says_that_it_fills() -> None:
    clock = syscalls.PerfEvent(syscalls.PERF_TYPE_SOFTWARE, syscalls.SW_CPU_CLOCK, frequency=99)
    options = SamplerOptions(everything=True, rings=(1 << 15, 1 << 22, 1 << 22))
    cpus = list(range(possible_cpus()))
    with closing(Sampler(SamplerPrograms([clock], cpus, options))) as sampler:
        assert not readable([sampler.full_descriptor], 0)
        sampler.programs.attach()
        waiting = subprocess.Popen([sys.executable, "-c", WAITING])
        try:
            assert readable([sampler.full_descriptor], 60)
        finally:
            waiting.kill()
            waiting.wait()
        sampler.programs.stop()
        assert 8 * sampler.samples.pending >= sampler.samples.size
        assert len(sampler.take_samples())
        assert not readable([sampler.full_descriptor], 0)


def test_programs_begun_that_a_full_ring_has_no_room_for_are_counted() -> None:
    clock = syscalls.PerfEvent(syscalls.PERF_TYPE_SOFTWARE, syscalls.SW_CPU_CLOCK, frequency=1)
    options = SamplerOptions(selecting=True, rings=(1 << 15, 1 << 12, 1 << 22))
    programs = SamplerPrograms([clock], list(range(possible_cpus())), options)
    with closing(Sampler(programs)) as sampler:
        sampler.programs.attach()
        for _ in range(100):
            subprocess.run(["true"], check=True)
        sampler.programs.stop()
        kinds = [EventHead.unpack(event).kind for event in sampler.take_events()]
        lost = int(sampler.counters()[0]["dropped"][Drop.EVENT_RING])
    assert lost and kinds.count(EventKind.EXEC) + lost >= 100


@pytest.mark.parametrize("code", [WAITING, ENDING], ids=["goes on", "ends"])
def test_what_a_thread_did_as_its_last_switches_were_lost_is_not_known(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is neither CPU time nor a wait."""
    monkeypatch.setattr(sampler_options, "_SAMPLE_RING", 1 << 12)
    monkeypatch.setattr(Session, "_drain_when_needed", lambda *_, **__: None)
    command = [sys.executable, "-c", TOLD + code]
    programs = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in range(8)]

    def begin() -> None:
        for program in programs:
            assert program.stdin
            program.stdin.write("\n")
            program.stdin.close()

    try:
        selector = Selector(pids=tuple(program.pid for program in programs))
        summary = Recording(Options(selector, tmp_path / "m", duration=2)).run(attached=begin)
    finally:
        for program in programs:
            program.kill()
            program.wait()
    assert summary.samples.dropped and summary.time
    assert summary.time.cpu <= summary.cpu.counted_s + 0.001
    assert summary.time.lost > summary.time.blocked
    assert sum(summary.time[:3]) + summary.time.lost == pytest.approx(summary.time.lifetime, 0.01)


def test_a_ring_that_holds_little_does_not_keep_the_recorder_awake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is readable also for what was in it when its reader began to listen."""
    wait = Session._wait
    waits: list[bool] = []

    def wait_for_news(session: Session, seconds: float) -> list[int]:
        samples = session._parts.sampler.samples
        if samples.pending and not any(waits):
            samples._urgent.unregister(samples.map.fd)
            samples._urgent.register(samples.map.fd, select.EPOLLIN | select.EPOLLET)
            waits.append(True)
        else:
            waits.append(False)
        return wait(session, seconds)

    monkeypatch.setattr(Session, "_wait", wait_for_news)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        selector = Selector(pids=(busy.pid,))
        Recording(Options(selector, tmp_path / "m", duration=3)).run()
        busy.kill()
    assert any(waits)
    assert len(waits) < 500
