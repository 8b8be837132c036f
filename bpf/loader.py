"""Loading the BPF programs: compiled here and now by bcc, or ahead as an object."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcd.bpf.object_loader import ObjectPrograms, object_path
from hpcd.bpf.stderr import Stderr, told
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
        # Only now: the object does not need it, nor the memory of what it imports.
        from hpcd.bpf.headers import kernel_headers

        # bcc finds headers of other kernels only through this variable.
        os.environ["BCC_KERNEL_SOURCE"] = str(kernel_headers())
        flags = [f"-D{name}={value}" for name, value in constants.items()]
        flags += [f"-I{_SOURCES}", f"-D{_ARCHITECTURES[platform.machine()]}", "-Wno-everything"]
        self.fds: dict[str, int] = {}
        with Stderr() as stderr:
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
                raise PlatformError(f"{source}: {told(stderr.text()) or error}") from error

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


LOADERS = ("auto", "bcc", "object")


def load_sampler(
    constants: Mapping[str, int],
    perf: list[str],
    raw: list[str],
    tracepoints: list[str],
    loader: str = "auto",
) -> Programs | ObjectPrograms:
    """The sampler's programs: from the object where there is one, which is ten times as fast and
    needs neither compiler nor headers, or compiled. ``loader`` (or $HPCD_LOADER) forces either.

    Raises :class:`PlatformError` in one line.
    """
    loader = os.environ.get("HPCD_LOADER", loader) if loader == "auto" else loader
    made = object_path().is_file()
    if loader == "object" and not made:
        raise PlatformError(f"no BPF object for these sources ({object_path()}); make bpf-object")
    if loader == "object" or (loader == "auto" and made):
        return ObjectPrograms(constants, [*perf, *raw, *tracepoints])
    return Programs("sampler.bpf.c", constants, perf, raw, tracepoints)
