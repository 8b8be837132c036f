"""Compiling and loading the BPF programs with bcc."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcd.bpf.headers import kernel_headers
from hpcd.errors import PlatformError

_SOURCES = Path(__file__).parent
_ARCHITECTURES = {"x86_64": "HPCD_X86_64", "aarch64": "HPCD_AARCH64"}


class Programs:
    """Programs compiled from one source file. They unload when the object goes."""

    def __init__(
        self,
        source: str,
        constants: Mapping[str, int],
        perf: list[str],
        raw: list[str],
        tracepoints: list[str],
    ) -> None:
        """Compile ``source`` with ``constants`` as macros, and load the named functions.

        ``perf`` are perf event programs, ``raw`` raw tracepoint ones, ``tracepoints`` those of perf
        events that are tracepoints, for which the kernel has a type of its own. Takes 1 to 2.5 s,
        nearly all of it in the compiler.

        Raises :class:`PlatformError` in one line when bcc or kernel headers are missing, or when
        the kernel refuses a program (with the verifier's last words).
        """
        bcc = _import_bcc()
        # bcc finds headers of other kernels only through this variable.
        os.environ["BCC_KERNEL_SOURCE"] = str(kernel_headers())
        flags = [f"-D{name}={value}" for name, value in constants.items()]
        flags += [f"-I{_SOURCES}", f"-D{_ARCHITECTURES[platform.machine()]}", "-Wno-everything"]
        self.fds: dict[str, int] = {}
        with _Stderr() as stderr:
            try:
                # debug=0 also keeps bcc from printing; it writes errors straight to descriptor 2.
                self._bpf: Any = bcc.BPF(src_file=str(_SOURCES / source), cflags=flags, debug=0)
                for names, kind in (
                    (perf, bcc.BPF.PERF_EVENT),
                    (raw, bcc.BPF.RAW_TRACEPOINT),
                    (tracepoints, bcc.BPF.TRACEPOINT),
                ):
                    for name in names:
                        self.fds[name] = self._bpf.load_func(name, kind).fd
            except Exception as error:  # bcc raises bare Exception
                raise PlatformError(f"{source}: {_reason(stderr.text(), error)}") from error

    def close(self) -> None:
        """Unload the programs."""
        self._bpf.cleanup()


def _import_bcc() -> Any:
    try:
        import bcc
    except ImportError:
        raise PlatformError(
            "bcc is missing; apt-get install python3-bpfcc (it serves /usr/bin/python3 only)"
        ) from None
    if not hasattr(bcc, "BPF"):
        raise PlatformError(
            "the bcc found is not the BPF Compiler Collection; apt-get install python3-bpfcc"
        )
    return bcc


def _reason(said: str, error: Exception) -> str:
    """The line that tells most: a compiler error, else the verifier's last words."""
    if os.environ.get("HPCD_DEBUG"):
        return said
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    verdicts = [line for line in lines if not line.startswith(("processed ", "HINT"))]
    return (errors or verdicts[-1:] or [str(error)])[0]


class _Stderr:
    """Catches what native code writes to descriptor 2."""

    def __enter__(self) -> _Stderr:
        sys.stderr.flush()
        self._file = os.fdopen(os.memfd_create("stderr"), "w+b")
        self._saved = os.dup(2)
        os.dup2(self._file.fileno(), 2)
        return self

    def text(self) -> str:
        self._file.seek(0)
        return self._file.read().decode(errors="replace")

    def __exit__(self, *_: object) -> None:
        os.dup2(self._saved, 2)
        os.close(self._saved)
        self._file.close()
