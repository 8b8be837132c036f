"""Positions of threads: by gdb, which stops them, and by hpcd."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from hpcd.daemon.stacks.stack_reader import StackReader
from hpcd.model import frame as frames
from hpcd.model.identity import ModuleKind

# Prints of each thread its id and the program counters of its frames, innermost first.
GDB_SCRIPT = """
import gdb
gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame, counters = gdb.newest_frame(), []
    while frame is not None:
        if frame.type() == gdb.NORMAL_FRAME:
            counters.append(frame.pc())
        frame = frame.older()
    print("frames", thread.ptid[1], *counters)
"""


def by_gdb(
    pid: int, script: Path, *, held: int = 0, release: Callable[[], object] = lambda: None
) -> dict[int, list[int]]:
    """The program counters of each thread's frames, innermost first, as gdb finds them.

    No debugger can stop a thread that no signal wakes: ``release`` lets thread ``held`` go on once
    gdb traces it, so that gdb has it before it has left where it stood.
    """
    script.write_text(GDB_SCRIPT)
    command = ["gdb", "-batch", "-p", str(pid), "-x", str(script)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as gdb:
        while held and "TracerPid:\t0\n" in Path(f"/proc/{pid}/task/{held}/status").read_text():
            assert gdb.poll() is None
            time.sleep(0.002)
        release()
        output, _ = gdb.communicate(timeout=60)
    lines = [line.split()[1:] for line in output.splitlines() if line.startswith("frames ")]
    return {int(tid): [int(counter) for counter in counters] for tid, *counters in lines}


def places_of(pid: int) -> dict[int, list[tuple[str, int]]]:
    """Return the positions by hpcd: the file and the address in it of each frame."""
    with contextlib.closing(StackReader()) as reader:
        snapshot = reader.snapshot([pid])
    places = {}
    for thread in snapshot.threads:
        path = snapshot.paths[thread.path][::-1]
        modules = [snapshot.modules[number] for number in frames.module_of(path).tolist()]
        places[thread.tid] = [
            (module.path, offset)
            for module, offset in zip(modules, frames.offset_of(path).tolist(), strict=True)
            if module.kind is ModuleKind.ELF
        ]
    return places


def in_files(pid: int, counters: list[int], *, faulted: bool = False) -> list[tuple[str, int]]:
    """Program counters as :func:`places_of` has them: within the call, or the system call, that
    they stand behind; of a thread that has ``faulted`` the innermost is that of the instruction."""
    lines = [line.split(maxsplit=5) for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    mapped = [
        (*(int(bound, 16) for bound in line[0].split("-")), line[5].strip())
        for line in lines
        if len(line) > 5
    ]
    places = []
    for number, counter in enumerate(counters):
        address = counter if faulted and number == 0 else counter - 1
        (path,) = (path for start, end, path in mapped if start <= address < end)
        places.append((path, address - min(start for start, _, other in mapped if other == path)))
    return places
