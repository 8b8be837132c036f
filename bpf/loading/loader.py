"""Loading the BPF programs: compiled here and now by bcc, or ahead as an object."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcd.bpf.loading.captured_stderr import Stderr, first_error_line
from hpcd.bpf.loading.kernel_facilities import Helper, has_helper, require_loops
from hpcd.bpf.loading.object_loader import SOURCES, ObjectPrograms, calls_object_path, object_path
from hpcd.errors import PlatformError
from hpcd.startup.isolation import in_root_directory

_INCLUDE = re.compile(r'#include "(.*)"')
_ARCHITECTURES = {"x86_64": "HPCD_X86_64", "aarch64": "HPCD_AARCH64"}


def whole_source(path: Path, included: set[Path]) -> str:
    """Return the text of a C file with the programs' headers in place of their ``#include`` lines,
    each once: bcc finds no program in a header.

    A header that is not in ``included`` yet must not be included under a condition that is false.
    """
    lines = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = _INCLUDE.match(line)
        header = SOURCES / match[1] if match else None
        if header is None or not header.is_file():
            lines.append(line)
        elif header in included:
            lines.append("")
        else:
            included.add(header)
            text = whole_source(header, included)
            lines += [f'#line 1 "{header}"', text, f'#line {number + 1} "{path}"']
    return "\n".join(lines)


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
        # Only now: the object does not need these, nor the memory of what they import.
        from tempfile import TemporaryDirectory

        from hpcd.bpf.loading.kernel_headers import kernel_headers

        # bcc finds headers of other kernels only through this variable.
        os.environ["BCC_KERNEL_SOURCE"] = str(kernel_headers())
        from hpcd.bpf.loading.kernel_layouts import padded_header

        flags = [f"-D{name}={value}" for name, value in constants.items()]
        flags += [f"-I{SOURCES}", f"-D{_ARCHITECTURES[platform.machine()]}", "-Wno-everything"]
        self.fds: dict[str, int] = {}
        self._bpf: Any = None
        # The compiler looks for headers in the current directory, too.
        with in_root_directory(), TemporaryDirectory() as generated, Stderr() as stderr:
            (Path(generated) / "kernel_layouts.h").write_text(padded_header(), encoding="ascii")
            flags.append(f"-I{generated}")
            whole = Path(generated) / source
            whole.write_text(whole_source(SOURCES / source, set()), encoding="utf-8")
            try:
                # debug=0 also keeps bcc from printing; it writes errors straight to descriptor 2.
                self._bpf = bcc.BPF(src_file=str(whole), cflags=flags, debug=0)
                for names, kind in (
                    (perf, bcc.BPF.PERF_EVENT),
                    (raw, bcc.BPF.RAW_TRACEPOINT),
                    (tracepoints, bcc.BPF.TRACEPOINT),
                ):
                    for name in names:
                        self.fds[name] = self._bpf.load_func(name, kind).fd
            except Exception as error:  # bcc raises bare Exception
                if self._bpf:
                    self._bpf.cleanup()
                reason = first_error_line(stderr.text()) or error
                raise PlatformError(f"{source}: {reason}") from error

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
    probes: Mapping[str, int] | None = None,
    *,
    background: bool = False,
) -> Programs | ObjectPrograms:
    """The sampler's programs: from the object where there is one, which is ten times as fast and
    needs neither compiler nor headers, or compiled. ``loader`` (or $HPCD_LOADER) forces either.

    ``probes`` are programs at probes, each with what it is to be attached as (0: anything); they
    are in the object only. In the ``background``, beside other threads, the object is loaded
    without the reasons that libbpf gives for errors. Raises :class:`PlatformError` in one line.
    """
    if chosen_loader(loader) == "object":
        kinds = probes or {}
        attach_types = {name: kind for name, kind in kinds.items() if kind}
        names = [*perf, *raw, *tracepoints, *kinds]
        return ObjectPrograms(constants, names, attach_types, background=background)
    return Programs("sampler.bpf.c", constants, perf, raw, tracepoints)


def chosen_loader(loader: str = "auto") -> str:
    """``object`` or ``bcc``: what ``loader``, $HPCD_LOADER or the object's presence decides.

    Raises :class:`PlatformError` when the object is demanded and not there.
    """
    loader = os.environ.get("HPCD_LOADER", loader) if loader == "auto" else loader
    present = object_path().is_file()
    if loader == "object" and not present:
        raise PlatformError(f"no BPF object for these sources ({object_path()}); make objects")
    return "object" if loader == "object" or (loader == "auto" and present) else "bcc"


def python_frames_lack(loader: str = "auto") -> str:
    """Return why the programs take no Python frames here, "" if they do; ``loader`` is as
    :func:`load_sampler` gets it."""
    if platform.machine() != "x86_64":
        return f"not on {platform.machine()}"
    if chosen_loader(loader) != "object":
        return "not by the loader bcc"
    return "" if has_helper(Helper.LOOP) else "the kernel has no bpf_loop (Linux 5.17)"


def require_calls(loader: str = "auto") -> None:
    """Raise :class:`PlatformError` unless calls can be recorded: their programs are in the object
    only, and need loops."""
    if chosen_loader(loader) != "object" or not calls_object_path().is_file():
        raise PlatformError("recording calls needs the BPF object; make objects")
    require_loops()
