"""Prints the manual page, made from the parsers, so that it cannot disagree with ``--help``."""

from __future__ import annotations

import argparse
import inspect
import os

from hpcd import __version__
from hpcd.__main__ import build_parser
from hpcd.commands import VERBS, load


def escape(text: str) -> str:
    """Text that troff takes literally."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").split("\n")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


def options(parser: argparse.ArgumentParser) -> list[str]:
    """One paragraph an option."""
    out = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
        if isinstance(value, tuple):
            value = " ".join(value)
        names = ", ".join(action.option_strings)
        term = " ".join(part for part in (names, value if action.nargs != 0 else "") if part)
        text = (action.help or "") % {"default": action.default, "prog": "hpcd"}
        out += [".TP", f".B {escape(term)}", escape(text)]
    return out


def page() -> str:
    """The whole page."""
    os.environ["COLUMNS"] = "80"
    parser = build_parser()
    verbs = next(
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    out = [
        f'.TH HPCD 1 "" "hpcd {__version__}" "User Commands"',
        ".SH NAME",
        "hpcd \\- call path tracing of running programs",
        ".SH SYNOPSIS",
        ".B hpcd",
        "VERB [options]",
        ".SH DESCRIPTION",
        escape(parser.description or ""),
        ".SH OPTIONS",
        *options(parser),
        ".SH VERBS",
    ]
    for name in VERBS:
        out += [f".SS {name}", escape(inspect.getdoc(load(name)) or "")]
        out += options(verbs.choices[name])
    out += [
        ".SH EXIT STATUS",
        "0 on success; 2 usage, 3 target, 4 privilege, 5 platform, 6 storage, 7 format, 8 not",
        "found; docs/exit\\-codes.md tells more.",
        ".SH ENVIRONMENT",
        ".TP",
        ".B HPCD_CACHE",
        "Where unwind tables and kernel headers are kept (default: /var/cache/hpcd for root).",
        ".TP",
        ".B HPCD_DEBUG",
        "When set, errors show where they come from.",
        ".TP",
        ".B BCC_KERNEL_SOURCE",
        "Kernel headers to compile against, instead of those hpcd finds.",
    ]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    print(page(), end="")
