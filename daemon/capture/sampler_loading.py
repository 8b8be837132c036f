"""Loading the sampler's programs by a thread while this process does other things.

It is the kernel's verifier that takes the time. Programs that sample and copy stacks are verified
first; those that walk them follow when sampling may have begun: until then paths are deferred
(:mod:`hpcd.daemon.capture.deferred_paths`).
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from hpcd.bpf.cpu_clock import online_cpus
from hpcd.bpf.event_spec import EventSpec
from hpcd.bpf.events import parse_events
from hpcd.bpf.loading.loader import chosen_loader
from hpcd.bpf.sampler_options import SamplerOptions
from hpcd.bpf.sampler_programs import SamplerPrograms
from hpcd.bpf.task_iterator import TaskIterator
from hpcd.daemon.capture import heap
from hpcd.daemon.capture.call_setup import CallSetup
from hpcd.daemon.capture.recording_options import Options
from hpcd.errors import HpcdError, PlatformError, PrivilegeError

if TYPE_CHECKING:  # with numpy, which is imported while the programs load
    from hpcd.bpf.sampler import Sampler
    from hpcd.bpf.saved_walk import SavedWalker

# Each call of a library gives the interpreter away and wants it back, for which it would wait for
# the usual 5 ms while another thread imports modules.
_QUICK_TURNS_S = 0.0001
_USUAL_TURNS_S = sys.getswitchinterval()


class SamplerLoading:
    """Begins to load the programs that ``options`` need, ``calls`` among them; :meth:`close` frees
    what was loaded unless a caller has taken it.

    Raises :class:`hpcd.errors.UsageError` for probes that make no sense.
    """

    def __init__(self, options: Options, calls: CallSetup | None = None) -> None:
        self.calls = calls or CallSetup(options)
        heap.limit_arenas()
        self.cpu_start = time.process_time()
        """CPU seconds that this process had used when loading began."""
        self._options = options
        self._thread = ThreadPoolExecutor(1, "loader")
        self._programs: Future[SamplerPrograms] | None = None
        self._saved_walker: Future[SavedWalker | None] | None = None
        self._iterator: Future[TaskIterator | None] | None = None
        # Not bcc: a compiler's messages are captured by taking the descriptor of standard error,
        # also from any other thread that writes to it meanwhile.
        if chosen_loader(options.loader) == "object":
            sys.setswitchinterval(_QUICK_TURNS_S)
            self._programs = self._thread.submit(_load, options, self.calls, background=True)
            self._begin_iterator()

    def _begin_iterator(self) -> None:
        """Load the iterator over sleeping threads' stacks beside the programs, if it is needed: not
        without waits, of a whole node, whose threads are met as they run, nor for a process that is
        about to exec."""
        options = self._options
        if options.waits and not (options.before_exec or options.selector.everything):
            beside = ThreadPoolExecutor(1, "iterator loader")
            self._iterator = beside.submit(_task_iterator)
            beside.shutdown(wait=False)

    def sampler(self) -> Sampler:
        """Return the sampler, ready to be attached; the caller closes it, after this.

        Raises :class:`PrivilegeError` and :class:`PlatformError`.
        """
        try:
            if self._programs:
                loaded, self._programs = self._programs, None
                programs = loaded.result()
            else:
                programs = _load(self._options, self.calls, background=False)
        except PrivilegeError:
            raise
        except PlatformError:
            # Not in the background the reason can be read.
            programs = _load(self._options, self.calls, background=False)
        finally:
            self._end_turns()
        from hpcd.bpf.sampler import Sampler

        sampler = Sampler(programs)
        if sampler.walks_later:
            self._thread.submit(sampler.load_walkers)
            self._saved_walker = self._thread.submit(_saved_walker, sampler)
        else:
            self._saved_walker = Future()
            self._saved_walker.set_result(_saved_walker(sampler))
        return sampler

    def saved_walker(self) -> SavedWalker | None:
        """Return the walker of copied stacks, to be closed by the caller; None if the kernel cannot
        run it: paths that begin before their code is known stay truncated then."""
        taken, self._saved_walker = self._saved_walker, None
        return taken.result() if taken else None

    def iterator(self) -> TaskIterator | None:
        """Return the iterator over sleeping threads' stacks, to be closed by the caller; None if it
        is not needed, the kernel has no iterators over threads, or it was not compiled."""
        if self._iterator is None:
            self._begin_iterator()
        taken, self._iterator = self._iterator, None
        return taken.result() if taken else None

    def _end_turns(self) -> None:
        sys.setswitchinterval(_USUAL_TURNS_S)

    def close(self) -> None:
        """Wait for the thread, and free what no caller has taken."""
        self._end_turns()
        self._thread.shutdown()
        loaded: list[Future[Any] | None] = [self._programs, self._saved_walker, self._iterator]
        for future in loaded:
            if future and not future.exception() and (part := future.result()):
                part.close()
        self._programs = self._saved_walker = self._iterator = None


def recorded_events(options: Options) -> list[EventSpec]:
    """Return the events to sample, the one that samples CPU time first."""
    events = sorted(options.events, key=lambda event: not is_cpu_time(event))
    return events or parse_events("cpu-clock", options.frequency)


def is_cpu_time(event: EventSpec) -> bool:
    """Whether its samples are worth CPU time, at a rate that can be changed."""
    return event.name == "cpu-clock" and event.clock and bool(event.frequency)


def sampler_options(
    options: Options, calls: CallSetup, *, background: bool = False
) -> SamplerOptions:
    """Return what the sampler of a recording records."""
    selector = options.selector
    return SamplerOptions(
        follow_children=options.children,
        waiting=options.waits,
        everything=selector.everything,
        selecting=selector.open_ended and not selector.everything,
        control_groups=selector.by_control_group,
        only_user=options.only_user,
        calls=calls.sampler_options(),
        loader=options.loader,
        background=background,
    )


def _load(options: Options, calls: CallSetup, *, background: bool) -> SamplerPrograms:
    return SamplerPrograms(
        [event.perf_event() for event in recorded_events(options)],
        online_cpus(),
        sampler_options(options, calls, background=background),
    )


def _saved_walker(sampler: Sampler) -> SavedWalker | None:
    try:
        return sampler.saved_walker()
    except HpcdError:
        return None


def _task_iterator() -> TaskIterator | None:
    from hpcd.daemon.targets import target_reader

    try:
        iterator = TaskIterator(background=True)
    except HpcdError:
        return None
    target_reader.OWN.start()  # it runs the iterator
    return iterator
