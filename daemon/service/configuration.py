"""The service's configuration file: TOML, every key with its meaning and default stated here."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from hpcd.daemon.service import SOCKET
from hpcd.errors import NotFoundError, UsageError, did_you_mean

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}


def _key(default: Any, meaning: str, kind: str = "") -> Any:
    metadata = {"meaning": meaning, "kind": kind}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(slots=True)
class Store:
    """The place of the measurements, and how long they are kept."""

    directory: str = _key("/var/lib/hpcd", "Directory of the measurements.")
    keep: str = _key("14d", "Closed measurements older than this are removed.", "time")
    quota: str = _key(
        "20G", "When all take more, the oldest closed ones go of the user who takes most.", "size"
    )
    user_quota: str = _key(
        "5G",
        "What each user other than root may take; then that user's oldest closed ones go.",
        "size",
    )
    free: str = _key(
        "2G",
        "While the disk has less free space, nothing is recorded; it goes on by itself.",
        "size",
    )


@dataclass(slots=True)
class Monitor:
    """Recording the host all the time."""

    enabled: bool = _key(False, "Whether to.")
    users: list[str] = _key([], "Processes of these users only; empty: every process.")
    frequency: int = _key(99, "Samples a second of each thread's CPU time.")
    overhead: str = _key("1%", "What it may cost, of the CPU time recorded.", "share")
    blocked: bool = _key(True, "Record how long threads wait and where.")
    rotate: str = _key("1h", "Length of each measurement.", "time")


@dataclass(slots=True)
class ControlSettings:
    """Requests over the control socket."""

    socket: str = _key(SOCKET, "Its place, unless systemd hands it over.")
    group: str = _key("hpcd", "Members of this group see all recordings of the host, as root does.")
    recordings: int = _key(4, "Recordings each user may have at a time.")
    longest: str = _key("1d", "Longest duration a user other than root may record.", "time")
    cpu: str = _key(
        "25%",
        "Of one CPU, what each recorder of a user other than root may take; then it samples less,"
        " and at last loses samples of its own.",
        "share",
    )
    memory: str = _key(
        "1G", "What each recorder of a user other than root may take; then it ends.", "size"
    )
    probes: int = _key(
        0,
        "Functions that a recording of a user other than root may probe (--probe, --mpi); 0: none."
        " docs/service.md says what to consider.",
    )
    tables: str = _key(
        "512M",
        "Unwind tables and mappings of one user's programs in a recording, the node's included;"
        " call paths through what has no room are truncated.",
        "size",
    )


@dataclass(slots=True)
class MetricsSettings:
    """Figures for Prometheus."""

    listen: str = _key(
        "", 'Where to serve them: "127.0.0.1:9923" or another loopback address; empty: nowhere.'
    )
    token: str = _key(
        "/run/hpcd/metrics.token",
        "File of the bearer token that they are served for, since all users can connect there; made"
        " if missing, for root and the group control.group.",
    )


@dataclass(slots=True)
class PushSettings:
    """Profiles of the monitored host, pushed to a receiver while they are recorded."""

    url: str = _key(
        "",
        'The receiver, such as "https://collector:4318"; empty: nothing is pushed. Users'
        " cannot have the service send anything.",
    )
    format: str = _key("otlp", 'What it takes: "otlp" or "pprof" (Pyroscope).')
    every: str = _key("15s", "Time from one push to the next.", "time")
    headers: str = _key(
        "", "File of HTTP headers, one a line, such as Authorization: Bearer TOKEN; empty: none."
    )


@dataclass(slots=True)
class Configuration:
    """The whole file."""

    store: Store = field(default_factory=Store)
    monitor: Monitor = field(default_factory=Monitor)
    control: ControlSettings = field(default_factory=ControlSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    push: PushSettings = field(default_factory=PushSettings)


def load_configuration(path: Path) -> Configuration:
    """Read ``path``.

    Raises :class:`NotFoundError`, and :class:`UsageError` in one line for anything that is not a
    known key with a value that makes sense.
    """
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise NotFoundError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None
    configuration = Configuration()
    _fill(configuration, content, str(path), "")
    if configuration.control.probes < 0:
        raise UsageError(f"{path}: control.probes must not be negative")
    if configuration.monitor.frequency < 1:
        raise UsageError(f"{path}: monitor.frequency must be at least 1")
    push = configuration.push
    if push.url and not push.url.startswith(("http://", "https://")):
        raise UsageError(f"{path}: push.url is no URL such as http://host:4318")
    if push.format not in ("otlp", "pprof"):
        raise UsageError(f'{path}: push.format must be "otlp" or "pprof"')
    return configuration


def _fill(target: Any, content: dict[str, Any], path: str, prefix: str) -> None:
    known = {key.name: key for key in fields(target)}
    for name, value in content.items():
        if name not in known:
            near = did_you_mean(prefix + name, (prefix + key for key in known), 1)
            raise UsageError(f"{path}: unknown key {prefix}{name}{near}")
        current = getattr(target, name)
        if is_dataclass(current):
            if not isinstance(value, dict):
                raise UsageError(f"{path}: {prefix}{name} is a table: write [{prefix}{name}]")
            _fill(current, value, path, f"{name}.")
            continue
        if type(value) is not type(current) or (
            isinstance(value, list) and not all(isinstance(text, str) for text in value)
        ):
            wanted = {bool: "true or false", int: "a whole number", str: "text", list: "texts"}
            raise UsageError(f"{path}: {prefix}{name} must be {wanted[type(current)]}")
        kind = known[name].metadata["kind"]
        if kind:
            try:
                _PARSERS[kind](value)
            except UsageError as error:
                raise UsageError(f"{path}: {prefix}{name}: {error}") from None
        setattr(target, name, value)


def size_of(text: str) -> int:
    """Bytes of a size such as ``20G``."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is no size such as 20G")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def seconds_of(text: str) -> float:
    """Seconds of a time such as ``90s``, ``5min``, ``1h`` or ``14d``."""
    match = _TIME.fullmatch(text.strip())
    if not match or not float(match[1]):
        raise UsageError(f"{text!r} is no time such as 90s, 5min, 1h or 14d")
    return float(match[1]) * _SECONDS[match[2]]


def share_of(text: str) -> float:
    """The share that a percentage such as ``1%`` denotes."""
    match = _SHARE.fullmatch(text.strip())
    if not match or not 0 < float(match[1]) <= 100:
        raise UsageError(f"{text!r} is no share such as 1%")
    return float(match[1]) / 100


_PARSERS = {"size": size_of, "time": seconds_of, "share": share_of}


def as_toml(configuration: Configuration) -> str:
    """The file that says what ``configuration`` says, with the meaning of every key."""
    lines = ["# The hpcd service. Options that are left out have the values shown here."]
    for table in fields(configuration):
        part = getattr(configuration, table.name)
        lines += ["", f"# {(part.__doc__ or '').splitlines()[0]}", f"[{table.name}]"]
        for key in fields(part):
            lines.append(f"# {key.metadata['meaning']}")
            # JSON's texts, numbers, truths and lists of texts are TOML's too.
            lines.append(f"{key.name} = {json.dumps(getattr(part, key.name))}")
    return "\n".join(lines) + "\n"
