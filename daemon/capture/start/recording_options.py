"""The options of a recording.

A module of its own with few imports: what it says is needed before the recorder is imported, for
the programs to be loaded meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hpcd.bpf.events.event_spec import EventSpec
from hpcd.daemon.access.user_accounts import TABLE_BYTES
from hpcd.daemon.probes.probe_request import ProbeRequest
from hpcd.daemon.targets.selector import Selector
from hpcd.errors import UsageError

# A prime, so that sampling cannot fall into step with anything periodic in the target; close to
# 1 kHz, the rate at which HPCToolkit's papers trace.
DEFAULT_FREQUENCY = 997
# The kernel's own default limit (kernel.perf_event_max_sample_rate) is 100 kHz.
MAX_FREQUENCY = 25_000
# Waits shorter than a context switch and back are the price of switching, not a cause of their own.
DEFAULT_THRESHOLD_NS = 50_000

REQUESTED = (
    "frequency", "duration", "children", "waits", "threshold_ns", "overhead", "io", "memory",
)  # fmt: skip
"""Options that a request to the service has as they are, under these names."""
REFUSED = {"events": "--event", "loader": "--loader"}
"""Options that the service does not take, as users know them."""


@dataclass(slots=True)
class Options:
    """The targets of a recording, and how they are recorded."""

    selector: Selector
    output: Path
    frequency: int = DEFAULT_FREQUENCY
    """Samples a second of CPU time by cpu-clock, the event recorded unless others are named."""
    events: list[EventSpec] = field(default_factory=list)
    duration: float | None = None
    children: bool = True
    before_exec: bool = False
    """The target is about to exec what is to be recorded: its current mappings are ignored."""
    command: tuple[str, ...] = ()
    """The command line that the target will exec: its files are analysed before it starts."""
    release: Callable[[], None] | None = None
    """Lets that target begin its command, once it is sampled; may be called again."""
    analysing: Callable[[int], None] | None = None
    """Called with the number of such files when that takes a while, as it does the first time."""
    analysing_last: Callable[[int], None] | None = None
    """Called with the number of files that the last call paths wait for at the end, likewise."""
    waits: bool = True
    """Record how long threads are blocked or wait for a CPU, and where."""
    threshold_ns: int = DEFAULT_THRESHOLD_NS
    """Shorter waits are summed by call path."""
    overhead: float | None = None
    """Share of the targets' CPU time (and at least of one CPU) that recording may cost; the rate is
    adapted to it."""
    owner: tuple[int, int] | None = None
    """Owner of the measurement (uid, gid); None: root."""
    only_user: int | None = None
    """Record this user's processes alone, whatever is selected and whatever they run."""
    only_groups: tuple[int, ...] = ()
    """With ``only_user``: the groups whose rights that user has."""
    table_bytes: int = TABLE_BYTES
    """Table memory of each user's programs but root's."""
    max_memory: int = 0
    """The recording ends when the recorder takes more bytes; 0: any."""
    max_cpu: float | None = None
    """Share of one CPU that the recorder may take: it samples less, and then records less."""
    io: bool = False
    """Record the system calls of input and output."""
    memory: bool = False
    """Record what maps memory, gives it back and touches it first."""
    probes: ProbeRequest = field(default_factory=ProbeRequest)
    """Functions whose calls are recorded."""
    max_probed: int = 0
    """With ``only_user``: how many functions may be probed."""
    loader: str = "auto"
    """How the programs are loaded, one of :data:`hpcd.bpf.loading.loader.LOADERS`."""
    existing: bool = False
    """The output directory is there already, and empty."""
    extra: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises :class:`UsageError` for what cannot be recorded, before anything is started."""
        if not 1 <= self.frequency <= MAX_FREQUENCY:
            raise UsageError(f"frequency must lie between 1 and {MAX_FREQUENCY} Hz")
        if self.duration is not None and not self.duration > 0:
            raise UsageError("a recording's duration must be more than 0 seconds")
