"""One recording in a process of its own: its memory and failures end with it.

Started by :class:`hpcd.daemon.service.recordings.Recordings` before anybody asks for it, so that
nothing is to be imported then. Its standard input is a socket, on which it waits for a
specification, ``{"options": ..., "handed_over": ...}``; it ends where there is none. The directory
to record into is in the options, or handed over: then its user has the other end of the socket and
sends the descriptor. It is looked at here and nowhere else, since that may take for ever where the
user serves it.

It tells how it goes in lines of JSON on its standard output: ``{"state": "attached"}``, about once
a second ``{"state": "recording", "progress": ..., "summary": ...}``, and at the end ``{"state":
"ended", "summary": ...}`` or ``{"state": "failed", "error": ...}``. SIGTERM ends it properly.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import sys
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from hpcd.daemon.access.file_status import IN_MEMORY, file_system_type
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.capture.start.sampler_loading import import_recorder, prepare_recording
from hpcd.daemon.service.child_process import end_first_without_memory, tuples
from hpcd.daemon.service.protocol import MAX_REQUEST, receive
from hpcd.errors import FormatError, HpcdError, StorageError
from hpcd.kernels.library import open_library
from hpcd.measurement.summary import ProbesSummary, Summary, UnwindCounts
from hpcd.option_schema import parts_of

# Names of a kind in a summary, and characters of a name or a cause.
_NAMES = 100
_LONGEST = 500
# Bytes of a request and of the fields that the service adds.
_MAX_SPECIFICATION = 2 * MAX_REQUEST
# Time for a client to send its directory when the service requests it.
_PATIENCE_SECONDS = 10.0


def main() -> int:
    """Record what standard input specifies."""
    in_store = None
    try:
        # Imports that every recording needs.
        import_recorder()
        open_library()
        with socket.socket(fileno=os.dup(0)) as channel:
            try:
                specification = receive(channel, _MAX_SPECIFICATION, None)
            except FormatError:
                return 0  # the service has ended
            options = options_of(specification["options"])
            if not specification["handed_over"]:
                in_store = options.output
            else:
                assert options.owner
                directory = _receive_directory(channel, options.owner[0])
                # Whatever its name leads to by now.
                options.output = Path(f"/proc/self/fd/{directory}")
        if options.max_memory:
            end_first_without_memory()
        recording = prepare_recording(options)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: recording.request_stop())
        summary = recording.run(
            lambda progress: _tell(
                {
                    "state": "recording",
                    "progress": asdict(progress),
                    "summary": _shown(recording.summary),
                }
            ),
            lambda: _tell({"state": "attached"}),
        )
    except HpcdError as error:
        _fail(str(error), error.exit_code, in_store)
        return error.exit_code
    except Exception as error:
        _fail(f"internal error: {error!r}", 70, in_store)
        raise
    _tell({"state": "ended", "summary": _shown(summary)})
    return 0


def _fail(why: str, code: int, directory: Path | None) -> None:
    """Tell the service, having removed the ``directory`` in its store if it is empty."""
    if directory:
        with contextlib.suppress(OSError):
            directory.rmdir()
    _tell({"state": "failed", "error": why, "code": code})


def _receive_directory(channel: socket.socket, owner: int) -> int:
    """The directory that is handed over. Raises :class:`StorageError` unless it is an empty one of
    the user ``owner``, and on a disk unless that is root: what a recorder writes into memory counts
    as the service's, stays there, and has other users' recorders ended."""
    channel.settimeout(_PATIENCE_SECONDS)
    try:
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        if not descriptors:
            raise StorageError("the directory to record into is not handed over")
        status = os.fstat(descriptors[0])
        theirs = stat.S_ISDIR(status.st_mode) and status.st_uid == owner
        empty = theirs and not os.listdir(descriptors[0])  # noqa: PTH208
        in_memory = empty and owner != 0 and file_system_type(descriptors[0]) in IN_MEMORY
    except TimeoutError:
        raise StorageError("the directory to record into is not handed over in time") from None
    except OSError as error:  # such as a directory that was opened for its path alone
        raise StorageError(f"the directory to record into: {error.strerror}") from None
    if not empty:
        raise StorageError("the directory to record into must be yours, and empty")
    if in_memory:
        raise StorageError("the directory to record into is in memory (tmpfs): use a disk")
    return descriptors[0]


def options_of(specification: dict[str, object]) -> Options:
    """The :class:`Options` of a specification; tuples come as lists."""
    known = tuples(specification)
    parts = {name: part(**known[name]) for name, part in parts_of(Options).items()}
    return Options(**{**known, **parts, "output": Path(known["output"])})


def _shown(summary: Summary | None) -> dict[str, object]:
    return bounded(summary).to_json() if summary else {}


def bounded(summary: Summary) -> Summary:
    """``summary`` with no more names than are worth reading, of modules and of jobs: a target may
    map any number of odd files, and say it is of any job, and the service keeps what it is told.

    ``failures_left_out`` in its ``unwind`` is the number of further modules that were not decoded,
    ``jobs_left_out`` that of further jobs; the first ones are kept. Modules of less
    than the shown ones are left out without a number: it is that of their truncated paths.
    """
    jobs = summary.jobs
    if len(jobs) > _NAMES:
        shown = {_short(job): of for job, of in islice(jobs.items(), _NAMES)}
        summary = summary._replace(jobs=shown, jobs_left_out=len(jobs) - _NAMES)
    probes = summary.probes and _bounded_probes(summary.probes)
    return summary._replace(unwind=_bounded_unwind(summary.unwind), probes=probes)


def _bounded_unwind(unwind: UnwindCounts) -> UnwindCounts:
    left_out = len(unwind.failures) - _NAMES
    return unwind._replace(
        failures={
            _short(module): _short(why) for module, why in islice(unwind.failures.items(), _NAMES)
        },
        failures_left_out=left_out if left_out > 0 else None,
        modules={
            reason: {
                _short(name): counts[name]
                for name in sorted(counts, key=lambda name: -counts[name])[:_NAMES]
            }
            for reason, counts in unwind.modules.items()
        },
    )


def _bounded_probes(probes: ProbesSummary) -> ProbesSummary:
    """The functions that were called most; ``functions_left_out`` counts the others."""
    most = sorted(probes.functions, key=lambda function: -function.hits)
    functions = tuple(
        function._replace(
            name=_short(function.name),
            library=_short(function.library),
            group=_short(function.group),
        )
        for function in most[:_NAMES]
    )
    problems = tuple(_short(line) for line in probes.problems[:_NAMES])
    left_out = len(most) - _NAMES
    return ProbesSummary(functions, problems, left_out if left_out > 0 else None)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _tell(message: dict[str, object]) -> None:
    try:
        print(json.dumps(message, separators=(",", ":")), flush=True)
    except BrokenPipeError:
        # The service is gone: end as if told to, and do not fail again when Python flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
