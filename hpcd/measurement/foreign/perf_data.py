"""perf.data, read by ``perf script``.

The file's format is perf's own affair (it changes with every kernel), so perf reads it, as a child
process without rights: it may not write, and started by root it runs as nobody with two
capabilities, those to read files and the kernel's symbols, without which perf report would show
more than the import. (capabilities(7): CAP_DAC_READ_SEARCH, CAP_SYSLOG.)
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcd.errors import FormatError, NotFoundError, PlatformError
from hpcd.measurement.foreign.input_file import blocks
from hpcd.measurement.foreign.names import readable
from hpcd.model.identity import Host

MAGIC = (b"PERFILE2", b"2ELIFREP")
_NOBODY = 65534
_CAPABILITIES = "-all,+dac_read_search,+syslog"
_CPU_SECONDS = 4 * 3600
_MEMORY = 32 << 30
_MESSAGES = 1 << 20
_MAX_HEADER = 64 << 20
_MAX_STACK = 65535
_FIELD = re.compile(rb"^# ([a-z ]+?)\s*: (.*)$", re.MULTILINE)
_SAMPLE_TYPE = re.compile(rb"^# event : .*?\bsample_type = ([A-Z_|]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PerfHeader:
    """What a perf.data says of its recording.

    ``fields`` are the fields ``perf script -F`` can print of all its samples.
    """

    host: Host
    version: str
    command: str
    fields: str


def is_perf_data(path: Path) -> bool:
    """Whether ``path`` is a perf.data file, or the directory that ``--threads`` writes."""
    file_path = path / "data" if path.is_dir() else path
    with contextlib.suppress(OSError), file_path.open("rb") as file:
        return file.read(8) in MAGIC
    return False


def read_header(path: Path) -> PerfHeader:
    """The header of a perf.data. Raises :class:`FormatError`, :class:`PlatformError`."""
    with _perf(path, ["--header-only"]) as child:
        assert child.stdout is not None
        text = child.stdout.read(_MAX_HEADER)
    values = {key.decode(): readable(value) for key, value in _FIELD.findall(text)}
    types = [set(kinds.decode().split("|")) for kinds in _SAMPLE_TYPE.findall(text)]
    common = set.intersection(*types) if types else {"TID", "TIME", "PERIOD", "CALLCHAIN"}
    if not {"TID", "TIME"} <= common:
        raise FormatError(f"{path}: its samples have no times or no threads (perf record -T)")
    cpus = values.get("nrcpus avail", "0")
    host = Host(
        values.get("hostname", ""), "", values.get("os release", ""), values.get("arch", ""),
        int(cpus) if cpus.isdigit() and len(cpus) < 8 else 0,
    )  # fmt: skip
    fields = "comm,pid,tid,time,event,ip,sym,dso"
    fields += ",cpu" if "CPU" in common else ""
    fields += ",period" if "PERIOD" in common else ""
    return PerfHeader(host, values.get("perf version", ""), values.get("cmdline", ""), fields)


def sample_text(path: Path, header: PerfHeader) -> Iterator[bytes]:
    """The samples of a perf.data as text, in blocks that end behind a sample.

    Raises :class:`FormatError` when perf cannot read it to its end.
    """
    # Inlined calls would be looked up address by address, which takes hours.
    arguments = ["-F", header.fields, "--no-inline", "--show-lost-events"]
    with _perf(path, [*arguments, "--max-stack", str(_MAX_STACK)]) as child:
        assert child.stdout is not None
        yield from blocks(child.stdout.read, str(path), b"\n\n", b"\n")


@contextlib.contextmanager
def _perf(path: Path, arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """``perf script`` of a file; raises what it says when it fails."""
    if str(path) == "-":
        raise FormatError("standard input: perf.data must be a file")
    perf = shutil.which("perf")
    if perf is None:
        raise PlatformError(
            "reading perf.data needs perf (Debian's linux-perf); elsewhere: "
            "perf script > FILE, and import that"
        )
    command = [*_without_rights(), perf, "script", "-f", "-i", str(path.absolute()), *arguments]
    with tempfile.TemporaryFile() as messages:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=messages,
            cwd="/",
            env=_environment(),
            start_new_session=True,
            preexec_fn=_limit,
        )
        try:
            yield child
            assert child.stdout is not None
            while child.stdout.read(1 << 20):
                pass
            if child.wait():
                messages.seek(0)
                raise _failure(path, messages.read(1 << 16), child.returncode)
        finally:
            child.kill()
            child.wait()
            if child.stdout:
                child.stdout.close()


def _without_rights() -> list[str]:
    if os.geteuid():
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise PlatformError("reading perf.data as root needs setpriv (util-linux)")
    capabilities = [f"--{kind}={_CAPABILITIES}" for kind in ("inh-caps", "ambient-caps")]
    return [
        setpriv, f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--no-new-privs",
        *capabilities, f"--bounding-set={_CAPABILITIES}", "--",
    ]  # fmt: skip


def _environment() -> dict[str, str]:
    """Nothing that has perf run or load anything, nor ask a server; the cache of build ids."""
    return {
        "PATH": "/usr/bin:/bin", "LC_ALL": "C", "PAGER": "cat", "DEBUGINFOD_URLS": "",
        "PERF_CONFIG": "/dev/null", "HOME": str(Path.home()), "TERM": "dumb",
    }  # fmt: skip


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MESSAGES, _MESSAGES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _failure(path: Path, messages: bytes, code: int) -> FormatError | NotFoundError:
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    said = readable(lines[-1][:300]) if lines else f"it ended with {code}"
    if code < 0:
        said = f"it was ended by signal {-code}"
    if b"Permission denied" in messages:
        return NotFoundError(f"{path}: perf script: {said}")
    return FormatError(f"{path}: perf script cannot read it: {said}")
