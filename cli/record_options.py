"""Options of recordings on the command line, and the recorder's options made of them."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from hpcd.cli.output.terminal_text import say
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.targets.selector import Selector
from hpcd.errors import UsageError
from hpcd.option_schema import build, options_of
from hpcd.wording import counted

_SELECTING = options_of(Selector)


def add_options(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the options of a recording that ``verb`` has."""
    keys = {option.key for option in _SELECTING}
    options = [option for option in options_of(Options) if verb in option.verbs]
    group = parser.add_argument_group("target processes (each option may be repeated)")
    for option in options:
        place = group if option.key in keys else parser
        place.add_argument(*option.flags, help=option.help, **option.kind.argument)


def add_summary_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the summary of a recording goes."""
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument(
        "--json-file", type=Path, metavar="FILE",
        help="write that object to FILE instead, /dev/fd/N for an open descriptor",
    )  # fmt: skip


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--output``: the measurement's directory."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="measurement directory to create (default: hpcd-measurement-TIME)",
    )


def selected(args: argparse.Namespace) -> Selector:
    """The :class:`Selector` of the parsed arguments, false if they select nothing."""
    return build(Selector, lambda option: option.parsed(args))


def selection(args: argparse.Namespace) -> Selector:
    """The :class:`Selector` of the parsed arguments; :class:`UsageError` when there is none."""
    selector = selected(args)
    if not selector:
        flags = [option.flag for option in _SELECTING]
        raise UsageError(f"give targets by {', '.join(flags[:-1])} or {flags[-1]}")
    if selector.everything and replace(selector, everything=False):
        raise UsageError("--all records every process and cannot be combined with other conditions")
    return selector


def default_output() -> Path:
    """A new directory's name in the working directory, unique to the second."""
    return Path(time.strftime("hpcd-measurement-%Y%m%d-%H%M%S"))


def recording_options(args: argparse.Namespace, selector: Selector, output: Path) -> Options:
    """:class:`Options` from the parsed arguments."""
    return build(
        Options,
        lambda option: option.parsed(args),
        selector=selector,
        output=output,
        analysing_last=_say_analysing,
    )


def _say_analysing(files: int) -> None:
    say(
        f"hpcd: the last call paths wait for {counted(files, 'file')} to be analysed, once; "
        "Ctrl-C ends without"
    )
