"""Tasks in processes: whatever is killed, nobody waits for what will not come."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor
from pathlib import Path

import pytest

from hpcd.analysis.merge.executors import WorkerDiedError, run_all
from hpcd.analysis.merge.process_pool import ProcessPool
from tests.support.random_measurements import write_measurement

_FOREVER = -1
_KILLED = -2
_WRONG = -3


def work(task: int) -> int:
    if task == _FOREVER:
        time.sleep(1000)
    if task == _KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    if task == _WRONG:
        raise ValueError("a wrong task")
    return task * task


def test_results_errors_and_what_cannot_be_pickled() -> None:
    with ProcessPool(2) as pool:
        results = {n: future.result() for n, future in run_all(pool, work, range(1, 300))}
        assert results == {n: (n + 1) ** 2 for n in range(299)}
        with pytest.raises(ValueError, match="a wrong task") as caught:
            pool.submit(work, _WRONG).result()
        assert "in work" in caught.value.__notes__[0]
        with pytest.raises((AttributeError, TypeError), match=r"[Pp]ickle"):
            pool.submit(lambda: 1).result()
        assert len(multiprocessing.active_children()) == 2
    assert multiprocessing.active_children() == []
    with pytest.raises(RuntimeError):
        pool.submit(work, 1)


def test_a_killed_worker_ends_all_the_others() -> None:
    """One is stuck in its task, thousands of tasks wait, and some have been submitted since."""
    with ProcessPool(2) as pool, pytest.raises(WorkerDiedError, match="killed"):
        list(run_all(pool, work, [_FOREVER, _KILLED, *range(1, 3000)]))
    assert multiprocessing.active_children() == []
    with pytest.raises(BrokenExecutor):
        pool.submit(work, 1)


def workers_of(command: int) -> list[int]:
    """The merge workers of a command: children of the process that forks them."""
    parents, pids = [command], []
    while parents:
        parent = parents.pop()
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # a thread that ended meanwhile
                found = [int(pid) for pid in children.read_text().split()]
                parents += found
                pids += found if parent != command else []
    return pids


def test_a_merge_whose_worker_is_killed_says_so_and_goes_on_later(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"m{number}") for number in range(2)]
    for number, path in enumerate(paths):
        write_measurement(Path(path), seed=number)
    command = [
        sys.executable, "-m", "hpcd", "merge", *paths, "-o", str(tmp_path / "db"), "--workers", "2",
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as merging:
        # It has a task from its first moment on.
        while not (workers := workers_of(merging.pid)):
            assert merging.poll() is None
        os.kill(workers[0], signal.SIGKILL)
        said = merging.communicate(timeout=60)[1]
    assert merging.returncode == 1
    assert said.splitlines() == [
        "hpcd: a worker process was killed (out of memory?);"
        " run it again: it goes on with what was read"
    ]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
