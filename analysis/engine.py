"""Where a merge's tasks run: anything that is a ``concurrent.futures.Executor``.

Tasks are module-level functions of small picklable arguments; bulk data goes through files that
all workers can reach. That is all an engine has to offer, so processes on one machine, MPI and
Dask serve alike.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from typing import ParamSpec, TypeVar

from hpcd.errors import HpcdError

_Args = ParamSpec("_Args")
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


_TICK_SECONDS = 0.5
# What executors say when a worker is gone: concurrent.futures, Dask.
_DEATHS = ("BrokenProcessPool", "BrokenExecutor", "KilledWorker")


class WorkerDiedError(HpcdError):
    """A worker was killed under us."""

    def __init__(self) -> None:
        super().__init__(
            "a merge worker was killed (out of memory?);"
            " run it again: it goes on with what was read"
        )


class InlineExecutor(Executor):
    """Runs each task at once in this process: no start-up cost, and nothing to pickle."""

    def submit(
        self, fn: Callable[_Args, _Result], /, *args: _Args.args, **kwargs: _Args.kwargs
    ) -> Future[_Result]:
        """Run ``fn`` now; its exception is kept in the future like any executor's."""
        future: Future[_Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # an executor's duty: the caller decides, at result()
            future.set_exception(error)
        return future


def local_executor(workers: int | None = None) -> Executor:
    """Processes on this machine, ``workers`` of them (None: one per CPU we may use)."""
    count = workers or len(os.sched_getaffinity(0))
    if count <= 1:
        return InlineExecutor()
    # Forking a process with threads (the progress display) can deadlock the child. Ctrl-C reaches
    # the workers too: they end silently, and the merge says so once.
    return ProcessPoolExecutor(
        count,
        mp_context=multiprocessing.get_context("forkserver"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_DFL),
    )


def run_all(
    executor: Executor,
    function: Callable[[_Task], _Result],
    tasks: Sequence[_Task],
    tick: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, Future[_Result]]]:
    """Run ``function`` on each task; (task number, finished future) as they finish.

    ``tick`` is called now and then while nothing finishes. Raises :class:`WorkerDiedError` when a
    worker died.
    """
    futures = {executor.submit(function, task): number for number, task in enumerate(tasks)}
    waiting = set(futures)
    try:
        while waiting:
            done, waiting = wait(waiting, _TICK_SECONDS, FIRST_COMPLETED)
            if not done:
                tick()
            for future in sorted(done, key=lambda each: futures[each]):
                if type(future.exception()).__name__ in _DEATHS:
                    raise WorkerDiedError
                yield futures[future], future
    finally:
        for future in futures:
            future.cancel()
