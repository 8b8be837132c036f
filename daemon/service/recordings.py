"""The recordings the service has under way, each in a process of its own."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.service import journal
from hpcd.daemon.service.child_process import after_service
from hpcd.daemon.service.protocol import send
from hpcd.measurement.summary import Summary
from hpcd.startup.isolation import python_command, python_environment

_STARTING, _ATTACHED, _FINISHED = "starting", "attached", ("ended", "failed")
# Recordings that are over and still shown, of each user.
_KEPT = 50
# Characters of a description that its user may choose.
_LONGEST = 500
# Lines in the journal about modules of one recording.
_TOLD = 20


@dataclass(slots=True)
class RecordingProcess:
    """One recording. ``uid`` is who requested it; ``state`` one of starting, attached, recording,
    ended, failed. ``output`` is for people to read: whoever asked may have chosen it. ``stored`` is
    where the service itself made the measurement in its store, None where it did not."""

    id: int
    uid: int
    what: str
    output: str
    process: subprocess.Popen[str]
    stored: Path | None = None
    monitor: bool = False
    since: float = field(default_factory=time.time)
    state: str = _STARTING
    error: str = ""
    code: int = 0
    progress: dict[str, object] = field(default_factory=dict)
    summary: Summary | None = None
    journaled: set[str] = field(default_factory=set)
    changed: threading.Condition = field(default_factory=threading.Condition)
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when the process is there no more. That of a recording which is over may wait for a file
    system that its user serves, for as long as the user likes."""

    @property
    def finished(self) -> bool:
        """Whether it is over."""
        return self.state in _FINISHED

    def stop(self) -> None:
        """Request its regular end."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    def wait_for(self, seconds: float, *, end: bool) -> bool:
        """Wait until it samples, or with ``end`` until it is over; False when it takes longer."""
        with self.changed:
            return self.changed.wait_for(
                lambda: self.finished or (not end and self.state != _STARTING), seconds
            )

    def describe_fully(self) -> dict[str, object]:
        """Add the summary to :meth:`describe`, ``{}`` before the first one."""
        return {**self.describe(), "summary": self.summary.to_json() if self.summary else {}}

    def describe(self) -> dict[str, object]:
        """Return the recording as a user with access to it sees it."""
        return {
            "id": self.id,
            "uid": self.uid,
            "what": self.what,
            "measurement": self.output,
            "monitor": self.monitor,
            "since": self.since,
            "state": self.state,
            "failure": self.error,
            "progress": self.progress,
        }


class ReadyRecorder:
    """A recorder process that imports its modules, then waits for its specification."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                python_command("-m", "hpcd.daemon.service.recorder_process"),
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                text=True,
                cwd="/",
                # numpy's threads each reserve memory; nothing here multiplies matrices.
                env=python_environment(OPENBLAS_NUM_THREADS="1"),
                # Where there are no control groups the scheduler shares CPUs out between sessions:
                # what recorders take is not the service's. Ctrl-C is for the service alone, which
                # ends them.
                start_new_session=True,
            )

    def specify(self, options: dict[str, object], *, handed_over: bool) -> socket.socket:
        """Send the ``options`` of what to record. Returns the socket by which to send the
        descriptor of the directory to record into, if it is to be ``handed_over``."""
        specification = {"options": options, "handed_over": handed_over}
        with contextlib.suppress(BrokenPipeError):
            send(self._channel, json.dumps(specification, default=str).encode())
        return self._channel

    def close(self) -> None:
        """End it: there is nothing to record."""
        self._channel.close()
        self.process.kill()
        self.process.communicate()


class Recordings:
    """Starts recordings and keeps account of them. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 1
        self._known: dict[int, RecordingProcess] = {}
        self._ready: ReadyRecorder | None = None
        self._stopped = False

    def prepare(self) -> None:
        """Start a recorder for the next request, if there is none."""
        with self._lock:
            if not (self._ready or self._stopped):
                self._ready = ReadyRecorder()

    def start(
        self,
        options: Options,
        uid: int,
        what: str,
        shown_output: str,
        *,
        hand_over: Callable[[socket.socket], None] | None = None,
        stored: Path | None = None,
        monitor: bool = False,
    ) -> RecordingProcess:
        """Start recording; returns at once. The directory to record into is in ``options``, unless
        ``hand_over`` gives who has it a socket, by which the recorder receives it: the service
        itself never holds a file of a user's."""
        with self._lock:
            ready, self._ready = self._ready, None
        recorder = ready if ready and ready.process.poll() is None else ReadyRecorder()
        process = recorder.process
        if options.max_cpu is not None:
            after_service(process.pid)
        channel = recorder.specify(asdict(options), handed_over=hand_over is not None)
        with self._lock:
            recording = RecordingProcess(
                self._next,
                uid,
                what[:_LONGEST],
                shown_output,
                process,
                stored=stored,
                monitor=monitor,
            )
            self._next += 1
            self._known[recording.id] = recording
            self._forget_old()
        threading.Thread(target=self._listen, args=(recording,), daemon=True).start()
        with channel:
            if hand_over:
                hand_over(channel)
        return recording

    def _listen(self, recording: RecordingProcess) -> None:
        assert recording.process.stdout
        try:
            with recording.process.stdout as lines:
                for line in lines:
                    try:
                        self._take(recording, json.loads(line))
                        if recording.state != _ATTACHED:  # it has begun: its CPU time is at hand
                            self.prepare()
                    except Exception as error:
                        journal.log(
                            "not understood", journal.ERROR, id=recording.id, error=repr(error)
                        )
        except Exception as error:
            journal.log("internal error", journal.ERROR, id=recording.id, error=repr(error))
            recording.process.terminate()
        code = recording.process.wait()
        recording.gone.set()
        if not recording.finished:
            self._take(recording, {"state": "failed", "error": f"the recorder died ({code})"})

    @staticmethod
    def _take(recording: RecordingProcess, message: dict[str, Any]) -> None:
        with recording.changed:
            recording.state = str(message["state"])
            recording.progress = message.get("progress", recording.progress)
            if message.get("summary"):
                recording.summary = Summary.from_json(message["summary"])
            recording.error = str(message.get("error", recording.error))
            recording.code = int(message.get("code", recording.code))
            recording.changed.notify_all()
        summary = recording.summary or Summary()
        if summary.limit is not None and recording.finished:
            journal.log(
                "limit", journal.WARNING, id=recording.id, uid=recording.uid, why=summary.limit
            )
        for module, why in summary.unwind.failures.items():
            if module not in recording.journaled and len(recording.journaled) < _TOLD:
                recording.journaled.add(module)
                journal.log("not decoded", journal.WARNING, id=recording.id, module=module, why=why)

    def _forget_old(self) -> None:
        over: dict[int, list[int]] = {}
        for number, recording in self._known.items():
            if recording.finished and recording.gone.is_set():
                over.setdefault(recording.uid, []).append(number)
        for numbers in over.values():
            for number in numbers[: max(len(numbers) - _KEPT, 0)]:
                del self._known[number]

    def all(self) -> list[RecordingProcess]:
        """All under way and the latest that are over, oldest first."""
        with self._lock:
            return list(self._known.values())

    def running(self, uid: int | None = None) -> list[RecordingProcess]:
        """Return the recordings under way, of ``uid`` or of all users."""
        return [
            recording
            for recording in self.all()
            if not recording.finished and uid in (None, recording.uid)
        ]

    def processes(self, uid: int) -> int:
        """Return the number of recorders of ``uid`` that are there, also of recordings that are
        over."""
        return sum(recording.uid == uid and not recording.gone.is_set() for recording in self.all())

    def wait_for_ended(self, uid: int, seconds: float) -> None:
        """Wait until the recorders of ``uid`` are gone whose recordings are over."""
        deadline = time.monotonic() + seconds
        for recording in self.all():
            if recording.uid == uid and recording.finished:
                recording.gone.wait(max(deadline - time.monotonic(), 0))

    def get(self, number: int) -> RecordingProcess | None:
        """The recording of this id."""
        with self._lock:
            return self._known.get(number)

    def stop_all(self, seconds: float) -> None:
        """End all, waiting for each to close its measurement."""
        deadline = time.monotonic() + seconds
        with self._lock:
            ready, self._ready, self._stopped = self._ready, None, True
        if ready:
            ready.close()
        running = self.running()
        for recording in running:
            recording.stop()
        for recording in running:
            if not recording.wait_for(max(deadline - time.monotonic(), 0), end=True):
                recording.process.kill()
