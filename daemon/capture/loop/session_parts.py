"""The parts of a session, its settings, and its progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcd.bpf.events.mapping_events import MmapEvents
from hpcd.bpf.sampler import Sampler
from hpcd.daemon.capture.loop.budget import Budget
from hpcd.daemon.capture.loop.collector import Collector
from hpcd.daemon.capture.paths.deferred_paths import DeferredPaths
from hpcd.daemon.capture.paths.stack_resolver import StackResolver
from hpcd.daemon.capture.threads.thread_lifecycle import ThreadLifecycle
from hpcd.daemon.capture.threads.thread_times import ThreadTimes
from hpcd.daemon.naming.load_modules import Modules
from hpcd.daemon.targets.attachment import Attachment
from hpcd.daemon.targets.process_table import Targets
from hpcd.measurement.summary import RateChange
from hpcd.measurement.writer import MeasurementWriter

if TYPE_CHECKING:
    from hpcd.daemon.capture.calls.call_account import CallAccount
    from hpcd.daemon.capture.loop.begun_command import BegunCommand
    from hpcd.daemon.probes.probes import Probes


@dataclass(slots=True)
class Progress:
    """The figures of a progress line."""

    seconds: float
    samples: int
    rate: float
    dropped: int
    truncated: int
    threads: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a recording while it runs."""

    sampler: Sampler
    targets: Targets
    modules: Modules
    collector: Collector
    threads: ThreadLifecycle
    stacks: StackResolver
    deferred: DeferredPaths
    writer: MeasurementWriter
    mmaps: MmapEvents
    attachment: Attachment
    thread_times: ThreadTimes | None
    calls: CallAccount | None = None
    probes: Probes | None = None
    begun: BegunCommand | None = None
    """The command that began before the other parts were made, if one did."""
    cpu_start: float = 0.0
    """CPU seconds this process had used when the recording was requested."""


@dataclass(frozen=True, slots=True)
class CpuSampling:
    """The sampling of CPU time, and the budgets that change its rate."""

    first_rate: RateChange | None
    """Rate to begin with; None when CPU time is not sampled."""
    alone: bool
    """Whether no other event is sampled: then the number of samples can be predicted."""
    budget: Budget | None
    own_budget: Budget | None
    """Keeps this process' own CPU time within ``max_cpu``, where the rate can be changed."""
