"""Events by the names users of perf write, as the numbers perf_event_open(2) takes.

    cpu-clock  cycles  page-faults  L1-dcache-load-misses    the kernel's generic events
    r1a8                                                     a raw code of the processor
    cpu/event=0x3c,umask=0/  msr/tsc/  mem-loads             events and fields of a PMU
    sched:sched_switch                                       a tracepoint
    cycles:u  cycles:ppp  cpu/event=0x3c/uk                  with perf's modifiers
    cycles/period=100000/  cs/freq=99/                       with a rate of their own

Sources: tools/perf/Documentation/perf-list.txt and include/uapi/linux/perf_event.h.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from hpcd.bpf.events.event_spec import (
    EXCLUDE_GUEST,
    EXCLUDE_HOST,
    EXCLUDE_HV,
    EXCLUDE_IDLE,
    EXCLUDE_KERNEL,
    EXCLUDE_USER,
    PERF_TYPE_HW_CACHE,
    PERF_TYPE_RAW,
    PRECISE_SHIFT,
    EventSpec,
)
from hpcd.bpf.events.pmus import Pmu, parse_number, parse_terms, pmus, pmus_with
from hpcd.bpf.kernel import syscalls
from hpcd.bpf.loading import tracefs
from hpcd.errors import UsageError, did_you_mean

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
_CACHES = {
    "L1-dcache": 0,
    "L1-icache": 1,
    "LLC": 2,
    "dTLB": 3,
    "iTLB": 4,
    "branch": 5,
    "node": 6,
}
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

_MODIFIERS = "ukhIGHp"


def parse_events(text: str, frequency: int) -> list[EventSpec]:
    """Return the events of a list as perf takes it, separated by commas outside slashes.

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
    """Return one event. Raises what :func:`parse_events` does."""
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
        name.lower() in _LOWER or _RAW.fullmatch(name) or any(True for _ in pmus_with(name))
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
    listing = list(pmus_with(name))
    if len(listing) == 1:
        return _of_pmu(listing[0], {name: ""}, name)
    if listing:
        choices = " or ".join(f"{pmu.name}/{name}/" for pmu in listing)
        raise UsageError(f"event {name}: several PMUs have it; write {choices}")
    if any(letter in name for letter in "*?["):
        raise UsageError(f"event {name}: patterns are not supported; name each event")
    names = [*_GENERIC, *(event for pmu in pmus() for event in pmu.event_names())]
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


# --- terms ---


def _with_terms(text: str, frequency: int) -> EventSpec:
    """``NAME/term=value,.../modifiers``: NAME is a PMU or an event that is only given a rate."""
    name, terms_text, *rest = text.split("/")
    if len(rest) != 1:
        raise UsageError(f"event {text}: it has a slash too many or too few")
    modifiers = rest[0].removeprefix(":")
    flags = _flags(modifiers, text) if rest[0] else 0
    terms = parse_terms(terms_text, text)
    rates: tuple[str, ...] = ("freq", "period")
    rate = {key: terms.pop(key) for key in rates if key in terms}
    suffix = f":{modifiers}" if modifiers else ""
    pmu = next((pmu for pmu in pmus() if pmu.name == name), None)
    if pmu and terms:
        event = _of_pmu(pmu, terms, text)
        inner = ",".join(f"{key}={value}" if value else key for key, value in terms.items())
        event = replace(event, name=f"{name}/{inner}/{modifiers}")
    elif pmu:
        raise UsageError(f"event {text}: say which of {name}'s{pmu.suggest()}")
    elif terms:
        if _is_plain(name):
            raise UsageError(f"event {text}: only freq= and period= go with {name}")
        names = ", ".join(pmu.name for pmu in pmus())
        raise UsageError(f"event {text}: no PMU {name}; there are {names or 'none'}")
    elif ":" in name and not _is_plain(name.partition(":")[0]):
        event = replace(_tracepoint(name), name=f"{name}{suffix}")
    else:
        event = replace(_plain(name), name=f"{name}{suffix}")
    return _rated(replace(event, flags=flags), rate, frequency)


def _rated(event: EventSpec, rate: dict[str, str], frequency: int) -> EventSpec:
    if len(rate) > 1:
        raise UsageError(f"event {event.name}: give freq= or period=, not both")
    for key, text in rate.items():
        value = parse_number(text)
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


def _of_pmu(pmu: Pmu, terms: dict[str, str], text: str) -> EventSpec:
    kind, configured = pmu.configure(terms, text)
    config, config1, config2 = configured.words.values()
    return EventSpec(
        text, kind, config, config1, config2, unit=configured.unit, scale=configured.scale
    )
