"""Reading present stacks: by this process as root, through the service as any other user."""

from __future__ import annotations

import os
import threading

from hpcd.analysis.stacks.named_paths import PathNames
from hpcd.analysis.stacks.reading import Reading, reading_of
from hpcd.daemon.service.protocol import NoServiceError, ask
from hpcd.daemon.service.stack_message import from_message
from hpcd.daemon.stacks.selected_processes import selected_processes
from hpcd.daemon.stacks.stack_reader import StackReader
from hpcd.daemon.targets.process_identity import identify
from hpcd.daemon.targets.selector import Selector
from hpcd.errors import PrivilegeError, TargetError
from hpcd.option_schema import request_of


class OwnReading:
    """Reads the processes of a selector as root. Raises what
    :class:`~hpcd.daemon.stacks.stack_reader.StackReader` does."""

    def __init__(self, selector: Selector, *, children: bool, native: bool = False) -> None:
        self.selector, self._children = selector, children
        self._names = PathNames(native=native)
        self._reader = StackReader()

    def read(self) -> Reading:
        """Read the stacks of all threads of the processes. Raises :class:`HpcdError`."""
        pids = selected_processes(self.selector, children=self._children)
        snapshot = self._reader.snapshot(pids)
        return reading_of(snapshot, self._names.paths(snapshot))

    def close(self) -> None:
        """Unload the programs."""
        self._reader.close()


class ServiceReading:
    """Has the service read the selected processes of this user.

    Files are read for names here, with the rights of this user.
    """

    def __init__(
        self, socket: str, selector: Selector, *, children: bool, native: bool = False
    ) -> None:
        self._socket, self._native = socket, native
        self._request = {
            "verb": "stacks", **request_of(selector), "children": children,
        }  # fmt: skip

    def read(self) -> Reading:
        """Read the stacks of all threads of the processes. Raises :class:`HpcdError`."""
        try:
            answer = ask(self._socket, self._request)
        except NoServiceError as error:
            raise PrivilegeError(
                f"stacks are read by root (sudo hpcd stacks ...), or by the service: {error}"
            ) from None
        snapshot = from_message(answer)
        # Load modules have other numbers in each answer.
        return reading_of(snapshot, PathNames(native=self._native).paths(snapshot))

    def close(self) -> None:
        """Nothing is held."""


class RecordedProcesses:
    """Reads processes of a recording, as far as they still run. Safe to use from several
    threads."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._lock = threading.Lock()
        self._own: OwnReading | None = None

    def read(self, known: list[tuple[int, int]]) -> Reading:
        """Read the stacks of these processes, by pid and begin (monotonic ns).

        Raises :class:`hpcd.errors.TargetError` when all have ended.
        """
        pids = tuple(pid for pid, began in known if identify(pid, 0).start_ns == began)
        if not pids:
            raise TargetError("all processes of this recording have ended")
        with self._lock:
            if os.geteuid() != 0:
                return ServiceReading(self._socket, Selector(pids=pids), children=False).read()
            if self._own is None:
                self._own = OwnReading(Selector(pids=pids), children=False)
            self._own.selector = Selector(pids=pids)
            return self._own.read()

    def close(self) -> None:
        """Free what that takes."""
        with self._lock:
            if self._own:
                self._own.close()


def present_stacks(
    selector: Selector, socket: str, *, children: bool, native: bool
) -> OwnReading | ServiceReading:
    """Return a reader of the processes of ``selector`` for the user of this process."""
    if os.geteuid() == 0:
        return OwnReading(selector, children=children, native=native)
    return ServiceReading(socket, selector, children=children, native=native)
