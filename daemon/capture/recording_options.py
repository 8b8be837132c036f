"""The options of a recording.

A module of its own with few imports: what it says is needed before the recorder is imported, for
the programs to be loaded meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hpcd.bpf.loading.loader import LOADERS
from hpcd.daemon.access.user_accounts import TABLE_BYTES
from hpcd.daemon.probes.probe_request import ProbeRequest
from hpcd.daemon.targets.selector import Selector
from hpcd.option_schema import check, flag, number, one_of, option, share, texts

# A prime, so that sampling cannot fall into step with anything periodic in the target; close to
# 1 kHz, the rate at which HPCToolkit's papers trace.
DEFAULT_FREQUENCY = 997
# The kernel's own default limit (kernel.perf_event_max_sample_rate) is 100 kHz.
MAX_FREQUENCY = 25_000
# Waits shorter than a context switch and back are the price of switching, not a cause of their own.
DEFAULT_THRESHOLD_NS = 50_000
# 30 years: numbers beyond are mistakes.
_MOST = 10**9

# Verbs that leave a recording.
_RECORD = "attach profile run"


@dataclass(slots=True)
class Options:
    """The targets of a recording, and how they are recorded."""

    selector: Selector = field(metadata={"part": Selector})
    output: Path
    duration: float | None = option(
        None, "-d --duration", number("S", 0, _MOST, "seconds", above=True), _RECORD,
        "stop after this many seconds",
    )  # fmt: skip
    events: tuple[str, ...] = option(
        (), "-e --event", texts("EVENTS"), _RECORD,
        "events to sample, by their perf names, separated by commas (default: cpu-clock)",
        served=False,
    )  # fmt: skip
    frequency: int = option(
        DEFAULT_FREQUENCY, "-F --frequency",
        number("HZ", 1, MAX_FREQUENCY, "Hz", whole=True, parse=int), f"{_RECORD} top",
        f"samples per second of each thread's CPU time (default: {DEFAULT_FREQUENCY})",
    )  # fmt: skip
    overhead: float | None = option(
        None, "--overhead", number("SHARE", 0, 100, "%", above=True, scale=0.01, parse=share),
        _RECORD, "slow down when recording costs more than this share of the targets' CPU time,"
        " as in 1%% (default: never)",
    )  # fmt: skip
    """Of at least one CPU; the rate is adapted to it."""
    waits: bool = option(
        True, "--no-blocked", flag(False), _RECORD, "record CPU time only, not waits"
    )
    wakers: bool = option(
        True, "--no-wakers", flag(False), _RECORD,
        "record waits without who ended them, and without what ran while threads waited for a CPU",
    )  # fmt: skip
    threshold_ns: int = option(
        DEFAULT_THRESHOLD_NS, "--blocked-threshold",
        number("US", 0, _MOST, "microseconds", whole=True, scale=1000), _RECORD,
        "sum waits shorter than this many microseconds by call path instead of recording"
        f" each; 0 records all (default: {DEFAULT_THRESHOLD_NS // 1000})",
    )  # fmt: skip
    children: bool = option(
        True, "--no-children", flag(False), f"{_RECORD} stacks",
        "leave out processes that a target starts",
    )  # fmt: skip
    io: bool = option(
        False, "--io", flag(), f"{_RECORD} top",
        "record every system call of input and output: file, bytes, time, call path",
    )  # fmt: skip
    memory: bool = option(
        False, "--memory", flag(), f"{_RECORD} top",
        "record what touches memory first, maps it and gives it back, by call path (what"
        " allocates it: --heap)",
    )  # fmt: skip
    probes: ProbeRequest = field(default_factory=ProbeRequest, metadata={"part": ProbeRequest})
    loader: str = option(
        "auto", "--loader", one_of(*LOADERS), _RECORD,
        "compile the BPF programs with bcc, or load the object built by make objects"
        " (default: $HPCD_LOADER, else the object unless the programs have changed since)",
        served=False,
    )  # fmt: skip
    before_exec: bool = False
    """The target is about to exec the program to record: its current mappings are ignored."""
    command: tuple[str, ...] = ()
    """The command line that the target will exec: its files are analysed before it starts."""
    release: Callable[[], None] | None = None
    """Lets that target begin its command, once it is sampled; may be called again."""
    analysing: Callable[[int], None] | None = None
    """Called with the number of such files when that takes a while, as it does the first time."""
    analysing_last: Callable[[int], None] | None = None
    """Called with the number of files that the last call paths wait for at the end, likewise."""
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
    max_probed: int = 0
    """With ``only_user``: how many functions may be probed."""
    existing: bool = False
    """The output directory is there already, and empty."""
    extra: dict[str, object] = field(default_factory=dict)
    """Shown with the options in the measurement."""

    def __post_init__(self) -> None:
        """Raises :class:`UsageError` for what cannot be recorded, before anything is started."""
        check(self)
