"""The start of a recording: the sampler's programs are loaded by a thread while this process
imports the recorder.

It is the kernel's verifier that takes the time. Programs that sample and copy stacks are verified
first; those that walk them follow when sampling may have begun: until then paths are deferred
(:mod:`hpcd.daemon.capture.paths.deferred_paths`). At high rates nothing is sampled before all are
loaded.

A command that ``hpcd run`` holds begins as soon as these are loaded
(:class:`~hpcd.daemon.capture.loop.begun_command.BegunCommand`), where the unwind tables of what it
runs are kept from earlier recordings: the recorder comes up beside it, and what is sampled until
then waits in the rings. Other commands begin when their tables are made.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcd.bpf.events.cpu_clock import online_cpus
from hpcd.bpf.events.event_names import parse_events
from hpcd.bpf.events.event_spec import EventSpec
from hpcd.bpf.loading.host_namespaces import has_hosts_pids
from hpcd.bpf.loading.loader import chosen_loader
from hpcd.bpf.sampler_options import SamplerOptions
from hpcd.bpf.sampler_programs import SamplerPrograms
from hpcd.bpf.task_iterator import TaskIterator
from hpcd.daemon.capture.loop import heap
from hpcd.daemon.capture.loop.begun_command import BegunCommand
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.capture.start.call_setup import CallSetup
from hpcd.daemon.capture.start.priority import raise_priority
from hpcd.daemon.runtimes.python.python_programs import KnownPythons
from hpcd.daemon.unwind.kept_tables import KnownCommands
from hpcd.errors import HpcdError, PlatformError, PrivilegeError
from hpcd.processors import own_cpu_seconds
from hpcd.startup.fast_imports import fast_imports

if TYPE_CHECKING:  # with numpy, which is imported while the programs load
    from hpcd.bpf.sampler import Sampler
    from hpcd.bpf.saved_walk import SavedWalker
    from hpcd.daemon.capture.start.recording import Recording

# Each call of a library gives the interpreter away and wants it back, for which it would wait for
# the usual 5 ms while another thread imports modules.
_QUICK_TURNS_S = 0.0001
_USUAL_TURNS_S = sys.getswitchinterval()
# Samples a second of which each stack may be copied until the programs that walk them are loaded,
# 0.1 to 0.2 s later: beyond that deep ones exceed what the programs copy (COPY_BURST in values.h).
_MOST_COPIED_HZ = 2000


def prepare_recording(options: Options) -> Recording:
    """Return the recording of ``options``, not yet started.

    The BPF programs are loaded while the recorder is imported. Raises what
    :class:`~hpcd.daemon.capture.start.recording.Recording` does.
    """
    loading = SamplerLoading(options)
    try:
        return import_recorder()(options, loading)
    except BaseException:
        loading.close()
        raise


def import_recorder() -> type[Recording]:
    """Import the recorder, which takes longer than all else of Python's at the start."""
    with fast_imports():
        from hpcd.daemon.capture.start.recording import Recording

    return Recording


class SamplerLoading:
    """Begins to load the programs that ``options`` need, ``calls`` among them; :meth:`close` frees
    what was loaded unless a caller has taken it.

    Raises :class:`hpcd.errors.UsageError` for events and probes that make no sense, and
    :class:`hpcd.errors.PlatformError` for events that this machine cannot have.
    """

    def __init__(self, options: Options, calls: CallSetup | None = None) -> None:
        self.events = recorded_events(options)
        """Events to sample, that of CPU time first."""
        self.calls = calls or CallSetup(options)
        self.begun: BegunCommand | None = None
        """The command that began before the recorder was there; known after :meth:`sampler`."""
        heap.limit_arenas()
        self.cpu_start = own_cpu_seconds()
        """CPU seconds that this process had used when loading began."""
        self._options = options
        # The kernel's verifier takes a third of a second of CPU time; paths are deferred meanwhile.
        # A user's recorder keeps the priority that the service gave it.
        raises = raise_priority if options.max_cpu is None else None
        self._thread = ThreadPoolExecutor(1, "loader", initializer=raises)
        self._programs: Future[tuple[SamplerPrograms, BegunCommand | None]] | None = None
        self._saved_walker: Future[SavedWalker | None] | None = None
        self._iterator: Future[TaskIterator | None] | None = None
        # Not bcc: a compiler's messages are captured by taking the descriptor of standard error,
        # also from any other thread that writes to it meanwhile.
        if chosen_loader(options.loader) == "object":
            sys.setswitchinterval(_QUICK_TURNS_S)
            self._programs = self._thread.submit(self._load_and_begin, begin=_may_begin(options))
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
                programs, self.begun = loaded.result()
            else:
                programs = self._load(background=False)
        except PrivilegeError:
            raise
        except PlatformError:
            # Not in the background the reason can be read.
            programs = self._load(background=False)
        finally:
            self._end_turns()
        from hpcd.bpf.sampler import Sampler

        sampler = Sampler(programs)
        if programs.walks_later:
            self._thread.submit(programs.load_walkers)
            self._saved_walker = self._thread.submit(_saved_walker, sampler)
        else:
            self._saved_walker = Future()
            self._saved_walker.set_result(_saved_walker(sampler))
        return sampler

    def saved_walker(self) -> Future[SavedWalker | None]:
        """Return the walker of copied stacks, which :meth:`close` frees; None if the kernel cannot
        run it: paths that begin before their code is known stay truncated then.

        There is one after :meth:`sampler`.
        """
        assert self._saved_walker
        return self._saved_walker

    def iterator(self) -> TaskIterator | None:
        """Return the iterator over sleeping threads' stacks, to be closed by the caller; None if it
        is not needed, the kernel has no iterators over threads, or it was not compiled."""
        if self._iterator is None:
            self._begin_iterator()
        taken, self._iterator = self._iterator, None
        return taken.result() if taken else None

    def _load(self, *, background: bool) -> SamplerPrograms:
        return SamplerPrograms(
            [event.perf_event() for event in self.events],
            online_cpus(),
            sampler_options(self._options, self.calls, background=background),
        )

    def _load_and_begin(self, *, begin: bool) -> tuple[SamplerPrograms, BegunCommand | None]:
        programs, options = self._load(background=True), self._options
        for known in KnownPythons().load():
            programs.targets.know_python(known.key, known.entry)
        if any(event.frequency > _MOST_COPIED_HZ for event in self.events):
            programs.load_walkers()
        if not (begin and options.release):
            return programs, None
        try:
            return programs, BegunCommand(
                programs, options.frequency, options.selector.pids[0], options.release
            )
        except BaseException:
            programs.close()
            raise

    def _end_turns(self) -> None:
        sys.setswitchinterval(_USUAL_TURNS_S)

    def close(self) -> None:
        """Wait for the thread, and free what no caller has taken."""
        self._end_turns()
        self._thread.shutdown()
        if self._programs and not self._programs.exception():
            for part in self._programs.result():
                if part:
                    part.close()
        loaded: list[Future[Any] | None] = [self._saved_walker, self._iterator]
        for future in loaded:
            if future and not future.exception() and (part := future.result()):
                part.close()
        self._programs = self._saved_walker = self._iterator = None


def _may_begin(options: Options) -> bool:
    """Whether the command may begin before the recorder is there: nothing can be refused any more,
    all that is recorded is samples and waits, and no table is to be made."""
    return bool(
        options.release
        and not (options.events or options.overhead or options.io or options.memory)
        and not options.probes
        and has_hosts_pids()
        and not options.output.exists()
        and _has_room(options.output.parent)
        and KnownCommands().knows(options.command)
    )


def _has_room(folder: Path) -> bool:
    """Whether a measurement can be made in ``folder``."""
    return os.access(folder, os.W_OK | os.X_OK) and os.statvfs(folder).f_bavail > 0


def recorded_events(options: Options) -> list[EventSpec]:
    """Return the events to sample, that of CPU time first."""
    text = ",".join(options.events) if options.events else "cpu-clock"
    events = parse_events(text, options.frequency)
    return sorted(events, key=lambda event: not is_cpu_time(event))


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
        wakers=options.wakers,
        everything=selector.everything,
        selecting=selector.open_ended and not selector.everything,
        control_groups=selector.by_control_group,
        only_user=options.only_user,
        calls=calls.sampler_options(),
        loader=options.loader,
        background=background,
        long_wait_ns=options.threshold_ns,
    )


def _saved_walker(sampler: Sampler) -> SavedWalker | None:
    try:
        return sampler.saved_walker()
    except HpcdError:
        return None


def _task_iterator() -> TaskIterator | None:
    from hpcd.daemon.access import target_reader

    try:
        iterator = TaskIterator(background=True)
    except HpcdError:
        return None
    target_reader.OWN.start()  # it runs the iterator
    return iterator
