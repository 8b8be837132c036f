"""Client side of the service: what the verbs that talk to it share."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcd.daemon.service import SOCKET
from hpcd.errors import HpcdError
from hpcd.option_schema import request_of
from hpcd.output_folder import make_directory

if TYPE_CHECKING:
    from hpcd.daemon.capture.loop.stop_request import StopRequest
    from hpcd.daemon.capture.recording_options import Options

_POLL_SECONDS = 0.25


def _ask(socket: str, request: dict[str, object], directory: int | None = None) -> dict[str, Any]:
    from hpcd.daemon.service.protocol import ask  # only now: who is root records without it

    return ask(socket, request, directory)


def add_socket_option(parser: argparse._ActionsContainer) -> None:
    """Add ``--socket``: where the service listens."""
    parser.add_argument(
        "--socket",
        default=os.environ.get("HPCD_SOCKET", SOCKET),
        metavar="PATH",
        help="the service's control socket (default: %(default)s, or $HPCD_SOCKET)",
    )


def attach_by_service(socket: str, options: Options, output: Path | None) -> dict[str, object]:
    """Ask the service to record ``options``. Returns its description of the recording.

    The directory ``output`` is created and opened here, with the rights of the user running this.
    """
    request = {"verb": "attach", **request_of(options)}
    if output is None:
        return _ask(socket, request)
    with _new_directory(output) as directory:
        return _ask(socket, {**request, "output": str(output.absolute())}, directory)


@contextlib.contextmanager
def held_by_service(socket: str, options: Options, output: Path | None) -> Iterator[dict[str, Any]]:
    """Ask the service to record ``options``, as :func:`attach_by_service`, until the block or this
    process ends."""
    with contextlib.ExitStack() as stack:
        request, directory = {"verb": "attach", **request_of(options), "held": True}, None
        if output is not None:
            request["output"] = str(output.absolute())
            directory = stack.enter_context(_new_directory(output))
        from hpcd.daemon.service.protocol import held

        yield stack.enter_context(held(socket, request, directory))


@contextlib.contextmanager
def recorded_by_service(socket: str, options: Options, output: Path) -> Iterator[int]:
    """Let the service record ``options`` into ``output`` while the block runs; yields the
    recording's number."""
    with held_by_service(socket, options, output) as recording:
        try:
            yield recording["id"]
        finally:
            # Closing the connection would end it too; detaching waits until all data is written.
            with contextlib.suppress(HpcdError):
                _ask(socket, {"verb": "detach", "id": recording["id"]})


@contextlib.contextmanager
def _new_directory(output: Path) -> Iterator[int]:
    """Create and open directory ``output``; removed if the block fails and leaves it empty."""
    fd = make_directory(output)
    try:
        yield fd
    except BaseException:
        if not any(output.iterdir()):
            output.rmdir()
        raise
    finally:
        os.close(fd)


def wait_for_end(socket: str, number: int, stop: StopRequest) -> dict[str, Any]:
    """Wait until recording ``number`` ends, and end it on ``stop``. Returns its final description.

    A signal that sets ``stop`` again does not disturb the end.
    """
    while True:
        recording: dict[str, object]
        (recording,) = _ask(socket, {"verb": "status", "id": number})["recordings"]
        if recording["state"] in ("ended", "failed"):
            return recording
        if stop.wait(_POLL_SECONDS):
            return _ask(socket, {"verb": "detach", "id": number})
