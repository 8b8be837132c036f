"""Programs whose threads stand in known places, and what ``hpcd stacks`` says of them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.recorded import HPCD
from tests.support.waiting import started


@contextlib.contextmanager
def asleep(executable: Path, *arguments: object, threads: int | None = None) -> Iterator[int]:
    """A program that sleeps, all ``threads`` of it by now; its pid."""
    process = started(executable, *arguments)
    try:
        while threads is not None and states(process.pid) != threads:
            time.sleep(0.002)
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def states(pid: int) -> int:
    """How many threads of ``pid`` sleep, if all do; else -1."""
    letters = [
        task.joinpath("stat").read_text().rpartition(")")[2].split()[0]
        for task in Path(f"/proc/{pid}/task").iterdir()
    ]
    return len(letters) if set(letters) <= {"S", "D"} else -1


def stacks(*options: object) -> dict[str, Any]:
    """Return the document of ``hpcd stacks --json``."""
    command = [*HPCD, "stacks", "--json", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def user_functions(thread: dict[str, Any]) -> list[str]:
    """Return the user's functions of a thread's path, innermost first."""
    return [frame["name"] for frame in reversed(thread["path"]) if not frame["kernel"]]


def switches_of(pid: int) -> dict[int, tuple[str, ...]]:
    """How often each thread of ``pid`` has left its CPU, and who traces it."""
    return {
        int(task.name): tuple(
            line
            for line in task.joinpath("status").read_text().splitlines()
            if "ctxt_switches" in line or line.startswith("TracerPid")
        )
        for task in Path(f"/proc/{pid}/task").iterdir()
    }
