"""Tasks in processes: whatever is killed, nobody waits for what will not come."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import BrokenExecutor

import pytest

from hpcd.analysis.merge.tasks.executors import WorkerDiedError, run_all
from hpcd.analysis.merge.tasks.process_pool import ProcessPool

_FOREVER = -1
_KILLED = -2
_WRONG = -3
_EXIT = -4


def work(task: int) -> int:
    if task == _FOREVER:
        time.sleep(1000)
    if task == _KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    if task == _WRONG:
        raise ValueError("a wrong task")
    if task == _EXIT:
        os._exit(3)
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
    with pytest.raises(BrokenExecutor, match="killed"):
        pool.submit(work, 1)


def test_how_a_worker_ended_is_said() -> None:
    with ProcessPool(1) as pool, pytest.raises(WorkerDiedError, match="ended with exit code 3; "):
        list(run_all(pool, work, [_EXIT]))
    with ProcessPool(1) as pool, pytest.raises(WorkerDiedError, match="on standard error; "):
        list(run_all(pool, sys.exit, ["planted"]))
