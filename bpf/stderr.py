"""What native libraries write to standard error, caught for an error message."""

from __future__ import annotations

import os
import sys


def told(said: str) -> str:
    """The line of ``said`` that tells most: a compiler error, else the verifier's last words."""
    if os.environ.get("HPCD_DEBUG"):
        return said
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    noise = ("processed ", "HINT", "-- END", "libbpf: failed to load", "libbpf: -- ")
    verdicts = [line for line in lines if not line.startswith(noise)]
    return (errors or verdicts[-1:] or [""])[0]


class Stderr:
    """Catches what native code writes to descriptor 2."""

    def __enter__(self) -> Stderr:
        sys.stderr.flush()
        self._file = os.fdopen(os.memfd_create("stderr"), "w+b")
        self._saved = os.dup(2)
        os.dup2(self._file.fileno(), 2)
        return self

    def text(self) -> str:
        """What was written so far."""
        self._file.seek(0)
        return self._file.read().decode(errors="replace")

    def __exit__(self, *_: object) -> None:
        os.dup2(self._saved, 2)
        os.close(self._saved)
        self._file.close()
