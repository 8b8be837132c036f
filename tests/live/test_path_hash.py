"""Call paths of programs that try to have them taken for others, by what they are hashed to."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from hpcd.bpf.kernel import syscalls
from hpcd.bpf.kernel.maps import possible_cpus
from hpcd.bpf.sampler import Sampler
from hpcd.bpf.sampler_options import SamplerOptions
from hpcd.bpf.sampler_programs import SamplerPrograms
from hpcd.bpf.wire import COPIED, EventHead, EventKind, StackEvent, ThreadEvent
from hpcd.measurement.reader import Measurement, open_measurement
from hpcd.model import frame as frames
from hpcd.model.identity import ModuleKind
from tests.support.waiting import Recorder, started

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="its instructions"),
]

# Numbers that the module of code made at run time may get: it is among the first.
_MODULES = 24


def seconds_by_path(measurement: Measurement) -> Counter[tuple[int, int]]:
    """CPU time by the addresses of the innermost frame, in code made at run time, and its caller's.

    The module of that code must be one of the numbers that the program has pairs for.
    """
    (module,) = (m for m in measurement.modules.values() if m.kind is ModuleKind.JIT)
    assert module.id <= _MODULES
    cct = measurement.cct
    address = frames.offset_of(cct.frame) + np.uint64(module.base)
    is_jit = frames.module_of(cct.frame) == module.id
    seconds: Counter[tuple[int, int]] = Counter()
    for part in measurement.record_chunks():
        for node, event, value in zip(
            part.node.tolist(), part.event.tolist(), part.value.tolist(), strict=True
        ):
            described = measurement.events[event]
            if is_jit[node] and described.metric == "cpu_time":
                key = int(address[node]), int(address[cct.parent[node]])
                seconds[key] += value * described.scale
    return seconds


def test_paths_made_to_collide_stay_apart(tmp_path: Path, build: Callable[..., Path]) -> None:
    """Each of a pair is shown as often as it is executed."""
    process = started(build("colliding.c"), 0.1, _MODULES)
    recorder = Recorder(tmp_path / "m", "-p", process.pid, "--no-blocked")
    out, _ = process.communicate()
    recorder.wait()
    with open_measurement(tmp_path / "m") as measurement:
        seconds = seconds_by_path(measurement)
    pairs = [json.loads(line) for line in out.splitlines()]
    assert len(pairs) == _MODULES
    for pair in pairs:
        for innermost, caller, used in pair["paths"]:
            assert used / 3 < seconds[innermost, caller] < 2 * used, pair


def test_programs_share_no_path_by_its_addresses(build: Callable[..., Path]) -> None:
    """Two processes that are not known yet execute the same addresses. A path is an address then,
    and what it means depends on the process."""
    clock = syscalls.PerfEvent(syscalls.PERF_TYPE_SOFTWARE, syscalls.SW_CPU_CLOCK, frequency=997)
    # There is no room for copies of stacks: paths are interned at once.
    options = SamplerOptions(everything=True, waiting=False, rings=(1 << 20, 1 << 22, 1 << 12))
    programs = SamplerPrograms([clock], list(range(possible_cpus())), options)
    with closing(Sampler(programs)) as sampler:
        processes = [started(build("colliding.c"), 0.1, 1) for _ in range(2)]
        sampler.programs.attach()
        for process in processes:
            process.communicate()
        sampler.programs.stop()
        samples, events = sampler.take_samples(), sampler.take_events()
    owner, announced = {}, {}
    for raw in events:
        head = np.frombuffer(raw, EventHead.dtype(), 1)[0]
        if head["kind"] == EventKind.THREAD:
            event = ThreadEvent.unpack(raw)
            owner[event.thread] = event.tgid
        elif head["kind"] == EventKind.STACK:
            stack = np.frombuffer(raw, StackEvent.dtype(), 1)[0]
            announced[int(stack["cache"]), int(stack["stack"])] = int(head["tgid"])
    compared: Counter[int] = Counter()
    for sample in samples[samples["stack"] & COPIED == 0]:
        process_id = owner[int(sample["thread"])]
        if process_id in [process.pid for process in processes]:
            compared[process_id] += 1
            key = int(sample["cache"]), int(sample["stack"])
            assert announced[key] == process_id
    assert len(compared) == 2
