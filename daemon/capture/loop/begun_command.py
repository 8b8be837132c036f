"""A command that began before the recorder was there to watch it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from hpcd.bpf.events.mapping_events import MmapEvents
from hpcd.bpf.kernel.maps import possible_cpus
from hpcd.bpf.sampler_programs import SamplerPrograms
from hpcd.daemon.targets.lifecycle import attach_held


class BegunCommand:
    """A held command that has begun: its process is sampled, and its mappings are reported.

    ``pid`` is the process that waits to be released, ``frequency`` the rate of samples (Hz). Raises
    :class:`hpcd.errors.HpcdError` when it cannot be sampled; it has not begun then.
    """

    def __init__(
        self, programs: SamplerPrograms, frequency: int, pid: int, release: Callable[[], None]
    ) -> None:
        self.mmaps = MmapEvents(possible_cpus())
        """Reports of mappings; the recorder takes them over."""
        try:
            programs.set_pace(frequency, 1)
            programs.targets.exclude_process(os.getpid())
            self.thread = attach_held(programs.targets, pid)
            """Its thread, as it was before."""
            programs.attach()
        except BaseException:
            self.mmaps.close()
            raise
        self.time = time.monotonic()
        """When it began (s)."""
        release()
        # Imported only now: the command waited.
        from hpcd.daemon.capture.loop.machine_time import machine_time

        self.machine = machine_time()
        """CPU time of the machine at that time."""

    def close(self) -> None:
        """Take no more reports."""
        self.mmaps.close()
