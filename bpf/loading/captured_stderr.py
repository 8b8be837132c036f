"""Standard error of native libraries, captured for error messages."""

from __future__ import annotations

import os
import sys


def first_error_line(output: str) -> str:
    """The line of ``output`` to show: the first compiler error, else the verifier's verdict.

    Empty when there is none; all of ``output`` with HPCD_DEBUG set.
    """
    if os.environ.get("HPCD_DEBUG"):
        return output
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    noise = ("processed ", "HINT", "-- END", "libbpf: failed to load", "libbpf: -- ")
    verdicts = [line for line in lines if not line.startswith(noise)]
    return (errors or verdicts[-1:] or [""])[0]


class Stderr:
    """Captures what native code writes to descriptor 2 within a ``with`` block."""

    def __enter__(self) -> Stderr:
        sys.stderr.flush()
        self._file = os.fdopen(os.memfd_create("stderr"), "w+b")
        self._saved = os.dup(2)
        os.dup2(self._file.fileno(), 2)
        return self

    def text(self) -> str:
        """The text written so far."""
        self._file.seek(0)
        return self._file.read().decode(errors="replace")

    def __exit__(self, *_: object) -> None:
        os.dup2(self._saved, 2)
        os.close(self._saved)
        self._file.close()
