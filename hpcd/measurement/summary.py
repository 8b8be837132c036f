"""The summary of a recording: the counters that its SUMMARY chunks hold as JSON.

Fields are described in docs/formats.md, in the order of the JSON. A field that is absent
has its default, and a field with None is not written; unknown fields of the JSON are ignored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from hpcd.errors import FormatError
from hpcd.measurement.seen_part import SeenPart

_Part = TypeVar("_Part")
_SCALARS = (int, float, str, bool)
_ABSENT = object()


class SampleCounts(NamedTuple):
    """Samples of all events."""

    expected: int | None = None
    """Number that the targets' CPU time predicts: between the reports of switches where waits are
    recorded, else by the scheduler's count; 0 or None if it predicts none."""
    taken: int | None = None
    unexplained: int = 0
    """Samples beyond the expected number's chance variation; negative if there are too few."""
    uncounted: int = 0
    """Expected samples beyond those that the scheduler's count predicts, which leaves out a
    hypervisor's time and may leave out interrupts'. Below 0 fewer: its count begins before a woken
    thread is on its CPU. 0 if the two hardly differ."""
    late: int = 0
    """Firings left out because they came late: mostly the hypervisor had the CPU."""
    walking: int = 0
    """Firings left out that were due while a stack was being walked."""
    recorded: int = 0
    dropped: Mapping[str, int] = {}
    """Lost samples by cause."""


class CpuTime(NamedTuple):
    """CPU seconds of the targets, by the scheduler's count and by samples."""

    counted_s: float = 0.0
    sampled_s: float = 0.0
    withheld_s: float = 0.0
    """CPU seconds that limits of the targets' control groups withheld from all that is in these."""


class MachineTime(NamedTuple):
    """CPU seconds of the machine during the recording, for all programs; 0: unknown."""

    busy_s: float = 0.0
    """CPU time used by programs (targets and hpcd included), the kernel and interrupts."""
    stolen_s: float = 0.0
    """Taken by the hypervisor."""
    idle_s: float = 0.0


class CpuSeconds(NamedTuple):
    """Seconds of the CPU ``number`` during the recording, whatever ran there; interrupts are those
    of devices, timers and softirqs."""

    number: int = 0
    idle_s: float = 0.0
    interrupts_s: float = 0.0
    stolen_s: float = 0.0


class BoundThreads(NamedTuple):
    """Threads, by trace line of the measurement, that may run on ``cpus`` only."""

    cpus: tuple[int, ...] = ()
    lines: tuple[int, ...] = ()


class SwitchCounts(NamedTuple):
    """Context switches of the targets."""

    taken: int = 0
    recorded: int = 0


class ThreadSeconds(NamedTuple):
    """Seconds of all threads: on CPUs, blocked, waiting for a CPU, alive while recorded, and while
    their switches were not reported."""

    cpu: float = 0.0
    blocked: float = 0.0
    runnable: float = 0.0
    lifetime: float = 0.0
    lost: float = 0.0


class JobSeconds(NamedTuple):
    """Seconds of a job's threads."""

    cpu: float = 0.0
    blocked: float = 0.0
    runnable: float = 0.0


class DeferredPathCounts(NamedTuple):
    """Copied stacks, and the outcome of their call paths."""

    copied: int = 0
    not_copied: int = 0
    walked: int = 0
    gave_up: int = 0
    """Their mappings or unwind tables did not come in time."""
    no_room: int = 0
    """Too many waited already."""


class UnwindCounts(NamedTuple):
    """Call paths, by how their unwinding ended."""

    paths: int = 0
    complete: int = 0
    truncated: Mapping[str, int] = {}
    """Truncated paths by reason."""
    modules: Mapping[str, Mapping[str, int]] = {}
    """Truncated paths by reason and by the load module they end in."""
    failures: Mapping[str, str] = {}
    """What call paths lack, by load module (no unwind table, no Python frames) or user."""
    deferred: DeferredPathCounts = DeferredPathCounts()
    failures_left_out: int | None = None
    """Number of further failures, where a service shortens the summary."""


class CallRate(NamedTuple):
    """From ``time_ns`` (monotonic) on one in ``one_in`` calls of a function was recorded."""

    time_ns: int = 0
    function: str = ""
    one_in: int = 1


class CallCounts(NamedTuple):
    """Calls of recorded functions."""

    taken: int = 0
    recorded: int = 0
    passed_over: int = 0
    """Not recorded to limit the cost; recorded ones represent them."""
    objects_lost: int = 0
    rates: tuple[CallRate, ...] = ()
    dropped: Mapping[str, int] = {}
    """Lost calls by cause."""
    not_recorded: tuple[str, ...] = ()
    """Requested data that cannot be recorded on this host."""


class ProbeCounts(NamedTuple):
    """Calls of one probed function."""

    name: str = ""
    library: str = ""
    group: str = ""
    one_in: int = 1
    let_go: bool = False
    """Whether its probes were removed to limit the cost."""
    hits: int = 0
    recorded: int = 0
    returned: int = 0
    left: int = 0
    unpaired: int = 0
    lost: int = 0
    unreadable: int = 0
    unsuccessful: int = 0


class ProbesSummary(NamedTuple):
    """All probed functions, and the probes that failed."""

    functions: tuple[ProbeCounts, ...] = ()
    problems: tuple[str, ...] = ()
    functions_left_out: int | None = None
    """Number of further functions, where a service shortens the summary."""


class RateChange(NamedTuple):
    """From ``time_ns`` (monotonic) on CPU time was sampled at ``frequency`` Hz, and one in
    ``walk_one_in`` context switches had a call path."""

    time_ns: int = 0
    frequency: int = 0
    walk_one_in: int = 1

    @staticmethod
    def now(frequency: int, walk_one_in: int = 1) -> RateChange:
        """A change at this moment."""
        return RateChange(time.monotonic_ns(), frequency, walk_one_in)


class OverheadSeconds(NamedTuple):
    """CPU seconds of the recorder and of its BPF programs."""

    collector_cpu_s: float = 0.0
    bpf_s: float = 0.0
    bpf_switches_s: float = 0.0
    bpf_calls_s: float | None = None


class Summary(NamedTuple):
    """The counters of a recording from its beginning."""

    samples: SampleCounts = SampleCounts()
    cpu: CpuTime = CpuTime()
    machine: MachineTime = MachineTime()
    cpus: tuple[CpuSeconds, ...] = ()
    """By CPU, at the end."""
    bound: tuple[BoundThreads, ...] = ()
    """Threads that may not run on all CPUs that are online, at the end."""
    seen: SeenPart = SeenPart()
    switches: SwitchCounts = SwitchCounts()
    skipped: int = 0
    """Events of any process that no program was run for since its CPU was running it already."""
    time: ThreadSeconds | None = None
    """None, ``{}`` in JSON, if waits are not recorded."""
    jobs: Mapping[str, JobSeconds] = {}
    unwind: UnwindCounts = UnwindCounts()
    calls: CallCounts | None = None
    probes: ProbesSummary | None = None
    limit: str | None = None
    """Which limit of the recorder ended the recording."""
    rates: tuple[RateChange, ...] = ()
    """Sampling rates of CPU time, the first one at the beginning."""
    threads: int = 0
    measurement: str = ""
    duration_s: float = 0.0
    overhead: OverheadSeconds = OverheadSeconds()
    files_not_named: tuple[str, ...] | None = None
    """Files whose functions could not be recorded by name."""
    jobs_left_out: int | None = None
    """Number of further jobs, where a service shortens the summary."""
    closed: bool | None = None
    """Whether the recording was over."""
    losses: tuple[tuple[int, int, int], ...] | None = None
    """Stretches of time in which samples were dropped: from, to (monotonic ns), number; a merge
    adds it."""
    options: Mapping[str, Any] | None = None
    """How it was recorded; not in a measurement, whose description has it."""

    def to_json(self) -> dict[str, object]:
        """Return the JSON object.

        A recorder's counters are written in full; of a summary without overhead, which no recorder
        made, only values that differ from the defaults.
        """
        document: dict[str, object] = _plain(self, sparse=not any(self.overhead))
        return document

    @classmethod
    def from_json(cls, value: object) -> Summary:
        """Read a JSON object. Raises :class:`FormatError` if a field has another type."""
        summary: Summary = _object_reader(Summary)("summary", value)
        return summary


def _plain(value: Any, *, sparse: bool) -> Any:
    if hasattr(value, "_fields"):
        document = {}
        for name, part in zip(value._fields, value, strict=True):
            if sparse and part == value._field_defaults[name]:
                continue
            if part is not None:
                document[name] = _plain(part, sparse=sparse)
            elif name == "time":
                document[name] = {}
        return document
    if isinstance(value, dict):
        return {key: _plain(part, sparse=sparse) for key, part in value.items()}
    if isinstance(value, tuple):
        return [_plain(part, sparse=sparse) for part in value]
    return value


# A function that checks and converts the value of a field, named for errors.
_Read = Callable[[str, object], Any]


def _reader(hint: Any) -> _Read:
    """Return the function that reads values of a field's type."""
    if hasattr(hint, "_fields"):
        return _object_reader(hint)
    arguments = get_args(hint)
    if NoneType in arguments:
        some = _reader(next(part for part in arguments if part is not NoneType))
        return lambda name, value: None if value is None or value == {} else some(name, value)
    if get_origin(hint) is Mapping:
        part = _reader(arguments[1])
        return lambda name, value: {
            key: part(name, entry) for key, entry in _require(name, value, dict).items()
        }
    if get_origin(hint) is tuple and arguments[-1] is ...:
        part = _reader(arguments[0])
        return lambda name, value: tuple(part(name, entry) for entry in _require(name, value, list))
    if get_origin(hint) is tuple:
        return lambda name, value: _fixed_tuple(name, value, arguments)
    if hint is float:
        return _number
    if hint is Any:
        return lambda name, value: value
    return lambda name, value: _require(name, value, hint)


@cache
def _object_reader(kind: type[Any]) -> _Read:
    hints = get_type_hints(kind)
    # A value of this type needs no look at its contents, any other is given to the reader.
    columns = [
        (name, hint if hint in _SCALARS else None, _reader(hint), kind._field_defaults[name])
        for name, hint in hints.items()
    ]

    def read(name: str, value: object) -> Any:
        get = _require(name, value, dict).get
        row = []
        for key, usual, part, default in columns:
            entry = get(key, _ABSENT)
            if entry is _ABSENT:
                row.append(default)
            elif type(entry) is usual:
                row.append(entry)
            else:
                row.append(part(key, entry))
        return kind._make(row)

    return read


def _fixed_tuple(name: str, value: object, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    values = _require(name, value, list)
    if len(values) != len(kinds):
        raise FormatError(f"summary: {name} has {len(values)} entries instead of {len(kinds)}")
    return tuple(_require(name, part, kind) for kind, part in zip(kinds, values, strict=True))


def _number(name: str, value: object) -> float:
    if type(value) is not float and type(value) is not int:
        raise FormatError(f"summary: {name} is not a number")
    return value


def _require(name: str, value: object, kind: type[_Part]) -> _Part:
    if type(value) is not kind:
        raise FormatError(f"summary: {name} has another type than {kind.__name__}")
    return value
