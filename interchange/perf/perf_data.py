"""perf.data, read by ``perf script``.

Only perf knows the file's format (it changes with every kernel), so perf reads it, as a child
process without rights. Started by root it keeps two capabilities, to read files and the
kernel's symbols, without which perf report would show more than the import.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hpcd.errors import FormatError, PlatformError
from hpcd.interchange.fitted_names import readable
from hpcd.interchange.input.input_file import blocks
from hpcd.interchange.input.tool_process import tool_output
from hpcd.model.identity import Host

MAGIC = (b"PERFILE2", b"2ELIFREP")
_MAX_HEADER = 64 << 20
_FILE_HEADER = struct.Struct("<8s6Q")
_MAX_STACK = 65535
_FIELD = re.compile(rb"^# ([a-z ]+?)\s*: (.*)$", re.MULTILINE)
_SAMPLE_TYPE = re.compile(rb"^# event : .*?\bsample_type = ([A-Z_|]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PerfHeader:
    """The header of a perf.data; ``fields`` are the fields that ``perf script -F`` can print for
    all of its samples."""

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
    """Return the header of a perf.data. Raises FormatError, PlatformError."""
    _require_whole(path)
    with _perf(path, ["--header-only"]) as output:
        text = output.read(_MAX_HEADER)
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
    fields = "comm,pid,tid,time,event,ip,sym,symoff,dso"
    fields += ",cpu" if "CPU" in common else ""
    fields += ",period" if "PERIOD" in common else ""
    return PerfHeader(host, values.get("perf version", ""), values.get("cmdline", ""), fields)


def _require_whole(path: Path) -> None:
    """Raise FormatError if the file ends before its samples: perf may read it all the same.

    The header is struct perf_file_header (tools/perf/util/header.h): magic, sizes, then the offset
    and size of the attributes and of the data, u64 each. One of a pipe has no data section.
    """
    if path.is_dir() or str(path) == "-":
        return
    with path.open("rb") as file:
        head = file.read(_FILE_HEADER.size)
        size = file.seek(0, os.SEEK_END)
    if head[:8] != MAGIC[0] or len(head) < _FILE_HEADER.size:
        return
    _, header_size, _, _, _, offset, length = _FILE_HEADER.unpack(head)
    if header_size >= _FILE_HEADER.size and offset + length > size:
        raise FormatError(
            f"{path}: it ends at byte {size:,} of at least {offset + length:,}: it is cut off"
        )


def sample_text(path: Path, header: PerfHeader) -> Iterator[bytes]:
    """Yield the samples of a perf.data as text, in blocks that end behind a sample.

    Raises FormatError when perf cannot read it to its end.
    """
    # Inlined calls would be looked up address by address, which takes hours.
    arguments = ["-F", header.fields, "--no-inline", "--show-lost-events", "--show-task-events"]
    with _perf(path, [*arguments, "--max-stack", str(_MAX_STACK)]) as output:
        yield from blocks(output.read, str(path), b"\n\n", b"\n")


def _perf(path: Path, arguments: list[str]) -> contextlib.AbstractContextManager[BinaryIO]:
    """Open the output of ``perf script`` for a file."""
    if str(path) == "-":
        raise FormatError("standard input: perf.data must be a file")
    perf = shutil.which("perf")
    if perf is None:
        raise PlatformError(
            "reading perf.data needs perf (Debian's linux-perf); elsewhere: "
            "perf script > FILE, and import that"
        )
    command = [perf, "script", "-f", "-i", str(path.absolute()), *arguments]
    # Without CAP_SYSLOG the kernel hides the addresses of its symbols.
    return tool_output(path, command, "perf script", ("dac_read_search", "syslog"))
