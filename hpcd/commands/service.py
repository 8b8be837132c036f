"""What the verbs that talk to the service share."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpcd.daemon.recording import Options
from hpcd.daemon.service.configuration import Control
from hpcd.daemon.service.protocol import ask, held
from hpcd.errors import HpcdError, StorageError

_POLL_SECONDS = 0.25


def add_socket_option(parser: argparse._ActionsContainer) -> None:
    """Where the service listens."""
    parser.add_argument(
        "--socket",
        default=os.environ.get("HPCD_SOCKET", Control().socket),
        metavar="PATH",
        help="the service's control socket (default: %(default)s, or $HPCD_SOCKET)",
    )


def attach_by_service(socket: str, options: Options, output: Path | None) -> dict[str, Any]:
    """Have the service record ``options``; its description of the recording.

    The directory ``output`` is made and opened here, with the rights of whoever runs this.
    """
    if output is None:
        return ask(socket, request_of(options))
    with _made(output) as fd:
        return ask(socket, {**request_of(options), "output": str(output.absolute())}, fd)


@contextlib.contextmanager
def held_by_service(socket: str, options: Options, output: Path | None) -> Iterator[dict[str, Any]]:
    """As :func:`attach_by_service`, for no longer than the block runs and this process lives."""
    with contextlib.ExitStack() as stack:
        request, fd = {**request_of(options), "held": True}, None
        if output is not None:
            request["output"] = str(output.absolute())
            fd = stack.enter_context(_made(output))
        yield stack.enter_context(held(socket, request, fd))


@contextlib.contextmanager
def recorded_by_service(socket: str, options: Options, output: Path) -> Iterator[int]:
    """Has the service record ``options`` into ``output`` for as long as the block runs; the
    recording's number."""
    with held_by_service(socket, options, output) as begun:
        try:
            yield begun["id"]
        finally:
            # Closing the connection would do; this waits until the last is written.
            with contextlib.suppress(HpcdError):
                ask(socket, {"verb": "detach", "id": begun["id"]})


def request_of(options: Options) -> dict[str, Any]:
    """The request that has the service record ``options``."""
    selector = options.selector
    return {
        "verb": "attach",
        "pids": selector.pids,
        "names": selector.names,
        "users": [str(user) for user in selector.users],
        "cgroups": selector.control_groups,
        "containers": selector.containers,
        "jobs": selector.jobs,
        "all": selector.everything,
        "frequency": options.frequency,
        "duration": options.duration,
        "children": options.children,
        "waits": options.waits,
        "threshold_ns": options.threshold_ns,
        "overhead": options.overhead,
    }


@contextlib.contextmanager
def _made(output: Path) -> Iterator[int]:
    """The new directory ``output``, open; it goes if the block fails and left nothing in it."""
    try:
        output.mkdir(mode=0o700)
        fd = os.open(output, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise StorageError(f"cannot make {output}: {error.strerror}") from None
    try:
        yield fd
    except BaseException:
        if not any(output.iterdir()):
            output.rmdir()
        raise
    finally:
        os.close(fd)


def wait_for_end(socket: str, number: int) -> dict[str, Any]:
    """Follow recording ``number`` until it is over; Ctrl-C ends it. Its last description."""
    try:
        while True:
            (each,) = ask(socket, {"verb": "status", "id": number})["recordings"]
            if each["state"] in ("ended", "failed"):
                found: dict[str, Any] = each
                return found
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        return ask(socket, {"verb": "detach", "id": number})
