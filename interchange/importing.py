"""Importing a file: which format it is, and from there to a measurement."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hpcd.errors import FormatError, NotFoundError
from hpcd.interchange import perf_data
from hpcd.interchange.austin import AustinReader, AustinSamples, looks_like_austin
from hpcd.interchange.collapsed import (
    CollapsedReader,
    looks_collapsed,
    looks_like_py_spy,
)
from hpcd.interchange.hpctoolkit_reader import HpctoolkitReader, is_hpctoolkit_database
from hpcd.interchange.input_file import InputFile
from hpcd.interchange.mojo import MojoReader, looks_like_mojo
from hpcd.interchange.otf2_reader import Otf2Reader, anchor_file
from hpcd.interchange.perf_script import PerfScriptReader, looks_like_perf_script
from hpcd.interchange.pprof import MAX_BYTES, PprofReader
from hpcd.interchange.pprof_message import looks_like_pprof
from hpcd.interchange.recording_builder import RecordingBuilder
from hpcd.interchange.text import readable
from hpcd.model.identity import Host

_UNKNOWN_HOST = "unknown host"
_UNIT_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How a file is imported.

    ``frequency`` (Hz) says what a count of collapsed stacks is: CPU time; 0 leaves it a count.
    ``lines`` makes a procedure of each source line, where the format knows them. ``job``, ``rank``
    and ``size`` are given to the process that has most samples.
    """

    format: str = ""
    frequency: float = 0.0
    lines: bool = False
    job: str = ""
    rank: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of it. ``times`` is ``recorded``, ``summed`` (of durations) or ``synthetic``;
    ``left_out`` counts what could not be taken in, by reason."""

    format: str
    records: int
    samples: int
    lines: int
    times: str
    left_out: dict[str, int]


class _Format(NamedTuple):
    """A format: how it is recognised from its first bytes, how it is read, its kind of times.

    The reader returns when the recording ended (ns since 1970), None when nobody knows.
    """

    recognise: Callable[[bytes], bool]
    read: Callable[[InputFile, RecordingBuilder, ImportOptions], int | None]
    times: str


def _perf_script(file: InputFile, builder: RecordingBuilder, _: ImportOptions) -> int | None:
    PerfScriptReader(builder).read(file.blocks(b"\n\n", b"\n"))
    return None


def _collapsed(file: InputFile, builder: RecordingBuilder, options: ImportOptions) -> int | None:
    _read_counts(file, builder, options, python=False)
    return None


def _py_spy(file: InputFile, builder: RecordingBuilder, options: ImportOptions) -> int | None:
    _read_counts(file, builder, options, python=True)
    return None


def _read_counts(
    file: InputFile, builder: RecordingBuilder, options: ImportOptions, *, python: bool
) -> None:
    hertz = options.frequency
    if hertz:
        event = builder.event("samples", "s", 1 / hertz, "cpu_time", round(hertz))
    else:
        event = builder.event("samples", "", 1.0, "count")
    reader = CollapsedReader(builder, event, python=python, lines=options.lines)
    reader.read(file.blocks(), round(1e9 / hertz) if hertz else _UNIT_NS)


def _austin(file: InputFile, builder: RecordingBuilder, options: ImportOptions) -> int | None:
    AustinReader(AustinSamples(builder, lines=options.lines)).read(file.blocks())
    return None


def _mojo(file: InputFile, builder: RecordingBuilder, options: ImportOptions) -> int | None:
    MojoReader(AustinSamples(builder, lines=options.lines)).read(file)
    return None


def _pprof(file: InputFile, builder: RecordingBuilder, options: ImportOptions) -> int | None:
    return PprofReader(builder, lines=options.lines).read(file.read_all(MAX_BYTES))


# In this order: py-spy's output and Austin's are collapsed stacks too.
_FORMATS = {
    "austin-mojo": _Format(looks_like_mojo, _mojo, "summed"),
    "pprof": _Format(looks_like_pprof, _pprof, "synthetic"),
    "austin": _Format(looks_like_austin, _austin, "summed"),
    "py-spy": _Format(looks_like_py_spy, _py_spy, "synthetic"),
    "collapsed": _Format(looks_collapsed, _collapsed, "synthetic"),
    "perf-script": _Format(looks_like_perf_script, _perf_script, "recorded"),
}
_PERF_DATA = "perf-data"
_HPCTOOLKIT = "hpctoolkit"
_OTF2 = "otf2"
FORMATS = (_PERF_DATA, _HPCTOOLKIT, _OTF2, *_FORMATS)
"""Names of the formats that can be imported."""


def import_recording(source: Path, output: Path, options: ImportOptions) -> Imported:
    """Import the file ``source`` (``-``: standard input) into the measurement ``output``, which
    must not exist.

    Raises :class:`NotFoundError`, :class:`FormatError` when it is no such file or damaged,
    :class:`PlatformError` when what reads it is not installed, :class:`StorageError`; then nothing
    is left behind.
    """
    if options.format == _PERF_DATA or (not options.format and perf_data.is_perf_data(source)):
        return _import_perf_data(source, output, options)
    if options.format == _HPCTOOLKIT or (not options.format and is_hpctoolkit_database(source)):
        return _import_hpctoolkit(source, output, options)
    anchor = anchor_file(source)
    if options.format == _OTF2 or (not options.format and anchor):
        return _import_otf2(source, anchor, output, options)
    if source.is_dir():
        raise FormatError(f"{source}: a directory, but not one of perf, HPCToolkit or OTF2")
    with InputFile(source) as file:
        name = options.format or _recognise(file)
        kind = _FORMATS[name]
        builder = _builder(file.name, output, options, _host(), name, kind.times)
        with _Unfinished(builder):
            # Files are mostly written when a recording ends: better than the year 1970.
            ended_ns = kind.read(file, builder, options) or file.modified_ns
            return _finished(builder, name, kind.times, ended_ns)


def _import_perf_data(source: Path, output: Path, options: ImportOptions) -> Imported:
    try:
        modified_ns = source.stat().st_mtime_ns
    except OSError as error:
        raise NotFoundError(f"{source}: {error.strerror}") from None
    header = perf_data.read_header(source)
    # Its clock is the host's since boot, but which boot that was is not in it.
    identity = f"imported {os.urandom(8).hex()}"
    known = header.host
    hostname = known.hostname or _UNKNOWN_HOST
    host = Host(hostname, identity, known.kernel, known.machine, known.cpus)
    origin = {"tool": f"perf {header.version}".strip(), "command": header.command}
    builder = _builder(str(source), output, options, host, _PERF_DATA, "recorded", origin)
    with _Unfinished(builder):
        PerfScriptReader(builder, own=True).read(perf_data.sample_text(source, header))
        return _finished(builder, _PERF_DATA, "recorded", modified_ns)


def _import_hpctoolkit(source: Path, output: Path, options: ImportOptions) -> Imported:
    times = "recorded" if (source / "trace.db").exists() else "synthetic"
    origin = {"tool": "HPCToolkit"}
    builder = _builder(str(source), output, options, _host(), _HPCTOOLKIT, times, origin)
    with _Unfinished(builder):
        began_ns = HpctoolkitReader(builder).read(source)
        return _finished(builder, _HPCTOOLKIT, times, None, began_ns)


def _import_otf2(
    source: Path, anchor: Path | None, output: Path, options: ImportOptions
) -> Imported:
    if anchor is None:
        raise FormatError(f"{source}: not an OTF2 archive")
    times = "recorded"
    builder = _builder(str(source), output, options, _host(), _OTF2, times, {"tool": "OTF2"})
    with _Unfinished(builder):
        began_ns = Otf2Reader(builder).read(anchor)
        return _finished(builder, _OTF2, times, anchor.stat().st_mtime_ns, began_ns)


def _recognise(file: InputFile) -> str:
    head = file.head()
    if not head:
        raise FormatError(f"{file.name}: empty")
    if head.startswith(perf_data.MAGIC):
        raise FormatError(f"{file.name}: perf.data must be a file, and not compressed")
    for name, kind in _FORMATS.items():
        if kind.recognise(head):
            return name
    raise FormatError(
        f"{file.name}: not recognised as a recording (there are {', '.join(FORMATS)};"
        " --format names one)"
    )


def _host() -> Host:
    """The machine of a recording that does not name it."""
    return Host(_UNKNOWN_HOST, f"imported {os.urandom(8).hex()}", "", "", 0)


def _builder(
    name: str, output: Path, options: ImportOptions, host: Host, kind: str, times: str,
    origin: dict[str, str] | None = None,
) -> RecordingBuilder:  # fmt: skip
    described: dict[str, object] = {
        "file": readable(name), "format": kind, "times": times, **(origin or {}),
    }  # fmt: skip
    builder = RecordingBuilder(output, host, described, name)
    builder.threads.default_name = Path(name).name
    builder.threads.job, builder.threads.rank, builder.threads.size = (
        options.job,
        options.rank,
        options.size,
    )
    return builder


def _finished(
    builder: RecordingBuilder, kind: str, times: str, ended_ns: int | None,
    began_ns: int | None = None,
) -> Imported:  # fmt: skip
    records = builder.close(ended_ns, began_ns)
    return Imported(
        kind, records, builder.taken or records, len(builder.threads), times,
        dict(builder.dropped + builder.left_out),
    )  # fmt: skip


class _Unfinished:
    """Removes a measurement that does not get finished."""

    def __init__(self, builder: RecordingBuilder) -> None:
        self._builder = builder

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._builder.writer.discard()
