"""One recording in a process of its own: what it costs or breaks ends with it.

Started by :class:`hpcd.daemon.service.recordings.Recordings` before anybody asks for it, so that
nothing is to be imported then. Its standard input is a socket, on which it waits for a
specification (JSON), with the descriptor of the directory to record into where the service has
opened it for a user; it ends where there is none. It tells how it goes in lines of JSON on its
standard output: ``{"state": "attached"}``, about once a second ``{"state": "recording",
"progress": ..., "summary": ...}``, and at the end ``{"state": "ended", "summary": ...}`` or
``{"state": "failed", "error": ...}``. SIGTERM ends it properly.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.capture.sampler_loading import import_recorder, prepare_recording
from hpcd.daemon.probes.probe_request import ProbeRequest
from hpcd.daemon.service.child_process import end_first_without_memory, tuples
from hpcd.daemon.targets.selector import Selector
from hpcd.errors import HpcdError
from hpcd.kernels.library import open_library
from hpcd.measurement.summary import ProbesSummary, Summary, UnwindCounts

# Names of a kind in a summary, and characters of a name or a cause.
_NAMES = 100
_LONGEST = 500
# Bytes of a specification that are read at a time.
_BLOCK = 1 << 16


def main() -> int:
    """Record what standard input specifies."""
    try:
        # What does not depend on what is recorded.
        import_recorder()
        open_library()
        specification, directory = _receive()
        if not specification:
            return 0
        options = options_of(json.loads(specification))
        if directory is not None:
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
        _tell({"state": "failed", "error": str(error), "code": error.exit_code})
        return error.exit_code
    except Exception as error:
        _tell({"state": "failed", "error": f"internal error: {error!r}", "code": 70})
        raise
    _tell({"state": "ended", "summary": _shown(summary)})
    return 0


def _receive() -> tuple[bytes, int | None]:
    """The specification, empty if the service has ended, and a directory."""
    with socket.socket(fileno=os.dup(0)) as channel:
        data, descriptors, _, _ = socket.recv_fds(channel, _BLOCK, 1)
        while block := channel.recv(_BLOCK):
            data += block
    return data, descriptors[0] if descriptors else None


def options_of(specification: dict[str, Any]) -> Options:
    """The :class:`Options` of a specification; tuples come as lists."""
    known = tuples(specification)
    return Options(
        selector=Selector(**known.pop("selector")),
        output=Path(known.pop("output")),
        probes=ProbeRequest(**known.pop("probes", {})),
        **known,
    )


def _shown(summary: Summary | None) -> dict[str, Any]:
    return bounded(summary).to_json() if summary else {}


def bounded(summary: Summary) -> Summary:
    """``summary`` with no more names than are worth reading, of modules and of jobs: a target may
    map any number of odd files, and say it is of any job, and the service keeps what it is told.

    ``failures_left_out`` in its ``unwind`` is the number of further modules that were not decoded,
    ``jobs_left_out`` that of further jobs; those that took most are kept. Modules of less
    than the shown ones are left out without a number: it is that of their truncated paths.
    """
    jobs = summary.jobs
    if len(jobs) > _NAMES:
        most = sorted(jobs, key=lambda job: -sum(jobs[job]))[:_NAMES]
        shown = {_short(job): jobs[job] for job in most}
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


def _tell(message: dict[str, Any]) -> None:
    try:
        print(json.dumps(message, separators=(",", ":")), flush=True)
    except BrokenPipeError:
        # The service is gone: end as if told to, and do not fail again when Python flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
