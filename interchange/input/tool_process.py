"""Other tools, run to read their own files.

They read files that anyone may have made, so they run with bounds and without rights: started by
root they are nobody, with the capabilities that reading takes (capabilities(7)) and no others.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from hpcd.errors import FormatError, NotFoundError, PlatformError
from hpcd.interchange.fitted_names import readable

_NOBODY = 65534
_CPU_SECONDS = 4 * 3600
_MEMORY = 32 << 30
_MESSAGES = 1 << 20


@contextlib.contextmanager
def tool_output(
    source: Path, command: Sequence[str], label: str, capabilities: Sequence[str]
) -> Iterator[BinaryIO]:
    """Open the output of ``command``, which reads ``source`` and is called ``label`` in errors.

    ``capabilities`` are kept of root's. Raises FormatError with its last message
    when it fails, PlatformError if root's rights cannot be given up.
    """
    with tempfile.TemporaryFile() as messages:
        child = subprocess.Popen(
            [*_without_rights(capabilities), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=messages,
            cwd="/",
            env=_environment(),
            start_new_session=True,
            preexec_fn=_limit,
        )
        output = cast(BinaryIO, child.stdout)
        try:
            yield output
            while output.read(1 << 20):
                pass
            if child.wait():
                messages.seek(0)
                raise _failure(source, label, messages.read(1 << 16), child.returncode)
        finally:
            child.kill()
            child.wait()
            output.close()


def _without_rights(capabilities: Sequence[str]) -> list[str]:
    """Return the words before a command that take root's rights away."""
    if os.geteuid():
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise PlatformError("running another tool as root needs setpriv (util-linux)")
    kept = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    return [
        setpriv, f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--no-new-privs",
        f"--inh-caps={kept}", f"--ambient-caps={kept}", f"--bounding-set={kept}", "--",
    ]  # fmt: skip


def _environment() -> dict[str, str]:
    """Return an environment in which tools run, load nothing else, and contact no server."""
    return {
        "PATH": "/usr/bin:/bin", "LC_ALL": "C", "PAGER": "cat", "DEBUGINFOD_URLS": "",
        "PERF_CONFIG": "/dev/null", "HOME": str(Path.home()), "TERM": "dumb",
    }  # fmt: skip


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MESSAGES, _MESSAGES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _failure(source: Path, label: str, messages: bytes, code: int) -> FormatError | NotFoundError:
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    message = readable(lines[-1][:300]) if lines else f"it ended with {code}"
    if code < 0:
        message = f"it was ended by signal {-code}"
    if b"Permission denied" in messages:
        return NotFoundError(f"{source}: {label}: {message}")
    return FormatError(f"{source}: {label} cannot read it: {message}")
