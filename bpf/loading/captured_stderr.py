"""Standard error of native libraries, captured for error messages."""

from __future__ import annotations

import os
import re
import sys

_MISSING = re.compile(r"failed to resolve CO-RE relocation <\w+> \[\d+\] struct (\w+)\.([\w.]+)")
_NOISE = re.compile(r"processed |HINT|-- END|libbpf: -- |libbpf: (prog '.*': )?failed to load")


def first_error_line(output: str) -> str:
    """Return the line of ``output`` to show: the first compiler error, else the member that the
    kernel does not have, else the verifier's verdict.

    Empty when there is none; all of ``output`` with HPCD_DEBUG set.
    """
    if os.environ.get("HPCD_DEBUG"):
        return output
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    missing = [
        f"this kernel's {struct} has no member {m}" for struct, m in _MISSING.findall(output)
    ]
    verdicts = [line for line in lines if not _NOISE.match(line)]
    return (errors or missing or verdicts[-1:] or [""])[0]


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
