"""Importing a file: recognise its format, read it into a measurement."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from hpcd.errors import FormatError, NotFoundError
from hpcd.interchange.fitted_names import readable
from hpcd.interchange.hpctoolkit.hpctoolkit_reader import HpctoolkitReader, is_hpctoolkit_database
from hpcd.interchange.input.input_file import InputFile
from hpcd.interchange.input.recording_builder import RecordingBuilder
from hpcd.interchange.otf2.otf2_reader import Otf2Reader, anchor_file
from hpcd.interchange.perf import perf_data
from hpcd.interchange.perf.perf_script import PerfScriptReader, looks_like_perf_script
from hpcd.interchange.pprof.pprof_message import looks_like_gperftools, looks_like_pprof
from hpcd.interchange.pprof.pprof_profile import MAX_BYTES, PprofReader
from hpcd.interchange.text.austin import AustinReader, AustinSamples, looks_like_austin
from hpcd.interchange.text.collapsed import (
    CollapsedReader,
    looks_collapsed,
    looks_like_py_spy,
    require_one_count,
)
from hpcd.interchange.text.mojo import MojoReader, looks_like_mojo
from hpcd.interchange.text.speedscope_reader import SpeedscopeReader, looks_like_speedscope
from hpcd.model.identity import Host

_UNKNOWN_HOST = "unknown host"


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of importing a file.

    With a ``frequency`` (Hz) counts of collapsed stacks are CPU time, with 0 they are counts.
    ``lines`` makes a procedure of each source line, where the format has them. ``job``, ``rank``
    and ``size`` describe the process with most samples.
    """

    format: str = ""
    frequency: float = 0.0
    lines: bool = False
    job: str = ""
    rank: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import. ``times`` is ``recorded``, ``summed`` (of durations) or
    ``synthetic``; ``left_out`` counts inputs that could not be imported, by reason;
    ``notes`` are sentences on the rest."""

    format: str
    records: int
    samples: int
    lines: int
    times: str
    left_out: dict[str, int]
    notes: list[str]


class _Format(NamedTuple):
    """A format: its test on the first bytes of a file, its reader, its kind of times.

    The reader returns when the recording ended (ns since 1970), None if unknown.
    """

    recognise: Callable[[bytes], bool]
    read: Callable[[InputFile, RecordingBuilder, ImportOptions], int | None]
    times: str


def _perf_script(file: InputFile, builder: RecordingBuilder, _: ImportOptions) -> None:
    PerfScriptReader(builder).read(file.blocks(b"\n\n", b"\n"))


def _collapsed(file: InputFile, builder: RecordingBuilder, options: ImportOptions) -> None:
    require_one_count(file.head(), file.name)
    _read_counts(file, builder, options, python=False)


def _py_spy(file: InputFile, builder: RecordingBuilder, options: ImportOptions) -> None:
    _read_counts(file, builder, options, python=True)


def _read_counts(
    file: InputFile, builder: RecordingBuilder, options: ImportOptions, *, python: bool
) -> None:
    reader = CollapsedReader(builder, python=python, lines=options.lines)
    reader.read(file.blocks(), options.frequency)


def _austin(file: InputFile, builder: RecordingBuilder, options: ImportOptions) -> None:
    AustinReader(AustinSamples(builder, lines=options.lines)).read(file.blocks())


def _mojo(file: InputFile, builder: RecordingBuilder, options: ImportOptions) -> None:
    MojoReader(AustinSamples(builder, lines=options.lines)).read(file)


def _pprof(file: InputFile, builder: RecordingBuilder, options: ImportOptions) -> int | None:
    return PprofReader(builder, lines=options.lines).read(file.read_all(MAX_BYTES))


def _speedscope(file: InputFile, builder: RecordingBuilder, options: ImportOptions) -> None:
    SpeedscopeReader(builder, lines=options.lines).read(file)


# In this order: py-spy's output and Austin's are collapsed stacks too, and all lines of perf's can
# end in a number.
_FORMATS = {
    "austin-mojo": _Format(looks_like_mojo, _mojo, "summed"),
    "speedscope": _Format(looks_like_speedscope, _speedscope, "summed"),
    "pprof": _Format(looks_like_pprof, _pprof, "synthetic"),
    "perf-script": _Format(looks_like_perf_script, _perf_script, "recorded"),
    "austin": _Format(looks_like_austin, _austin, "summed"),
    "py-spy": _Format(looks_like_py_spy, _py_spy, "synthetic"),
    "collapsed": _Format(looks_collapsed, _collapsed, "synthetic"),
}
_PERF_DATA = "perf-data"
_HPCTOOLKIT = "hpctoolkit"
_OTF2 = "otf2"
FORMATS = (_PERF_DATA, _HPCTOOLKIT, _OTF2, *_FORMATS)
"""Names of the formats that can be imported."""


@dataclass(frozen=True, slots=True)
class _Recording:
    """A recording to import.

    ``read`` adds its records, and returns when it ended (None if unknown) and, if that is known
    better, when it was time 0, ns since 1970. ``origin`` describes the tool.
    """

    name: str
    format: str
    times: str
    read: Callable[[RecordingBuilder], tuple[int | None, int | None]]
    host: Host | None = None
    origin: Mapping[str, str] = field(default_factory=dict)


def import_recording(source: Path, output: Path, options: ImportOptions) -> Imported:
    """Import the file ``source`` (``-``: standard input) into the measurement ``output``, which
    must not exist.

    Raises NotFoundError, FormatError for another format or damage, PlatformError when the
    tool that reads it is not installed, StorageError; then nothing is left behind.
    """
    kind = options.format
    if kind == _PERF_DATA or (not kind and perf_data.is_perf_data(source)):
        return _import(_perf_data_recording(source), output, options)
    if kind == _HPCTOOLKIT or (not kind and is_hpctoolkit_database(source)):
        return _import(_hpctoolkit_recording(source), output, options)
    anchor = anchor_file(source)
    if kind == _OTF2 or (not kind and anchor):
        return _import(_otf2_recording(source, anchor), output, options)
    if source.is_dir():
        raise FormatError(f"{source}: a directory, but not one of perf, HPCToolkit or OTF2")
    with InputFile(source) as file:
        name = kind or _recognise(file)
        reader = _FORMATS[name]

        def read(builder: RecordingBuilder) -> tuple[int | None, None]:
            # Files are mostly written when a recording ends: better than the year 1970.
            return reader.read(file, builder, options) or file.modified_ns, None

        return _import(_Recording(file.name, name, reader.times, read), output, options)


def _import(recording: _Recording, output: Path, options: ImportOptions) -> Imported:
    # The machine of a recording and its boot are unknown.
    identity = f"imported {os.urandom(8).hex()}"
    host = recording.host or Host(_UNKNOWN_HOST, "", "", "", 0)
    described: dict[str, object] = {"file": readable(recording.name), "format": recording.format,
                 "times": recording.times, **recording.origin}  # fmt: skip
    builder = RecordingBuilder(output, replace(host, boot_id=identity), described, recording.name)
    threads = builder.threads
    threads.default_name = Path(recording.name).name
    threads.job, threads.rank, threads.size = options.job, options.rank, options.size
    try:
        records = builder.close(*recording.read(builder))
    except BaseException:
        builder.writer.discard()
        raise
    return Imported(
        recording.format, records, builder.taken or records, len(threads), recording.times,
        dict(builder.dropped + builder.left_out), builder.notes,
    )  # fmt: skip


def _perf_data_recording(source: Path) -> _Recording:
    try:
        modified_ns = source.stat().st_mtime_ns
    except OSError as error:
        raise NotFoundError(f"{source}: {error.strerror}") from None
    header = perf_data.read_header(source)

    def read(builder: RecordingBuilder) -> tuple[int, None]:
        PerfScriptReader(builder, own=True).read(perf_data.sample_text(source, header))
        return modified_ns, None

    host = replace(header.host, hostname=header.host.hostname or _UNKNOWN_HOST)
    origin = {"tool": f"perf {header.version}".strip(), "command": header.command}
    return _Recording(str(source), _PERF_DATA, "recorded", read, host, origin)


def _hpctoolkit_recording(source: Path) -> _Recording:
    def read(builder: RecordingBuilder) -> tuple[None, int | None]:
        return None, HpctoolkitReader(builder).read(source)

    times = "recorded" if (source / "trace.db").exists() else "synthetic"
    return _Recording(str(source), _HPCTOOLKIT, times, read, origin={"tool": "HPCToolkit"})


def _otf2_recording(source: Path, anchor: Path | None) -> _Recording:
    if anchor is None:
        raise FormatError(f"{source}: not an OTF2 archive")

    def read(builder: RecordingBuilder) -> tuple[int, int | None]:
        began_ns = Otf2Reader(builder).read(anchor)
        return anchor.stat().st_mtime_ns, began_ns

    return _Recording(str(source), _OTF2, "recorded", read, origin={"tool": "OTF2"})


def _recognise(file: InputFile) -> str:
    head = file.head()
    if not head:
        raise FormatError(f"{file.name}: empty")
    if head.startswith(perf_data.MAGIC):
        raise FormatError(f"{file.name}: perf.data must be a file, and not compressed")
    if looks_like_gperftools(head):
        raise FormatError(
            f"{file.name}: a profile of gperftools, which has no names: import the output of"
            " go tool pprof -proto PROGRAM FILE, or google-pprof --collapsed PROGRAM FILE"
        )
    for name, kind in _FORMATS.items():
        if kind.recognise(head):
            return name
    raise FormatError(
        f"{file.name}: not recognised as a recording (there are {', '.join(FORMATS)};"
        " --format names one)"
    )
