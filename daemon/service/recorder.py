"""One recording in a process of its own: what it costs or breaks ends with it.

Started by :class:`hpcd.daemon.service.recordings.Recordings` with a specification (JSON) on its
standard input. It tells how it goes in lines of JSON on its standard output: ``{"state":
"attached"}``, ``{"state": "recording", "progress": ..., "summary": ...}`` about once a second, and
at the end ``{"state": "ended", "summary": ...}`` or ``{"state": "failed", "error": ...}``. SIGTERM
ends it properly.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpcd.daemon.recording import Options, Recording
from hpcd.daemon.selector import Selector
from hpcd.errors import HpcdError


def main() -> int:
    """Record what standard input specifies."""
    try:
        recording = Recording(options_of(json.load(sys.stdin)))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: recording.request_stop())
        summary = recording.run(
            lambda progress: _tell(
                {
                    "state": "recording",
                    "progress": asdict(progress),
                    "summary": recording.summary,
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
    _tell({"state": "ended", "summary": summary})
    return 0


def options_of(specification: dict[str, Any]) -> Options:
    """The :class:`Options` a specification stands for; tuples come as lists."""
    known = dict(specification)
    selector: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in known.pop("selector").items()
    }
    owner = known.pop("owner", None)
    return Options(
        selector=Selector(**selector),
        output=Path(known.pop("output")),
        owner=tuple(owner) if owner else None,
        **known,
    )


def _tell(message: dict[str, Any]) -> None:
    try:
        print(json.dumps(message, separators=(",", ":")), flush=True)
    except BrokenPipeError:
        # The service is gone: end as if told to, and do not fail again when Python flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
