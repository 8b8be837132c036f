"""Events by the names users of perf write, as the numbers perf_event_open(2) takes.

    cpu-clock  cycles  page-faults  L1-dcache-load-misses    the kernel's generic events
    r1a8                                                     a raw code of the processor
    cpu/event=0x3c,umask=0/  msr/tsc/  mem-loads             events and fields of a PMU
    sched:sched_switch                                       a tracepoint
    cycles:u  cycles:ppp  cpu/event=0x3c/uk                  with perf's modifiers
    cycles/period=100000/  cs/freq=99/                       with a rate of their own

Sources: tools/perf/Documentation/perf-list.txt, include/uapi/linux/perf_event.h and
Documentation/ABI/testing/sysfs-bus-event_source-devices-{events,format}.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcd.bpf import syscalls
from hpcd.bpf.libbpf import KernelRefusedError
from hpcd.bpf.loading import tracefs
from hpcd.errors import PlatformError, UsageError, did_you_mean

if TYPE_CHECKING:  # imported when sampling is being prepared, while the programs are loaded
    from hpcd.model.identity import Event

_PMUS = Path("/sys/bus/event_source/devices")
_RATE_LIMIT = Path("/proc/sys/kernel/perf_event_max_sample_rate")

PERF_TYPE_HW_CACHE, PERF_TYPE_RAW = 3, 4
_U64 = (1 << 64) - 1
_MAX_LENGTH = 1024

_HARDWARE = {
    "cycles": 0,
    "cpu-cycles": 0,
    "instructions": 1,
    "cache-references": 2,
    "cache-misses": 3,
    "branches": 4,
    "branch-instructions": 4,
    "branch-misses": 5,
    "bus-cycles": 6,
    "stalled-cycles-frontend": 7,
    "idle-cycles-frontend": 7,
    "stalled-cycles-backend": 8,
    "idle-cycles-backend": 8,
    "ref-cycles": 9,
}
_SOFTWARE = {
    "cpu-clock": 0,
    "task-clock": 1,
    "page-faults": 2,
    "faults": 2,
    "context-switches": 3,
    "cs": 3,
    "cpu-migrations": 4,
    "migrations": 4,
    "minor-faults": 5,
    "major-faults": 6,
    "alignment-faults": 7,
    "emulation-faults": 8,
    "dummy": 9,
    "bpf-output": 10,
    "cgroup-switches": 11,
}
_CACHES = {"L1-dcache": 0, "L1-icache": 1, "LLC": 2, "dTLB": 3, "iTLB": 4, "branch": 5, "node": 6}
_CACHE_EVENTS = {
    f"{cache}-{name}": number | operation << 8 | result << 16
    for cache, number in _CACHES.items()
    for operation, (one, many) in enumerate(
        (("load", "loads"), ("store", "stores"), ("prefetch", "prefetches"))
    )
    for result, name in enumerate((many, f"{one}-misses"))
}
_GENERIC = {
    **{name: (syscalls.PERF_TYPE_HARDWARE, number) for name, number in _HARDWARE.items()},
    **{name: (syscalls.PERF_TYPE_SOFTWARE, number) for name, number in _SOFTWARE.items()},
    **{name: (PERF_TYPE_HW_CACHE, config) for name, config in _CACHE_EVENTS.items()},
}

# Bits of struct perf_event_attr's flag word that modifiers set.
EXCLUDE_USER, EXCLUDE_KERNEL, EXCLUDE_HV, EXCLUDE_IDLE = 1 << 4, 1 << 5, 1 << 6, 1 << 7
PRECISE_SHIFT = 15
EXCLUDE_HOST, EXCLUDE_GUEST = 1 << 19, 1 << 20
_MODIFIERS = "ukhIGHp"


@dataclass(frozen=True, slots=True)
class EventSpec:
    """One event as the kernel is asked for it.

    ``name`` is what the user wrote without the rate; ``config``, ``config1``, ``config2`` and
    ``flags`` are those of struct perf_event_attr. Either ``frequency`` (Hz) or ``period``
    (occurrences from one sample to the next) is not 0. ``scale`` turns occurrences into ``unit``.
    """

    name: str
    type: int
    config: int
    config1: int = 0
    config2: int = 0
    flags: int = 0
    frequency: int = 0
    period: int = 0
    unit: str = ""
    scale: float = 1.0

    @property
    def clock(self) -> bool:
        """Whether it is one of the kernel's two clocks, which count nanoseconds."""
        return self.type == syscalls.PERF_TYPE_SOFTWARE and self.config in syscalls.SW_CLOCKS

    def perf_event(self) -> syscalls.PerfEvent:
        """What to give to :func:`hpcd.bpf.syscalls.perf_event_open`."""
        return syscalls.PerfEvent(
            self.type,
            self.config,
            self.frequency,
            self.period,
            self.flags,
            config1=self.config1,
            config2=self.config2,
        )

    def model(self, number: int) -> Event:
        """What a measurement says of it, as its event ``number``.

        A record of a clock counts sampling periods, any other the occurrences it stands for,
        which the kernel gives with each sample (``sample_period``).
        """
        from hpcd.model.identity import Event

        if not self.clock:
            return Event(number, self.name, self.unit, self.scale, self.name, self.frequency)
        period_ns = self.period or 1_000_000_000 // self.frequency
        plain = self.name.partition(":")[0]
        metric = "cpu_time" if plain == "cpu-clock" else "task_clock"
        return Event(number, self.name, "s", period_ns / 1e9, metric, self.frequency)

    def require(self) -> None:
        """Open the event once on this thread. Costs some 20 µs.

        Raises :class:`PlatformError` in one line that says why the kernel does not offer it, or
        :class:`PrivilegeError`.
        """
        reason = self._refusal(self.perf_event())
        if reason is None:
            return
        limit = _rate_limit()
        if self.frequency > limit:
            raise PlatformError(
                f"event {self.name}: {self.frequency} Hz is more than this kernel allows "
                f"({limit}, kernel.perf_event_max_sample_rate)"
            )
        precise = 3 << PRECISE_SHIFT
        if self.flags & precise and not self._refusal(
            replace(self, flags=self.flags & ~precise).perf_event()
        ):
            raise PlatformError(
                f"event {self.name}: this machine cannot sample it precisely; "
                "leave out the modifier p"
            )
        if self._refusal(replace(self, frequency=0, period=0).perf_event()) is None:
            raise PlatformError(f"event {self.name}: this machine can count it but not sample it")
        if reason == errno.ENOENT and self.type in (
            syscalls.PERF_TYPE_HARDWARE,
            PERF_TYPE_HW_CACHE,
            PERF_TYPE_RAW,
        ):
            why = "this machine has no such hardware counter"
            if not _core_pmu():
                why += " (it has no PMU, as is usual in virtual machines); cpu-clock always works"
            raise PlatformError(f"event {self.name}: {why}")
        raise PlatformError(f"event {self.name}: the kernel refuses it: {os.strerror(reason)}")

    def _refusal(self, event: syscalls.PerfEvent) -> int | None:
        """The errno with which the kernel declines ``event``, None when it takes it."""
        disabled = replace(event, flags=event.flags | syscalls.DISABLED)
        try:
            os.close(syscalls.perf_event_open(disabled, 0, -1))
        except PlatformError:
            return errno.ENOENT
        except KernelRefusedError as error:
            return error.errno
        return None


def parse_events(text: str, frequency: int) -> list[EventSpec]:
    """The events of a list as perf takes it, separated by commas outside slashes.

    ``frequency`` (Hz) is for those without a rate of their own; tracepoints without one are
    recorded each time. Reads sysfs and tracefs. Raises :class:`UsageError` in one line for what
    cannot be understood, :class:`PlatformError` for what needs a facility this machine lacks.
    """
    if not text.strip():
        raise UsageError("no event named; cpu-clock is the usual one")
    if len(text) > _MAX_LENGTH:
        raise UsageError(f"the list of events is longer than {_MAX_LENGTH} characters")
    if "{" in text or "}" in text:
        raise UsageError("groups of events in braces are not supported; separate them by commas")
    events: dict[str, EventSpec] = {}
    for part in _split(text):
        event = parse_event(part, frequency)
        if event.name in events:
            raise UsageError(f"event {event.name} is named twice")
        events[event.name] = event
    return list(events.values())


def parse_event(text: str, frequency: int) -> EventSpec:
    """One event. As :func:`parse_events`."""
    text = text.strip()
    if not text:
        raise UsageError("an event's name is empty (a comma too many?)")
    if "/" in text:
        return _with_terms(text, frequency)
    name, _, modifiers = text.partition(":")
    if modifiers and not _is_plain(name):
        return _rated(_tracepoint(text), {}, frequency)
    base = _plain(name)
    flags = _flags(modifiers, text) if ":" in text else 0
    return _rated(replace(base, name=text, flags=flags), {}, frequency)


def _split(text: str) -> Iterable[str]:
    """At commas that do not lie between a pair of slashes."""
    start, inside = 0, False
    for index, letter in enumerate(text):
        if letter == "/":
            inside = not inside
        elif letter == "," and not inside:
            yield text[start:index]
            start = index + 1
    if inside:
        raise UsageError(f"event {text[start:].strip()}: its second slash is missing")
    yield text[start:]


# --- names ---


def _is_plain(name: str) -> bool:
    return bool(
        name.lower() in _LOWER or _RAW.fullmatch(name) or any(True for _ in _pmus_with(name))
    )


_RAW = re.compile(r"r[0-9a-fA-F]{1,16}")
_LOWER = {name.lower(): name for name in _GENERIC}


def _plain(name: str) -> EventSpec:
    """A generic event, a raw code, or an event that a PMU lists."""
    generic = _LOWER.get(name.lower())
    if generic:
        kind, config = _GENERIC[generic]
        return EventSpec(name, kind, config)
    if _RAW.fullmatch(name):
        return EventSpec(name, PERF_TYPE_RAW, int(name[1:], 16))
    pmus = list(_pmus_with(name))
    if len(pmus) == 1:
        return _of_pmu(pmus[0], {name: ""}, name)
    if pmus:
        choices = " or ".join(f"{pmu.name}/{name}/" for pmu in pmus)
        raise UsageError(f"event {name}: several PMUs have it; write {choices}")
    if any(letter in name for letter in "*?["):
        raise UsageError(f"event {name}: patterns are not supported; name each event")
    names = [*_GENERIC, *(event for pmu in _pmus() for event in _named_events(pmu))]
    raise UsageError(f"no event {name}{_nearest(name, names)}")


def _nearest(name: str, names: Iterable[str]) -> str:
    return did_you_mean(name, names) or " (perf list shows those there are)"


def _flags(modifiers: str, text: str) -> int:
    """perf's letters as bits of perf_event_attr. User and kernel are kept unless one is named."""
    if not modifiers:
        raise UsageError(f"event {text}: modifiers are missing after the colon")
    wrong = next((letter for letter in modifiers if letter not in _MODIFIERS), None)
    if wrong:
        raise UsageError(
            f"event {text}: no modifier {wrong}; there are u (user), k (kernel), h (hypervisor), "
            "I (not idle), G (guest), H (host), p to ppp (precise)"
        )
    flags = 0
    if set(modifiers) & set("ukh"):
        excluded = {"u": EXCLUDE_USER, "k": EXCLUDE_KERNEL, "h": EXCLUDE_HV}
        flags |= sum(bit for letter, bit in excluded.items() if letter not in modifiers)
    if set(modifiers) & set("GH"):
        flags |= sum(
            bit
            for letter, bit in {"G": EXCLUDE_GUEST, "H": EXCLUDE_HOST}.items()
            if letter not in modifiers
        )
    if "I" in modifiers:
        flags |= EXCLUDE_IDLE
    if modifiers.count("p") > 3:
        raise UsageError(f"event {text}: there are no more than three p")
    return flags | modifiers.count("p") << PRECISE_SHIFT


# --- tracepoints ---


def _tracepoint(text: str) -> EventSpec:
    system, _, name = text.partition(":")
    name, _, modifiers = name.partition(":")
    if not (re.fullmatch(r"[\w-]+", system) and re.fullmatch(r"[\w-]+", name)):
        if any(letter in text for letter in "*?["):
            raise UsageError(f"event {text}: patterns are not supported; name each tracepoint")
        raise UsageError(f"no event {text}{_nearest(text, _GENERIC)}")
    flags = _flags(modifiers, text) if text.count(":") > 1 else 0
    with tracefs.events() as folder:
        number = folder.number(system, name)
        if number is None:
            names = folder.names(system)
            if names:
                raise UsageError(
                    f"no tracepoint {name} in {system}"
                    + _nearest(f"{system}:{name}", [f"{system}:{member}" for member in names])
                )
            raise UsageError(f"no event {text}" + _nearest(system, [*_GENERIC, *folder.systems()]))
    return EventSpec(text, syscalls.PERF_TYPE_TRACEPOINT, number, flags=flags)


# --- PMUs and terms ---

_WORDS = ("config", "config1", "config2")


def _with_terms(text: str, frequency: int) -> EventSpec:
    """``NAME/term=value,.../modifiers``: NAME is a PMU or an event that is only given a rate."""
    name, terms_text, *rest = text.split("/")
    if len(rest) != 1:
        raise UsageError(f"event {text}: it has a slash too many or too few")
    modifiers = rest[0].removeprefix(":")
    flags = _flags(modifiers, text) if rest[0] else 0
    terms = _terms(terms_text, text)
    rates: tuple[str, ...] = ("freq", "period")
    rate = {key: terms.pop(key) for key in rates if key in terms}
    suffix = f":{modifiers}" if modifiers else ""
    pmu = next((folder for folder in _pmus() if folder.name == name), None)
    if pmu and terms:
        event = _of_pmu(pmu, terms, text)
        inner = ",".join(f"{key}={value}" if value else key for key, value in terms.items())
        event = replace(event, name=f"{name}/{inner}/{modifiers}")
    elif pmu:
        raise UsageError(f"event {text}: say which of {name}'s{_choices(pmu)}")
    elif terms:
        if _is_plain(name):
            raise UsageError(f"event {text}: only freq= and period= go with {name}")
        pmus = [folder.name for folder in _pmus()]
        raise UsageError(f"event {text}: no PMU {name}; there are {', '.join(pmus) or 'none'}")
    elif ":" in name and not _is_plain(name.partition(":")[0]):
        event = replace(_tracepoint(name), name=f"{name}{suffix}")
    else:
        event = replace(_plain(name), name=f"{name}{suffix}")
    return _rated(replace(event, flags=flags), rate, frequency)


def _terms(text: str, event: str) -> dict[str, str]:
    terms: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not key or (equals and not value):
            raise UsageError(f"event {event}: a term is empty")
        if key in terms:
            raise UsageError(f"event {event}: {key} is given twice")
        terms[key] = value
    return terms


def _rated(event: EventSpec, rate: dict[str, str], frequency: int) -> EventSpec:
    if len(rate) > 1:
        raise UsageError(f"event {event.name}: give freq= or period=, not both")
    for key, text in rate.items():
        value = _number(text)
        if value is None or not 1 <= value < 1 << 63:
            raise UsageError(f"event {event.name}: {key}={text} is not a number above 0")
        if key == "freq":
            if value > 1_000_000:
                raise UsageError(f"event {event.name}: freq={text} is more than 1,000,000 Hz")
            return replace(event, frequency=value)
        return replace(event, period=value)
    if event.type == syscalls.PERF_TYPE_TRACEPOINT:
        return replace(event, period=1)
    return replace(event, frequency=frequency)


@dataclass(slots=True)
class _Bits:
    """The configuration words being put together."""

    words: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_WORDS, 0))

    def put(self, layout: str, value: int) -> bool:
        """Spread ``value`` over ``config:0-7,32-35``; False when it is too big for it."""
        word, _, ranges = layout.strip().partition(":")
        used = 0
        for span in ranges.split(","):
            first, _, last = span.partition("-")
            low, high = int(first), int(last or first)
            width = high - low + 1
            if width < 1 or high > 63:
                raise ValueError(layout)
            mask = (1 << width) - 1
            # A named event's fields may be given again, as in cpu/mem-loads,ldlat=30/.
            kept = self.words[word] & ~(mask << low) & _U64
            self.words[word] = kept | ((value >> used) & mask) << low
            used += width
        return value >> used == 0


def _of_pmu(pmu: Path, terms: dict[str, str], text: str) -> EventSpec:
    """The event that ``terms`` make of ``pmu``, a folder of sysfs."""
    kind = _number(_text(pmu / "type"))
    if kind is None:
        raise PlatformError(f"event {text}: {pmu}/type cannot be read")
    bits = _Bits()
    unit, scale = "", 1.0
    given = {key for key in terms if not _named_event(pmu, key)}
    for key, value in terms.items():
        named = _named_event(pmu, key)
        if named is None:
            _put(bits, pmu, key, value, text)
            continue
        if value:
            raise UsageError(f"event {text}: {key} is an event of {pmu.name} and takes no value")
        for inner, number in _terms(named, text).items():
            if number == "?":
                if inner not in given:
                    raise UsageError(f"event {text}: {key} needs {inner}=")
            elif inner not in given:
                _put(bits, pmu, inner, number, text)
        unit = _text(pmu / "events" / f"{key}.unit")
        try:
            scale = float(_text(pmu / "events" / f"{key}.scale") or 1.0)
        except ValueError:
            raise PlatformError(f"event {text}: {pmu}/events/{key}.scale is no number") from None
    config, config1, config2 = (bits.words[word] for word in _WORDS)
    return EventSpec(text, kind, config, config1, config2, unit=unit, scale=scale)


def _put(bits: _Bits, pmu: Path, key: str, value: str, text: str) -> None:
    number = _number(value) if value else 1
    if number is None:
        raise UsageError(f"event {text}: {key}={value} is not a number")
    layout = key if key in _WORDS else _text(pmu / "format" / key) if _simple(key) else ""
    if not layout:
        raise UsageError(f"event {text}: {pmu.name} has no {key}{_choices(pmu, key)}")
    if layout in _WORDS:
        layout += ":0-63"
    try:
        fits = bits.put(layout, number)
    except (KeyError, ValueError):
        raise PlatformError(
            f"event {text}: {pmu}/format/{key} says {layout}, which hpcd does not know"
        ) from None
    if not fits:
        raise UsageError(f"event {text}: {key}={value} does not fit into {layout}")


def _choices(pmu: Path, key: str = "") -> str:
    """What a PMU has, the nearest to ``key`` when there are many."""
    names = [*_named_events(pmu), *_listed(pmu / "format"), *_WORDS]
    return did_you_mean(key, names) or f"; it has {', '.join(names[:12])}"


def _pmus() -> list[Path]:
    return [_PMUS / name for name in _listed(_PMUS)]


def _pmus_with(name: str) -> Iterable[Path]:
    """The PMUs that list an event of this name."""
    return (pmu for pmu in _pmus() if _named_event(pmu, name) is not None)


def _named_event(pmu: Path, name: str) -> str | None:
    """What ``events/NAME`` says, None when there is no such file."""
    if not _simple(name) or name.endswith((".unit", ".scale", ".snapshot", ".per-pkg")):
        return None
    return _text(pmu / "events" / name) or None


def _named_events(pmu: Path) -> list[str]:
    return [name for name in _listed(pmu / "events") if "." not in name]


def _core_pmu() -> bool:
    """Whether the processor's own counters are there, by any of the names they have had."""
    return any(
        name in ("cpu", "cpu_core", "cpum_cf") or name.startswith("armv8")
        for name in _listed(_PMUS)
    )


def _simple(name: str) -> bool:
    """Whether ``name`` can be joined to a folder without leaving it."""
    return bool(re.fullmatch(r"[\w.+-]+", name)) and name not in (".", "..")


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    """Decimal or 0x hexadecimal, as perf takes them."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}", text):
        return int(text, 16)
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None


def _rate_limit() -> int:
    return _number(_text(_RATE_LIMIT)) or _U64
