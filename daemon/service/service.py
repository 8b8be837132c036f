"""The service itself: control socket, monitor, store and watchdog in one loop."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import sdnotify

from hpcd.bpf.kernel.privileges import LOADING, missing_capabilities, privilege_remedy
from hpcd.bpf.wire import THREADS_PER_CPU
from hpcd.daemon.capture.loop.stop_request import StopRequest
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.service import journal
from hpcd.daemon.service.configuration import (
    Configuration,
    load_configuration,
    seconds_of,
    share_of,
    size_of,
)
from hpcd.daemon.service.control import Control
from hpcd.daemon.service.metrics_exporter import Figures
from hpcd.daemon.service.push_processes import Pushes
from hpcd.daemon.service.recordings import RecordingProcess, Recordings
from hpcd.daemon.service.request_server import RequestServer
from hpcd.daemon.service.retention import free_bytes
from hpcd.daemon.service.store import make_measurement
from hpcd.daemon.service.store_keeper import StoreKeeper
from hpcd.daemon.targets.selector import Selector, user_id
from hpcd.errors import HpcdError, PrivilegeError, StorageError
from hpcd.signals import handle

_ROUND_SECONDS = 1.0
# A thread that reads a long request gives up the interpreter after this time to one that answers,
# which waits for it after each system call (CPython: 5 ms).
_SWITCH_SECONDS = 0.0005
_STOP_SECONDS = 20.0
# The rest of a recording is pushed at its end.
_PUSH_SECONDS = 5.0
# How often the store is looked at.
_STORE_SECONDS = 2.0
# The monitor that failed is tried again, ever more rarely.
_RETRY_SECONDS = (5.0, 300.0)
# Threads have numbers of their own in a measurement. Before all are used up, which a user can bring
# about within minutes, the monitor begins a new one.
_MOST_THREADS = 3 * THREADS_PER_CPU // 4


class Service:
    """``hpcd daemon``. :meth:`run` returns on a request to stop."""

    def __init__(self, configuration_path: Path | None) -> None:
        self._path = configuration_path
        self._configuration = (
            load_configuration(configuration_path) if configuration_path else Configuration()
        )
        self._recordings = Recordings()
        self._monitor: RecordingProcess | None = None
        self._monitor_since = 0.0
        self._retry = 0.0
        self._retry_in = _RETRY_SECONDS[0]
        self._paused = False
        self._pauses = 0
        # Set by signals, at any moment of this thread.
        self._stop, self._reload = StopRequest(), StopRequest()
        self._rotating = threading.Lock()
        self._rotation: threading.Thread | None = None
        self._pushes = Pushes()
        self._steps = (self._watch_disk, self._keep_monitoring, self._keep_pushing, self._tell)
        self._systemd = sdnotify.SystemdNotifier()
        self._store = Path(self._configuration.store.directory)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT; SIGHUP reads the configuration again."""
        missing = [name for name in missing_capabilities() if name in LOADING]
        if os.geteuid() != 0 or missing:
            why = f" (without {', '.join(missing)})" if missing else ""
            raise PrivilegeError(
                f"the service may not load BPF programs{why}: {privilege_remedy()}"
            )
        sys.setswitchinterval(_SWITCH_SECONDS)
        handle((signal.SIGTERM, signal.SIGINT), self._stop.set)
        # No hang-up but a request, also to a service that nohup(1) started.
        signal.signal(signal.SIGHUP, lambda *_: self._reload.set())
        try:
            if not self._store.is_dir():
                self._store.mkdir(mode=0o711, parents=True)
                self._store.chmod(0o711)  # users pass through it, whatever the mask says
        except OSError as error:
            raise StorageError(f"{self._store}: {error.strerror}") from None
        figures = Figures(self._recordings, lambda: self._pauses)
        control = Control(
            self._configuration, self._recordings, self._store, self.rotate, figures.as_text
        )
        requests = RequestServer(self._configuration, control)
        keeper = StoreKeeper(self._store, self._store_limits, self._end_stored, _STORE_SECONDS)
        self._recordings.prepare()
        journal.log(
            "ready", store=str(self._store), socket=self._configuration.control.socket,
            monitor=self._configuration.monitor.enabled,
        )  # fmt: skip
        self._systemd.notify("READY=1")
        try:
            while not self._stop.is_set():
                if self._reload.is_set():
                    self._reload.clear()
                    _guarded(lambda: self._load_again(control))
                for step in self._steps:
                    _guarded(step)
                journal.log_repetitions()
                self._stop.wait(_ROUND_SECONDS)
        finally:
            self._systemd.notify("STOPPING=1")
            requests.close()
            keeper.close()
            self._recordings.stop_all(_STOP_SECONDS)
            self._pushes.stop_all(_PUSH_SECONDS)
            requests.end()
            journal.log_repetitions(all_of_them=True)
            journal.log("stopped")

    # --- the store ---

    def _store_limits(self) -> dict[str, object]:
        """Return what the store's process goes by."""
        store = self._configuration.store
        busy = [
            str(recording.stored) for recording in self._recordings.running() if recording.stored
        ]
        return {
            "now": time.time(),
            "busy": busy,
            "keep": seconds_of(store.keep),
            "quota": size_of(store.quota),
            "user_quota": size_of(store.user_quota),
        }

    def _end_stored(self, uid: int) -> None:
        """End the recordings of a user that are in the store."""
        for recording in self._recordings.running(uid):
            if recording.stored:
                recording.stop()
                journal.log("over quota", journal.WARNING, id=recording.id, uid=uid)

    def _watch_disk(self) -> None:
        store = self._configuration.store
        try:
            free = free_bytes(self._store)
        except OSError as error:
            journal.log("store is gone", journal.ERROR, why=error.strerror)
            return
        # A tenth more before going on, so that it does not flutter.
        least = size_of(store.free)
        if not self._paused and free < least:
            self._paused = True
            self._pauses += 1
            journal.log("paused: disk nearly full", journal.WARNING, free=free, least=least)
            for recording in self._recordings.running():
                if recording.stored:
                    recording.stop()
        elif self._paused and free > 1.1 * least:
            self._paused = False
            journal.log("resumed", free=free)

    # --- the monitor ---

    def _keep_monitoring(self) -> None:
        wanted = self._configuration.monitor
        now = time.monotonic()
        current = self._monitor
        if current and current.finished:
            if current.state == "failed":
                journal.log("monitor failed", journal.ERROR, why=current.error)
                self._retry, self._retry_in = (
                    now + self._retry_in,
                    min(2 * self._retry_in, _RETRY_SECONDS[1]),
                )
            self._monitor = current = None
        if not wanted.enabled or self._paused:
            if current:
                current.stop()
            return
        if current is None:
            if now >= self._retry:
                self._start_monitor()
        elif (
            now - self._monitor_since > seconds_of(wanted.rotate)
            or (current.summary and current.summary.threads > _MOST_THREADS)
        ) and not (self._rotation and self._rotation.is_alive()):
            # It waits for recorders, longer than the watchdog would.
            self._rotation = threading.Thread(
                target=_guarded, args=(self.rotate,), name="rotation", daemon=True
            )
            self._rotation.start()

    def _start_monitor(self) -> None:
        wanted = self._configuration.monitor
        try:
            users = tuple(user_id(user) for user in wanted.users)
            folder = make_measurement(self._store, 0, 0)
        except HpcdError as error:
            journal.log("monitor cannot start", journal.ERROR, why=str(error))
            self._retry = time.monotonic() + _RETRY_SECONDS[1]
            return
        selector = Selector(users=users) if users else Selector(everything=True)
        options = Options(
            selector=selector,
            output=folder,
            frequency=wanted.frequency,
            waits=wanted.blocked,
            overhead=share_of(wanted.overhead),
            owner=(0, 0),
            existing=True,
            table_bytes=size_of(self._configuration.control.tables),
        )
        self._monitor = self._recordings.start(
            options, 0, selector.describe(), str(folder), stored=folder, monitor=True
        )
        self._monitor_since = time.monotonic()
        journal.log("monitoring", what=selector.describe(), measurement=str(folder))

    def rotate(self) -> str:
        """End the monitor's measurement and begin another; return the path of the ended one.

        The new one begins before the old one ends, so that nothing in between is missed.
        """
        with self._rotating:
            before = self._monitor
            if before is None or before.finished:
                raise HpcdError("the host is not being monitored (see monitor.enabled)")
            self._start_monitor()
            after = self._monitor
            if after is None or after is before:
                raise HpcdError("a new measurement could not be begun")
            after.wait_for(_STOP_SECONDS, end=False)
            before.stop()
            before.wait_for(_STOP_SECONDS, end=True)
            return before.output

    def _keep_pushing(self) -> None:
        monitor = self._monitor
        self._pushes.keep(
            self._configuration.push,
            Path(monitor.output) if monitor and not monitor.finished else None,
        )

    # --- systemd and configuration ---

    def _load_again(self, control: Control) -> None:
        self._systemd.notify("RELOADING=1\nMONOTONIC_USEC=" + str(time.monotonic_ns() // 1000))
        try:
            if self._path:
                fresh = load_configuration(self._path)
                if fresh.monitor != self._configuration.monitor and self._monitor:
                    self._monitor.stop()
                self._configuration = fresh
                control.reconfigure(fresh)
            journal.log("reloaded")
        except HpcdError as error:
            journal.log("configuration kept as it was", journal.ERROR, why=str(error))
        self._systemd.notify("READY=1")

    def _tell(self) -> None:
        running = self._recordings.running()
        monitor = (
            "paused: disk nearly full"
            if self._paused
            else ("monitoring" if self._monitor else "not monitoring")
        )
        self._systemd.notify(f"WATCHDOG=1\nSTATUS={monitor}, {len(running)} recordings under way")


def _guarded(step: Callable[[], object]) -> None:
    """Take ``step``; its errors are logged, and the service continues."""
    try:
        step()
    except HpcdError as error:
        journal.log("failed", journal.ERROR, step=_name_of(step), why=str(error))
    except Exception as error:
        journal.log("internal error", journal.ERROR, where=_name_of(step), error=repr(error))


def _name_of(step: Callable[[], object]) -> str:
    return getattr(step, "__name__", "step").lstrip("_")
