"""The sampler on its way: its programs are loaded by a thread while this process does other things.

It is the kernel's verifier that takes the time. What samples and copies stacks is verified first;
what walks them follows when sampling may have begun: until then paths are deferred
(:mod:`hpcd.daemon.capture.deferred_paths`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

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
    what has come of it unless somebody has taken it.

    Raises :class:`hpcd.errors.UsageError` for probes that make no sense.
    """

    def __init__(self, options: Options, calls: CallSetup | None = None) -> None:
        self.calls = calls or CallSetup(options)
        heap.limit_arenas()
        self.cpu_start = time.process_time()
        """CPU seconds this process had used by then."""
        self._options = options
        self._thread = ThreadPoolExecutor(1, "loader")
        self._programs: Future[SamplerPrograms] | None = None
        self._saved_walker: Future[SavedWalker | None] | None = None
        self._iterator: Future[TaskIterator | None] | None = None
        # Not bcc: what a compiler writes to standard error is captured by taking the descriptor,
        # also from whoever else writes to it meanwhile.
        if chosen_loader(options.loader) == "object":
            sys.setswitchinterval(_QUICK_TURNS_S)
            self._programs = self._thread.submit(_load, options, self.calls, background=True)
            self._begin_iterator()

    def _begin_iterator(self) -> None:
        """Begin to load what reads the stacks of threads that sleep when they are attached to,
        beside the programs. Not wanted without waits, nor of what is about to exec."""
        if self._options.waits and not self._options.before_exec:
            beside = ThreadPoolExecutor(1, "iterator loader")
            self._iterator = beside.submit(_task_iterator)
            beside.shutdown(wait=False)

    def sampler(self) -> Sampler:
        """The sampler, ready to be attached; the caller closes it, after this. Raises what it
        does."""
        try:
            if self._programs:
                loaded, self._programs = self._programs, None
                programs = loaded.result()
            else:
                programs = _load(self._options, self.calls, background=False)
        except PrivilegeError:
            raise
        except PlatformError:
            programs = _load(self._options, self.calls, background=False)  # says why
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
        """What walks the stacks that were copied, to be closed by the caller; None where the kernel
        cannot run it: paths that begin before their code is known stay truncated there."""
        taken, self._saved_walker = self._saved_walker, None
        return taken.result() if taken else None

    def iterator(self) -> TaskIterator | None:
        """What reads the stacks of sleeping threads, to be closed by the caller; None where that is
        not wanted, the kernel has no iterator over threads, or it was not compiled."""
        if self._iterator is None:
            self._begin_iterator()
        taken, self._iterator = self._iterator, None
        return taken.result() if taken else None

    def _end_turns(self) -> None:
        sys.setswitchinterval(_USUAL_TURNS_S)

    def close(self) -> None:
        """Wait for the thread, and free what nobody has taken."""
        self._end_turns()
        self._thread.shutdown()
        loaded: tuple[
            Future[SamplerPrograms]
            | Future[SavedWalker | None]
            | Future[TaskIterator | None]
            | None,
            ...,
        ]
        loaded = self._programs, self._saved_walker, self._iterator
        for part in loaded:
            if part and not part.exception() and (made := part.result()):
                made.close()
        self._programs = self._saved_walker = self._iterator = None


def recorded_events(options: Options) -> list[EventSpec]:
    """The events to sample, the one that samples CPU time first."""
    return _ordered(options.events) or parse_events("cpu-clock", options.frequency)


def is_cpu_time(event: EventSpec) -> bool:
    """Whether its samples are worth CPU time, at a rate that can be changed."""
    return event.name == "cpu-clock" and event.clock and bool(event.frequency)


def _ordered(events: Sequence[EventSpec]) -> list[EventSpec]:
    """``events`` with the one that samples CPU time first."""
    return sorted(events, key=lambda event: not is_cpu_time(event))


def sampler_options(
    options: Options, calls: CallSetup, *, background: bool = False
) -> SamplerOptions:
    """What the sampler of a recording records."""
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
    try:
        return TaskIterator(background=True)
    except HpcdError:
        return None
