"""Paths where threads left their CPU, taken by two recorders at once: one whose programs keep the
rules they look up and the kernel's parts of paths, one whose programs look up each.

``python -m tests.support.switch_paths FILE KEPT ARGUMENT...`` is ``hpcd ARGUMENT...`` that also
writes the paths to FILE. With KEPT 0 address spaces have no numbers and parts of paths no room:
the programs keep nothing.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hpcd.array_types import U64
from hpcd.bpf import sampler_maps
from hpcd.bpf.kernel_targets import KernelTargets
from hpcd.bpf.sampler import Sampler
from hpcd.bpf.table_memory import UnwindTables
from hpcd.bpf.wire import EventHead, EventKind, StackEvent, SwitchEvent, ThreadEvent
from hpcd.model.codes import UnwindStatus
from hpcd.model.frame import OFFSET_MASK
from tests.support.paths import ROOT
from tests.support.waiting import Recorder, started

_NOT_WALKED = 0  # in place of a path that was not walked at once
_EARLY = (UnwindStatus.NO_MAPPING, UnwindStatus.NO_TABLE, UnwindStatus.NO_PROCESS)


def build(folder: Path) -> Path:
    """Compile the program that changes its stacks in every way; ``folder/changing``."""
    program = folder / "changing"
    source = ROOT / "tests/programs/changing.cpp"
    flags = ("-O2", "-fomit-frame-pointer", "-pthread")
    subprocess.run(["g++", *flags, "-o", str(program), str(source)], check=True)
    return program


def compare(folder: Path, program: Path, turns: int, seed: int) -> tuple[int, list[str]]:
    """Record ``program`` (tests/programs/changing.cpp) by both. Returns the number of paths that
    both have walked at once, and what differs."""
    process = started(program, turns, seed)
    files = [folder / f"{seed}-{kept}.npz" for kept in (1, 0)]
    recorders = [
        Recorder(
            file.with_suffix(""), "-p", process.pid,
            command=[sys.executable, "-m", "tests.support.switch_paths", str(file), file.stem[-1]],
        )
        for file in files
    ]  # fmt: skip
    process.communicate("\n")
    for recorder in recorders:
        assert recorder.wait()["samples"]["dropped"] == {}
    with np.load(files[0]) as kept, np.load(files[1]) as looked_up:
        assert kept.files and sorted(kept.files) == sorted(looked_up.files)
        compared, findings = 0, []
        for tid in kept.files:
            assert len(kept[tid]) == len(looked_up[tid]), f"seed {seed}: other switches of {tid}"
            both = (kept[tid] != _NOT_WALKED) & (looked_up[tid] != _NOT_WALKED)
            wrong = np.flatnonzero(both & (kept[tid] != looked_up[tid]))
            if len(wrong):
                findings.append(f"seed {seed}: {len(wrong)} paths of thread {tid}, at {wrong[:3]}")
            compared += int(both.sum())
    return compared, findings


class _Paths:
    """The paths of one recorder's switches, by thread."""

    def __init__(self) -> None:
        self._path: dict[int, int] = {}
        self._tid: dict[int, int] = {}
        self._reports: list[npt.NDArray[np.void]] = []
        self._found: defaultdict[int, list[U64]] = defaultdict(list)

    def observe(self) -> None:
        """Look at what samplers in this process take from now on."""
        take_samples, take_events, add_thread = (
            Sampler.take_samples, Sampler.take_events, KernelTargets.add_thread,
        )  # fmt: skip

        def samples(sampler: Sampler) -> npt.NDArray[np.void]:
            self._reports.append(take_samples(sampler))
            return self._reports[-1]

        def events(sampler: Sampler) -> list[bytes]:
            taken = take_events(sampler)
            for raw in taken:
                self._announce(raw)
            self._resolve()
            return taken

        def thread(targets: KernelTargets, tid: int, *, before_exec: bool = False) -> int | None:
            number = add_thread(targets, tid, before_exec=before_exec)
            if number is not None:
                self._tid[number] = tid
            return number

        replaced: list[tuple[type, str, Callable[..., object]]] = [
            (Sampler, "take_samples", samples), (Sampler, "take_events", events),
            (KernelTargets, "add_thread", thread),
        ]  # fmt: skip
        for kind, name, function in replaced:
            setattr(kind, name, function)

    def _announce(self, raw: bytes) -> None:
        """Note the path or the thread of an event."""
        kind = int(np.frombuffer(raw, EventHead.dtype(), 1)["kind"][0])
        if kind == EventKind.THREAD:
            event = ThreadEvent.unpack(raw)
            self._tid[event.thread] = event.tid
        elif kind in (EventKind.STACK, EventKind.COPIED):
            head = np.frombuffer(raw, StackEvent.dtype(), 1)[0]
            frames = np.frombuffer(raw, np.uint64, offset=StackEvent.BYTES)
            # Each recorder numbers modules by itself, and the innermost frame is its own program
            # (on aarch64 the second, too).
            kernel, user = np.split(frames, [int(head["kernel_frames"])])
            kernel, user = kernel[kernel != kernel[:1]], user & np.uint64(OFFSET_MASK)
            text = kernel.tobytes() + user.tobytes() + bytes([int(head["end_reason"])])
            digest = int.from_bytes(blake2b(text, digest_size=8).digest(), "little")
            key = int(head["cache"]) << 32 | int(head["stack"])
            early = kind == EventKind.COPIED or int(head["end_reason"]) in _EARLY
            self._path[key] = _NOT_WALKED if early else digest

    def _resolve(self) -> None:
        """Find the paths of the reports whose stacks have been announced."""
        reports, self._reports = self._reports, []
        for taken in reports:
            left = taken["event"] > SwitchEvent.SWITCHED_IN
            out = taken[left & (taken["event"] < SwitchEvent.WOKEN)]
            keys = out["cache"].astype(np.uint64) << np.uint64(32) | out["stack"]
            distinct, which = np.unique(keys, return_inverse=True)
            paths = np.array([self._path[key] for key in distinct.tolist()], np.uint64)[which]
            for thread in np.unique(out["thread"]).tolist():
                self._found[self._tid[thread]].append(paths[out["thread"] == thread])

    def write(self, file: Path) -> None:
        """Write the paths of each thread, by its tid."""
        self._resolve()
        columns = {str(tid): np.concatenate(parts) for tid, parts in self._found.items()}
        np.savez(file, allow_pickle=False, **columns)


def _keep_nothing() -> None:
    """Give address spaces no numbers, and the kernel's parts of paths no room."""
    sampler_maps.MOST_KERNEL_PARTS = 1
    add_space = UnwindTables.add_space

    def without_number(tables: UnwindTables, mappings: npt.NDArray[np.void]) -> object:
        space = add_space(tables, mappings)
        space.number = 0
        return space

    setattr(UnwindTables, "add_space", without_number)  # noqa: B010


if __name__ == "__main__":
    from hpcd.__main__ import main

    _file, _kept, sys.argv[1:] = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    _observed = _Paths()
    _observed.observe()
    if _kept == "0":
        _keep_nothing()
    _code = main()
    _observed.write(_file)
    sys.exit(_code)
