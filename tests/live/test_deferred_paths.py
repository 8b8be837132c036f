"""Paths finished late are the paths that would have been taken at once."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hpcd.analysis
from hpcd.bpf import sampler_options, sampler_programs
from hpcd.bpf.kernel import syscalls
from hpcd.bpf.sampler import Sampler
from hpcd.bpf.sampler_programs import SamplerPrograms
from hpcd.bpf.table_memory import MAPPING, UnwindTables, pack_rows
from hpcd.bpf.wire import COPY_BYTES, StackCopy
from hpcd.daemon.capture.loop.session import Session
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.capture.start.recording import Recording
from hpcd.daemon.targets.selector import Selector
from hpcd.daemon.unwind.unwind_rules import InternedRules
from hpcd.errors import PlatformError
from hpcd.model.codes import UnwindStatus
from tests.support.paths import ROOT
from tests.support.recorded import HPCD, call_paths, record
from tests.support.recorded import hpcd as command
from tests.support.replay import Replay, SavedStack
from tests.support.tables import decoder_of

pytestmark = pytest.mark.root

DATA = ROOT / "tests/data/stacks"


def copy_of(saved: SavedStack) -> bytes:
    """Return the copy that the BPF programs would have sent of a saved stack."""
    head = np.zeros(1, StackCopy.dtype())
    stack = saved.stack[:COPY_BYTES]
    head["start"], head["size"] = saved.stack_start, len(stack)
    registers = saved.registers.astype("<u8").tobytes()
    return head.tobytes() + registers + stack


def enter_no_walkers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make samples and switches find nothing that walks their stacks: all paths are deferred."""
    enter = SamplerPrograms._enter

    def enter_others(self: SamplerPrograms, programs: Any) -> None:
        fds = {name: fd for name, fd in programs.fds.items() if not name.startswith("walk_")}
        enter(self, SimpleNamespace(fds=fds))  # type: ignore[arg-type]

    monkeypatch.setattr(SamplerPrograms, "_enter", enter_others)


def test_the_programs_walk_copies_as_the_replay_does(tmp_path: Path) -> None:
    replay = Replay(tmp_path)
    clock = syscalls.PerfEvent(syscalls.PERF_TYPE_SOFTWARE, syscalls.SW_CPU_CLOCK, frequency=997)
    loaded = Sampler(SamplerPrograms([clock], [0]))
    walked = 0
    try:
        walker = loaded.saved_walker()
        tables = UnwindTables(loaded.programs.memory)
        rules = InternedRules()
        for path in sorted(DATA.glob("*.npz")):
            saved = SavedStack.load(path)
            if saved.machine != os.uname().machine:
                continue
            saved.stack = saved.stack[:COPY_BYTES]
            frames, ending = replay.walk(saved)
            directories = []
            for pc, rule, own_rules, pages in saved.tables:
                rows = pack_rows(pc, rule, pages, before=len(own_rules))
                directories.append(tables.add_module(rows, rules.intern(own_rules)).directory)
            rules.store(loaded.set_rules)
            mappings = saved.mappings.astype(MAPPING)
            mappings["dir"] = [directories[index] for index in mappings["dir"]]
            number, _, late = walker.walk(copy_of(saved), tables.add_space(mappings))
            assert UnwindStatus(number) is ending
            assert late.tolist() == frames.tolist()
            walked += 1
        walker.close()
    finally:
        loaded.close()
    assert walked > 10


def test_a_command_starts_when_its_files_are_analysed(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """On a machine that hpcd has never run on, through a launcher that is told the program."""
    executable = build("paths.c")
    done = subprocess.run(
        [*HPCD, "run", "--json", "-o", tmp_path / "m", "--", "env", executable, "1"],
        env={**os.environ, "HPCD_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    unwind = json.loads(done.stdout.splitlines()[-1])["unwind"]
    assert unwind["paths"] > 500
    assert "module not yet analysed" not in unwind["truncated"]
    # Those copied are of the moments between an exec and the reading of the mappings.
    assert unwind["deferred"]["copied"] < 0.5 * unwind["paths"]


@contextlib.contextmanager
def recorded_without_tables(
    folder: Path, executable: Path, then: str = ":"
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A recording of a program that has ended while the decoder was stopped: no table was made.
    The program is one that the command does not name, and the script then does ``then``. The
    recorder and the pid of its decoder."""
    started, stopped, ended = (folder / name for name in ("started", "stopped", "ended"))
    os.mkfifo(stopped)
    script = folder / "script"
    script.write_text(f": > {started}; read go < {stopped}; {executable} 2; : > {ended}; {then}")
    with subprocess.Popen(
        [*HPCD, "run", "--json", "-o", str(folder / "late"), "--", "sh", script],
        env={**os.environ, "HPCD_CACHE": str(folder / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as recorder:
        while not started.exists():
            assert recorder.poll() is None
            os.sched_yield()
        decoder = decoder_of(recorder.pid)
        assert decoder is not None
        os.kill(decoder, signal.SIGSTOP)
        try:
            stopped.write_text("go\n")
            while not ended.exists():
                assert recorder.poll() is None
                os.sched_yield()
            yield recorder, decoder
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(decoder, signal.SIGCONT)


def test_paths_are_whole_though_no_table_is_ready_while_the_program_runs(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    source = build("paths.c")
    executable = tmp_path / "never-seen"
    shutil.copy(source, executable)
    with recorded_without_tables(tmp_path, executable) as (recorder, decoder):
        os.kill(decoder, signal.SIGCONT)
        output, _ = recorder.communicate()
    summary = json.loads(output.splitlines()[-1])
    unwind = summary["unwind"]
    assert unwind["deferred"]["copied"] > 1000
    assert unwind["deferred"]["walked"] >= 0.99 * unwind["deferred"]["copied"]
    assert unwind["complete"] >= 0.99 * unwind["paths"]
    late = call_paths(tmp_path / "late", executable)
    record(tmp_path / "first", [source, 0.1])
    record(tmp_path / "live", [source, 2])
    live = call_paths(tmp_path / "live", source)
    # What the program's own functions call each other is the same, seen late and live.
    shape = {own(path) for path in live if not path[0].startswith("!")}
    whole = {own(path): count for path, count in late.items() if not path[0].startswith("!")}
    strange = sum(count for path, count in whole.items() if path not in shape)
    assert strange <= 0.01 * sum(late.values())


def test_large_stacks_are_copied_too(tmp_path: Path, build: Callable[..., Path]) -> None:
    executable = tmp_path / "never-seen"
    shutil.copy(build("large_stack.c"), executable)
    with recorded_without_tables(tmp_path, executable) as (recorder, decoder):
        os.kill(decoder, signal.SIGCONT)
        output, _ = recorder.communicate()
    unwind = json.loads(output.splitlines()[-1])["unwind"]
    deferred = unwind["deferred"]
    # 180 MB a second: more than there is room for.
    assert deferred["copied"] > 300
    short = deferred["not_copied"] + deferred["no_room"]
    assert unwind["complete"] + short >= 0.99 * unwind["paths"], unwind["truncated"]
    paths = call_paths(tmp_path / "late", executable)
    deepest = max(paths, key=len)
    assert deepest.count("down") == 1001 and {"main", "hollow"} <= set(deepest)


def test_who_does_not_want_to_wait_for_the_last_tables_need_not(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    executable = tmp_path / "never-seen"
    shutil.copy(build("paths.c"), executable)
    leave = tmp_path / "leave"
    os.mkfifo(leave)
    with recorded_without_tables(tmp_path, executable, f"read go < {leave}") as (recorder, _):
        assert recorder.stderr
        recorder.send_signal(signal.SIGINT)
        for line in recorder.stderr:
            if "the last call paths wait for" in line:
                break
        recorder.send_signal(signal.SIGINT)
        leave.write_text("go\n")
        output, _ = recorder.communicate()
    assert recorder.returncode == 0
    summary = json.loads(output.splitlines()[-1])
    unwind = summary["unwind"]
    assert unwind["deferred"]["gave_up"] > 1000
    assert unwind["truncated"]["module not yet analysed"] > 1000
    # What was going on when the recording was ended did not wait for the tables.
    command("merge", tmp_path / "late", "-o", tmp_path / "db")
    with hpcd.analysis.open(tmp_path / "db") as db:
        assert db.duration_ns < 1e9 * (summary["duration_s"] + 1)


def test_paths_are_whole_before_their_walkers_are_loaded(
    tmp_path: Path, build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are not when a recording begins; in this one they never are."""
    enter_no_walkers(monkeypatch)
    executable = build("paths.c")
    with subprocess.Popen([executable, "60"]) as process:
        selector = Selector(pids=(process.pid,))
        recording = Recording(Options(selector, tmp_path / "m", duration=0.5))
        unwind = recording.run().unwind
        process.kill()
    assert unwind.deferred.walked >= 0.99 * unwind.paths > 0
    assert unwind.complete >= 0.99 * unwind.paths
    assert "main" in {name for path in call_paths(tmp_path / "m", executable) for name in path}


def test_copies_are_taken_while_the_recorder_is_busy(
    tmp_path: Path, build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if its loop did not come round before the end, by when their ring were full twice over."""
    enter_no_walkers(monkeypatch)
    monkeypatch.setattr(Session, "_drain_when_needed", lambda *_, **__: None)
    monkeypatch.setattr(sampler_options, "_COPY_RING", 1 << 18)
    executable = build("paths.c")
    with subprocess.Popen([executable, "60"]) as process:
        selector = Selector(pids=(process.pid,))
        options = Options(selector, tmp_path / "m", frequency=499, duration=2)
        unwind = Recording(options).run().unwind
        process.kill()
    # The thread, too, may wait for a CPU; without it there is room for one in eight.
    assert unwind.deferred.not_copied <= 0.5 * unwind.paths
    assert unwind.deferred.walked >= 0.99 * unwind.deferred.copied


def test_walkers_that_the_kernel_refuses_end_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = sampler_programs.load_sampler

    def refuse(constants: dict[str, int], perf: list[str], *rest: Any, **more: Any) -> object:
        if perf == ["walk_sample"]:
            raise PlatformError("as the test asks")
        return load(constants, perf, *rest, **more)

    monkeypatch.setattr(sampler_programs, "load_sampler", refuse)
    options = Options(Selector(pids=(os.getppid(),)), tmp_path / "m", duration=60)
    with pytest.raises(PlatformError, match="as the test asks"):
        Recording(options).run()


def own(path: tuple[str, ...]) -> tuple[str, ...]:
    """The program's own functions, from main on, recursion counted once."""
    names = [name for name in path if not name.startswith("[")]
    return tuple(
        name for name, before in zip(names, [None, *names], strict=False) if name != before
    )
