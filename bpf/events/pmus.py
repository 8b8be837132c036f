"""The processor's and the kernel's counters as sysfs lists them: PMUs, their events and fields.

Source: Documentation/ABI/testing/sysfs-bus-event_source-devices-{events,format}.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hpcd.errors import PlatformError, UsageError, did_you_mean

_PMUS = Path("/sys/bus/event_source/devices")
_U64 = (1 << 64) - 1
_WORDS = ("config", "config1", "config2")


@dataclass(slots=True)
class PmuConfig:
    """The configuration of one event of a PMU, while its terms are put into it.

    ``words`` are ``config``, ``config1`` and ``config2`` of struct perf_event_attr; ``unit`` and
    ``scale`` those of the named event.
    """

    words: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_WORDS, 0))
    unit: str = ""
    scale: float = 1.0

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


class Pmu:
    """One PMU, a folder of sysfs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name

    def named_event(self, name: str) -> str | None:
        """Return the terms of its event ``name``, None if it has no such event."""
        if not _is_simple(name) or name.endswith((".unit", ".scale", ".snapshot", ".per-pkg")):
            return None
        return read_text(self.folder / "events" / name) or None

    def event_names(self) -> list[str]:
        """Return the names of its events."""
        return [name for name in _list(self.folder / "events") if "." not in name]

    def suggest(self, key: str = "") -> str:
        """Return the end of a message that says what it has, the nearest to ``key`` if much."""
        names = [*self.event_names(), *_list(self.folder / "format"), *_WORDS]
        return did_you_mean(key, names) or f"; it has {', '.join(names[:12])}"

    def configure(self, terms: dict[str, str], text: str) -> tuple[int, PmuConfig]:
        """Return its type and the configuration that ``terms`` of event ``text`` make.

        Raises :class:`UsageError` for terms that it does not have, :class:`PlatformError` where
        sysfs says what hpcd does not understand.
        """
        kind = parse_number(read_text(self.folder / "type"))
        if kind is None:
            raise PlatformError(f"event {text}: {self.folder}/type cannot be read")
        config = PmuConfig()
        given = {key for key in terms if not self.named_event(key)}
        for key, value in terms.items():
            named = self.named_event(key)
            if named is None:
                self._put(config, key, value, text)
                continue
            if value:
                raise UsageError(
                    f"event {text}: {key} is an event of {self.name} and takes no value"
                )
            for inner, number in parse_terms(named, text).items():
                if number == "?":
                    if inner not in given:
                        raise UsageError(f"event {text}: {key} needs {inner}=")
                elif inner not in given:
                    self._put(config, inner, number, text)
            config.unit = read_text(self.folder / "events" / f"{key}.unit")
            scale = read_text(self.folder / "events" / f"{key}.scale")
            try:
                config.scale = float(scale or 1.0)
            except ValueError:
                raise PlatformError(
                    f"event {text}: {self.folder}/events/{key}.scale is no number"
                ) from None
        return kind, config

    def _put(self, config: PmuConfig, key: str, value: str, text: str) -> None:
        number = parse_number(value) if value else 1
        if number is None:
            raise UsageError(f"event {text}: {key}={value} is not a number")
        layout = key
        if key not in _WORDS:
            layout = read_text(self.folder / "format" / key) if _is_simple(key) else ""
        if not layout:
            raise UsageError(f"event {text}: {self.name} has no {key}{self.suggest(key)}")
        if layout in _WORDS:
            layout += ":0-63"
        try:
            fits = config.put(layout, number)
        except (KeyError, ValueError):
            raise PlatformError(
                f"event {text}: {self.folder}/format/{key} says {layout}, which hpcd does not know"
            ) from None
        if not fits:
            raise UsageError(f"event {text}: {key}={value} does not fit into {layout}")


def pmus() -> list[Pmu]:
    """Return the PMUs of this machine."""
    return [Pmu(_PMUS / name) for name in _list(_PMUS)]


def pmus_with(name: str) -> Iterable[Pmu]:
    """Return the PMUs that list an event of this name."""
    return (pmu for pmu in pmus() if pmu.named_event(name) is not None)


def has_core_pmu() -> bool:
    """Return whether the processor's own counters are there, by any name they have had."""
    return any(
        name in ("cpu", "cpu_core", "cpum_cf") or name.startswith("armv8") for name in _list(_PMUS)
    )


def parse_terms(text: str, event: str) -> dict[str, str]:
    """Return the terms ``key=value,...`` of ``event``; "" for a key without a value.

    Raises :class:`UsageError`.
    """
    terms: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not key or (equals and not value):
            raise UsageError(f"event {event}: a term is empty")
        if key in terms:
            raise UsageError(f"event {event}: {key} is given twice")
        terms[key] = value
    return terms


def parse_number(text: str) -> int | None:
    """Return a decimal or 0x hexadecimal number, as perf takes them; None for what is neither."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}", text):
        return int(text, 16)
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None


def read_text(path: Path) -> str:
    """Return what a file of sysfs or /proc says; "" if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _is_simple(name: str) -> bool:
    """Whether ``name`` can be joined to a folder without leaving it."""
    return bool(re.fullmatch(r"[\w.+-]+", name)) and name not in (".", "..")


def _list(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return []
