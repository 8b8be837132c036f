"""Tasks in processes of this machine, any of which may be killed at any time.

This replaces ``concurrent.futures.ProcessPoolExecutor``, whose workers share queues and locks: as
of Python 3.11 it waits for ever if a worker is killed while tasks are submitted, cancelled or in
its pipe (https://github.com/python/cpython/issues/94777). Here each worker has a pipe of its own,
and one thread starts workers, hands out tasks, takes answers, and ends the other workers when one
dies: a killed worker closes its pipe at once.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from typing import Any, ParamSpec, TypeVar

from hpcd.errors import HpcdError
from hpcd.signals import blocked, is_ignored
from hpcd.startup.garbage import fewer_collections
from hpcd.startup.isolation import isolated_children

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")

# Forking a process with threads (the progress display) can deadlock the child: workers are forked
# by a server without threads, which has imported their modules once for all of them.
CONTEXT = multiprocessing.get_context("forkserver")
"""Call :func:`start_fork_server` before a process of it is started."""

_IMPORTED = ["hpcd.analysis.merge.stages"]
# Time to wait for a worker that was asked or made to end: one may be stuck in the kernel.
_END_SECONDS = 10.0


class WorkerEndedError(BrokenExecutor):
    """A worker ended before its task did; ``str`` of it describes how, beginning with a verb."""


@dataclass
class _Task:
    future: Future[Any]
    call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, object]]


@dataclass
class _Worker:
    process: ForkServerProcess
    task: _Task | None


class ProcessPool(Executor):
    """At most ``workers`` processes, started when there are tasks for them.

    Functions, arguments and results are pickled. When a worker dies, all futures that are not
    finished fail with :class:`WorkerEndedError`, as does every later :meth:`submit`, and the other
    workers are killed.
    """

    def __init__(self, workers: int) -> None:
        start_fork_server()
        self._most = workers
        self._lock = threading.Lock()
        # Shared with the thread, under the lock.
        self._waiting: deque[_Task] = deque()
        self._closing = self._ended = False
        self._broken: Exception | None = None
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # The thread's own.
        self._workers: dict[Connection, _Worker] = {}
        self._thread = threading.Thread(target=self._serve, name="process-pool", daemon=True)
        self._thread.start()

    def submit(
        self, fn: Callable[_Args, _Result], /, *args: _Args.args, **kwargs: _Args.kwargs
    ) -> Future[_Result]:
        """Run ``fn`` in a worker. Raises the error that ended the pool, such as a worker death."""
        future: Future[_Result] = Future()
        with self._lock:
            if self._broken:
                raise self._broken
            if self._closing:
                raise RuntimeError("the pool is closed")
            self._waiting.append(_Task(future, (fn, args, kwargs)))
            self._notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks; the workers end after the existing tasks."""
        with self._lock:
            self._closing = True
            waiting = list(self._waiting) if cancel_futures else []
            self._notify()
        for task in waiting:
            task.future.cancel()
        if wait:
            self._thread.join()

    def _notify(self) -> None:
        """Wake the thread; under the lock, so that the pipe is not closed meanwhile."""
        if not self._ended:
            with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
                os.write(self._wake, b"\0")

    def _serve(self) -> None:
        """The thread: until the pool is closed and has nothing to do, or is broken."""
        try:
            while self._hand_out():
                ready = wait([self._woken, *self._workers])
                if self._woken in ready:
                    os.read(self._woken, 1 << 16)
                for connection in ready:
                    if isinstance(connection, Connection):
                        self._take(connection)
        # After any error no thread may wait for an answer that will not come.
        except Exception as error:
            self._break(error)
        finally:
            self._end()

    def _hand_out(self) -> bool:
        """Give waiting tasks to workers; False when there are none, none under way, and there will
        be no more."""
        while True:
            idle = next((c for c, worker in self._workers.items() if worker.task is None), None)
            with self._lock:
                if not self._waiting:
                    busy = any(worker.task for worker in self._workers.values())
                    return busy or not self._closing
                if idle is None and len(self._workers) >= self._most:
                    return True
                task = self._waiting.popleft()
            if not task.future.set_running_or_notify_cancel():
                continue
            try:
                call = pickle.dumps(task.call, pickle.HIGHEST_PROTOCOL)
                connection = idle or self._start()
            except Exception as error:  # pickling may raise any error: it fails this task
                task.future.set_exception(error)
                continue
            self._workers[connection].task = task
            try:
                connection.send_bytes(call)
            except OSError:
                raise self._ending(connection) from None

    def _start(self) -> Connection:
        here, there = CONTEXT.Pipe()
        with there:
            process = CONTEXT.Process(target=_work, args=(there,), daemon=True)
            try:
                process.start()
            except EOFError:  # before it could say its number
                here.close()
                raise WorkerEndedError("ended as it started") from None
            except OSError as error:
                here.close()
                raise HpcdError(f"a worker process cannot be started: {error}") from None
        self._workers[here] = _Worker(process, None)
        return here

    def _take(self, connection: Connection) -> None:
        """Take a worker's answer to its task, or its end, which ends the pool."""
        worker = self._workers[connection]
        try:
            answer = connection.recv_bytes()
        except (EOFError, OSError):
            raise self._ending(connection) from None
        task, worker.task = worker.task, None
        assert task is not None
        try:
            result, error = pickle.loads(answer)
        except Exception as unreadable:  # for example an exception class that cannot be rebuilt
            result, error = None, unreadable
        if error is None:
            task.future.set_result(result)
        else:
            task.future.set_exception(error)

    def _ending(self, connection: Connection) -> WorkerEndedError:
        return WorkerEndedError(describe_ending(self._workers[connection].process))

    def _break(self, error: Exception) -> None:
        with self._lock:
            self._broken = error
            waiting = list(self._waiting)
            self._waiting.clear()
        for worker in self._workers.values():
            worker.process.kill()
        for worker in self._workers.values():
            if worker.task:
                worker.task.future.set_exception(error)
        for task in waiting:
            if task.future.set_running_or_notify_cancel():
                task.future.set_exception(error)

    def _end(self) -> None:
        """Every worker ends when its pipe does."""
        for connection in self._workers:
            connection.close()
        for worker in self._workers.values():
            worker.process.join(_END_SECONDS)
        with self._lock:
            self._ended = True
            os.close(self._woken)
            os.close(self._wake)


def start_fork_server() -> None:
    """Start the process that forks the workers of pools, unless it runs."""
    CONTEXT.set_forkserver_preload(_IMPORTED)
    # numpy's library would have threads there, and nothing multiplies matrices.
    with isolated_children(OPENBLAS_NUM_THREADS="1"):
        # The server starts it otherwise, and Python 3.11 unblocks SIGINT then.
        resource_tracker.ensure_running()
        with blocked((signal.SIGINT,)):  # it would end the imports there with a traceback
            ensure_running()


def describe_ending(process: BaseProcess) -> str:
    """Return how a process without an answer ended, such as "ended with exit code 1"."""
    process.join(_END_SECONDS)
    code = process.exitcode
    if code is None:
        return "gave no answer"
    if code == -signal.SIGKILL:
        return "was killed (out of memory?)"
    if code < 0:
        return f"was ended by signal {-code}"
    if code == 1:  # Python's, of an exception
        return "failed with the error that is on standard error"
    return f"ended with exit code {code}"


def _work(connection: Connection) -> None:
    """A worker: one task after another, until there are no more."""
    # Ctrl-C reaches the workers too, unless it is ignored: they end silently, and the process that
    # started them reports it once.
    if not is_ignored(signal.SIGINT):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
    with contextlib.suppress(EOFError, OSError), fewer_collections():
        while True:
            connection.send_bytes(_answer(connection.recv_bytes()))


def _answer(call: bytes) -> bytes:
    """The result of a call, and its error, pickled."""
    try:
        function, args, kwargs = pickle.loads(call)
        return pickle.dumps((function(*args, **kwargs), None), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # an executor's duty: the caller decides, at result()
        where = "".join(traceback.format_exception(error))
        error.add_note(where)
        try:
            return pickle.dumps((None, error))
        except Exception:  # an error with unpicklable contents
            return pickle.dumps((None, RuntimeError(where)))
