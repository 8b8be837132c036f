"""``hpcd import``: recordings of other tools into measurements."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from hpcd.cli.command import Command
from hpcd.cli.output.terminal_text import say
from hpcd.errors import UsageError
from hpcd.interchange.importing import (
    FORMATS,
    Imported,
    ImportOptions,
    import_recording,
)
from hpcd.signals import ENDING, interrupt_on
from hpcd.wording import counted

_MAX_HERTZ = 1e9
_MAX_RANKS = 1 << 24
_TIMES = {
    "recorded": "",
    "summed": "times are sums of the durations in it",
    "synthetic": "it has no times: call paths are laid end to end, the trace shows shares only",
}


class Import(Command):
    """Import a recording of another tool.

    Turns perf.data (read by perf), the text of perf script, collapsed stacks, pprof profiles, the
    output of py-spy and Austin, speedscope files, HPCToolkit databases and OTF2 archives into a
    measurement, which hpcd merge takes as any other. The format is recognised by the contents;
    files may be compressed by gzip, xz or zstd. docs/import.md says what each format carries and
    what is lost.
    """

    name = "import"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE",
                            help="file or directory to import; - is standard input")  # fmt: skip
        parser.add_argument("-o", "--output", type=Path, required=True, metavar="MEASUREMENT",
                            help="measurement directory to create")  # fmt: skip
        parser.add_argument("--format", choices=FORMATS, default="",
                            help="format of FILE (default: recognised by contents)")  # fmt: skip
        parser.add_argument("--frequency", type=float, default=0.0, metavar="HZ",
                            help="counts of collapsed stacks are samples of CPU time, taken HZ "
                            "times a second (default: counts are counts)")  # fmt: skip
        parser.add_argument("--split-lines", action="store_true",
                            help="show each source line of a function apart, where FILE has lines "
                            "(py-spy, speedscope, Austin, pprof)")  # fmt: skip
        parser.add_argument("--job", default="", metavar="NAME", help="job FILE is of")
        parser.add_argument("--rank", type=int, metavar="N",
                            help="rank, in its job, of the process with most samples")  # fmt: skip
        parser.add_argument("--ranks", type=int, metavar="N", help="number of ranks of the job")
        parser.add_argument("--json", action="store_true", help="print one JSON object at the end")

    def run(self, args: argparse.Namespace) -> int:
        interrupt_on(ENDING)
        imported = import_recording(args.file, args.output, _options(args))
        if args.json:
            print(json.dumps({"measurement": str(args.output), **asdict(imported)}))
            return 0
        print(_summary(args.output, imported))
        for note in filter(None, (*imported.notes, _TIMES[imported.times])):
            say(f"note: {note}")
        return 0


def _options(args: argparse.Namespace) -> ImportOptions:
    if not (args.frequency == 0 or 1e-6 <= args.frequency <= _MAX_HERTZ):
        raise UsageError("--frequency must be from 1e-6 to 1e9 Hz")
    for option, value in (("--rank", args.rank), ("--ranks", args.ranks)):
        if value is not None and not 0 <= value < _MAX_RANKS:
            raise UsageError(f"{option} must be from 0 to {_MAX_RANKS - 1}")
    if args.rank is not None and args.ranks is not None and args.rank >= args.ranks:
        raise UsageError(f"--rank {args.rank}: there are only {args.ranks} ranks, from 0")
    return ImportOptions(
        format=args.format,
        frequency=args.frequency,
        lines=args.split_lines,
        job=args.job,
        rank=args.rank,
        size=args.ranks,
    )


def _summary(output: Path, imported: Imported) -> str:
    left_out = ", ".join(f"{number:,} {why}" for why, number in imported.left_out.items())
    return (
        f"{output}: {imported.samples:,} samples from {imported.format}, "
        f"{counted(imported.lines, 'trace line')}, "
        f"{imported.records:,} records" + (f"; left out: {left_out}" if left_out else "")
    )
