"""Prints a manual page: of the command, made from its parsers, so that it cannot disagree with
``--help``; with the argument ``configuration`` that of the service's file, made from its keys.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
from dataclasses import fields

from hpcd import __version__
from hpcd.__main__ import build_parser
from hpcd.commands import VERBS, load
from hpcd.daemon.service.configuration import Configuration


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


def configuration_page() -> str:
    """hpcd.toml(5)."""
    out = [
        f'.TH HPCD.TOML 5 "" "hpcd {__version__}" "File Formats"',
        ".SH NAME",
        "hpcd.toml \\- configuration of the hpcd service",
        ".SH SYNOPSIS",
        "/etc/hpcd/hpcd.toml",
        ".SH DESCRIPTION",
        "A TOML file of tables. What it leaves out has its default; a key that is not known is an",
        "error. Sizes are texts such as 20G, times 90s, 5min, 1h or 14d, shares 1%.",
    ]
    configuration = Configuration()
    for table in fields(configuration):
        part = getattr(configuration, table.name)
        out += [f".SH [{table.name}]", escape((part.__doc__ or "").splitlines()[0])]
        for key in fields(part):
            out += [
                ".TP",
                # Quotation marks would be troff's own.
                ".B "
                + escape(f"{key.name} = {json.dumps(getattr(part, key.name))}").replace(
                    '"', "\\(dq"
                ),
                escape(key.metadata["meaning"]),
            ]
    out += [".SH SEE ALSO", ".BR hpcd (1)"]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    print(configuration_page() if sys.argv[1:] == ["configuration"] else page(), end="")
