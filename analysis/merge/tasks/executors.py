"""Executors of a merge's tasks: anything that is a ``concurrent.futures.Executor``.

Tasks are module-level functions of small picklable arguments; bulk data goes through files that
all workers must reach: with MPI or Dask on several nodes, a shared file system. That is all an
engine has to offer, so processes on one machine, MPI and Dask serve alike.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from hpcd.analysis.merge.tasks.process_pool import ProcessPool, WorkerEndedError
from hpcd.errors import HpcdError, UsageError
from hpcd.measurement.segments import measurement_size
from hpcd.processors import processor_count
from hpcd.startup.isolation import isolated_children

_Args = ParamSpec("_Args")
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


Progress = Callable[[str, int, int], None]
"""Called with the stage, how much of it is done, and how much there is (``read``: bytes)."""

DEFAULT_MEMORY = 1 << 30
"""Bytes a worker may use for records it gathers; blocks are smaller, and more, with less."""

_TICK_SECONDS = 0.5
# Bytes of measurements that are worth starting workers.
_WORTH_WORKERS = 16 << 20
# Tasks submitted and not finished: enough for the workers of a big machine.
_AHEAD = 4096
# Tasks that many small things are put into, at least, and how many of these one has at most.
_FEWEST_TASKS = 16
_MOST_TOGETHER = 64
# Exceptions of other executors for a lost worker: concurrent.futures, Dask.
_DEATHS = ("BrokenProcessPool", "BrokenExecutor", "KilledWorker")


class WorkerDiedError(HpcdError):
    """A worker ended before its task did: ``ending`` says how, ``advice`` suggests a remedy."""

    def __init__(
        self, ending: str, advice: str = "run it again: it continues with existing parts"
    ) -> None:
        super().__init__(f"a worker process {ending}; {advice}")
        self.ending = ending


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


def local_executor(workers: int | None) -> Executor:
    """Processes on this machine, ``workers`` of them (None: one per CPU we may use)."""
    count = workers or processor_count()
    if count <= 1:
        return InlineExecutor()
    return ProcessPool(count)


def workers_for(paths: Sequence[Path], workers: int | None) -> int:
    """The number of processes that merge the measurements ``paths`` for ``workers`` requested.
    Small ones are merged in this process: starting workers would take longer."""
    if workers is not None:
        return workers
    whole = 0
    for path in paths:
        whole += size_of(path)
        if whole >= _WORTH_WORKERS:
            return processor_count()
    return 1


def size_of(path: Path) -> int:
    """Return the size of a measurement in bytes; 0 for any other path."""
    with suppress(OSError):
        return measurement_size(path)
    return 0


ENGINES = ("processes", "mpi", "dask")
"""Names of :func:`engine`; the last two need ``pip install 'hpcd[mpi]'`` or ``'hpcd[dask]'``."""


@contextmanager
def engine(
    name: str, workers: int | None, address: str | None
) -> Iterator[tuple[Executor | None, bool]]:
    """An executor for a merge, and whether this process was only a worker of another's.

    ``processes``: none, the merge starts its own. ``mpi``: under ``mpirun -n 4`` or ``srun
    -n 4`` rank 0 merges and the others work; started alone, it spawns ``workers`` ranks.
    ``dask``: the scheduler at ``address``, or ``workers`` processes started for the purpose. Raises
    :class:`UsageError` when the engine is not installed or not to be reached.
    """
    count = workers or processor_count()
    if name == "mpi":
        with isolated_children():
            futures = _library("mpi4py.futures", "mpi")
            world = _library("mpi4py.MPI", "mpi").COMM_WORLD
            if world.Get_size() == 1:
                with futures.MPIPoolExecutor(count, python_args=["-P"]) as pool:
                    yield pool, False
                return
            with futures.MPICommExecutor(world, root=0) as executor:
                yield executor, executor is None
        return
    if name == "dask":
        with ExitStack() as stack:
            stack.enter_context(isolated_children())
            dask = _library("distributed", "dask")
            try:
                where = address or stack.enter_context(
                    dask.LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None)
                )
                client = stack.enter_context(dask.Client(where))
            except (OSError, ValueError) as error:
                raise UsageError(f"no Dask scheduler at {address}: {error}") from None
            # A task that killed its worker would kill the next one too.
            yield stack.enter_context(client.get_executor(retries=0)), False
        return
    yield None, False


def _library(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"--engine {extra} needs pip install 'hpcd[{extra}]': {error}") from None


def together(sizes: Sequence[int], most: int) -> list[list[int]]:
    """The numbers of things of these ``sizes``, in groups for a task each.

    The biggest first, so that no worker is left with it at the end; small ones together, up to
    ``most`` in sum, as long as there are tasks enough for many workers.
    """
    by_size = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    groups = in_order([sizes[number] for number in by_size], most)
    return [[by_size[place] for place in group] for group in groups]


def in_order(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Return the numbers of items of these ``sizes`` in groups for a task each, like
    :func:`together`, but in runs of consecutive items, whatever their order by size.
    """
    most = min(most, sum(sizes) // _FEWEST_TASKS)
    return runs(sizes, most, min(max(len(sizes) // _FEWEST_TASKS, 1), _MOST_TOGETHER))


def runs(sizes: Sequence[int], most: int, members: int) -> list[list[int]]:
    """Return the numbers of things of these ``sizes``, in order, in runs of at most ``members`` and
    up to ``most`` in sum; a bigger thing is a run of its own."""
    groups: list[list[int]] = []
    filled = 0
    for number, size in enumerate(sizes):
        if not groups or filled + size > most or len(groups[-1]) == members:
            groups.append([])
            filled = 0
        groups[-1].append(number)
        filled += size
    return groups


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
    # Not all tasks at once: MPI and Dask pickle every task when it is submitted.
    ahead = 1 if isinstance(executor, InlineExecutor) else _AHEAD
    waiting: dict[Future[_Result], int] = {}
    finished: SimpleQueue[Future[_Result]] = SimpleQueue()
    remaining = enumerate(tasks)
    try:
        while True:
            for number, task in islice(remaining, ahead - len(waiting)):
                try:
                    future = executor.submit(function, task)
                except BrokenExecutor as error:
                    raise _worker_died(error) from None
                waiting[future] = number
                future.add_done_callback(finished.put)
            if not waiting:
                return
            try:
                future = finished.get(timeout=_TICK_SECONDS)
            except Empty:
                tick()
                continue
            failure = future.exception()
            if isinstance(failure, WorkerEndedError) or type(failure).__name__ in _DEATHS:
                raise _worker_died(failure)
            yield waiting.pop(future), future
    except WorkerDiedError:
        # Cancelling futures while their executor fails them raises in Python 3.11's executor, and
        # its other workers are waited for for ever.
        waiting.clear()
        raise
    finally:
        for future in waiting:
            future.cancel()


def _worker_died(error: BaseException | None) -> WorkerDiedError:
    # Only this project's own pool says how; to be killed is the usual cause.
    known = isinstance(error, WorkerEndedError)
    return WorkerDiedError(str(error) if known else "was killed (out of memory?)")
