"""``hpcd push``: profiles of a measurement that is being written, to a receiver, at intervals."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from hpcd.analysis.live.label_profiles import ProfileFollower
from hpcd.analysis.symbols.confined_naming import ConfinedNaming
from hpcd.analysis.symbols.frame_lookup import MakeNamer
from hpcd.analysis.symbols.symbolization import Namer
from hpcd.cli.command import Command
from hpcd.cli.output.terminal_text import say
from hpcd.errors import FormatError, HpcdError, NotFoundError, StorageError, UsageError
from hpcd.interchange.pprof.profile_push import Pusher, Receiver
from hpcd.interchange.pprof.push_requests import FORMATS
from hpcd.signals import ENDING, handle
from hpcd.wording import counted

# Time for a recorder to begin its measurement.
_BEGIN_SECONDS = 60.0
_RETRY_SECONDS = 0.25
_MAX_HEADERS = 1 << 16
# Room for ten million call paths, whose frames take 400 MB. It runs as root beside the service, and
# names and paths are chosen by users.
_MEMORY = 2 << 30


class Push(Command):
    """Push profiles of a measurement to a receiver of OpenTelemetry profiles or of pprof.

    Follows a measurement that is being written and sends what it gained at intervals, with labels
    user, job, rank and command, until it ends; one that has ended is sent at once. The service does
    the same for the host, if its configuration says so ([push] in hpcd.toml). docs/continuous.md
    says which receivers, what is sent, and what is not.
    """

    name = "push"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("measurement", type=Path, help="a measurement directory")
        parser.add_argument(
            "--to", required=True, metavar="URL",
            help="receiver, such as http://localhost:4318 (OTLP) or http://localhost:4040 (pprof)",
        )  # fmt: skip
        parser.add_argument(
            "--format", choices=FORMATS, default="otlp",
            help="OTLP profiles, or pprof for Pyroscope's /ingest (default: %(default)s)",
        )  # fmt: skip
        parser.add_argument(
            "--every", type=float, default=15.0, metavar="S",
            help="seconds from one push to the next (default: %(default)g)",
        )  # fmt: skip
        parser.add_argument(
            "--headers", type=Path, metavar="FILE",
            help="file of HTTP headers, one a line, such as Authorization: Bearer TOKEN",
        )  # fmt: skip
        parser.add_argument(
            "--from-now", action="store_true", help="leave out what is recorded already"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object at the end")

    def run(self, args: argparse.Namespace) -> int:
        if not 1 <= args.every <= 86400:
            raise UsageError("--every must be between 1 and 86400 seconds")
        receiver = Receiver(args.to, args.format, read_headers(args.headers))
        stop = threading.Event()
        handle(ENDING, stop.set)
        # Root reads no files of others itself.
        naming = ConfinedNaming() if os.geteuid() == 0 else None
        with contextlib.ExitStack() as stack:
            stack.enter_context(limited_memory())
            if naming:
                stack.callback(naming.close)
            follower = _begin(
                args.measurement, naming.namer if naming else Namer, stop, from_now=args.from_now
            )
            if follower is None:
                return 0
            stack.callback(follower.close)
            pusher = Pusher(follower, receiver, args.every, _report)
            pusher.run(stop)
        if args.json:
            print(json.dumps({"to": args.to, "format": args.format, "requests": pusher.sent,
                              "lost": pusher.lost}))  # fmt: skip
        _report(f"{counted(pusher.sent, 'request')} sent to {args.to}"
              + (f", {pusher.lost} lost" if pusher.lost else ""))  # fmt: skip
        return 0 if not pusher.lost else StorageError.exit_code


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Bound what this process allocates in the block. Raises :class:`HpcdError` where it is not
    enough."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = _MEMORY if before[1] == resource.RLIM_INFINITY else min(_MEMORY, before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    try:
        yield
    except MemoryError:
        raise HpcdError(f"the profiles need more than {most >> 20} MiB of memory") from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _begin(
    path: Path, make_namer: MakeNamer, stop: threading.Event, *, from_now: bool
) -> ProfileFollower | None:
    """Follow ``path`` as soon as its recorder has begun it; None if stopped before."""
    deadline = time.monotonic() + _BEGIN_SECONDS
    while not stop.is_set():
        try:
            return ProfileFollower(path, make_namer, from_now=from_now)
        except FormatError:
            begun = any(path.glob("segment-*"))
            if begun or time.monotonic() > deadline:
                raise
        stop.wait(_RETRY_SECONDS)
    return None


def read_headers(path: Path | None) -> dict[str, str]:
    """Return the headers of a file. Raises NotFoundError, and UsageError that shows nothing of a
    line, which may be a secret."""
    if path is None:
        return {}
    try:
        with path.open(encoding="ascii") as file:
            lines = file.read(_MAX_HEADERS).splitlines()
    except OSError as error:
        raise NotFoundError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: headers are ASCII") from None
    headers = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.replace("-", "").isalnum() or not value.strip().isprintable():
            raise UsageError(f"{path}: line {number} is no header such as Name: VALUE")
        headers[name] = value.strip()
    return headers


def _report(line: str) -> None:
    say(f"hpcd push: {line}")
