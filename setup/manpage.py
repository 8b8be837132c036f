"""Prints a manual page: of the command, made from its parsers, so that it cannot disagree with
``--help``; with the argument ``configuration`` that of the service's file, made from its keys;
with ``options`` docs/recording-options.md, made from their definitions.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
from dataclasses import fields

from hpcd.__main__ import build_parser
from hpcd.cli.verbs import VERBS, load
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.service.configuration import Configuration
from hpcd.option_schema import options_of

# All variables that hpcd reads of its own environment.
ENVIRONMENT = {
    "HPCD_SOCKET": "Control socket of the service (default: /run/hpcd/control.sock).",
    "HPCD_LOADER": "How BPF programs are loaded where --loader is not given: object, bcc or auto.",
    "HPCD_UPROBES": "How probes are attached: session or multi (links for many functions), where"
    " the kernel has those, or perf (a perf event for each function).",
    "HPCD_CACHE": "Directory of cached kernel headers, unwind tables and program structure "
    "(default: /var/cache/hpcd for root, otherwise hpcd below XDG_CACHE_HOME).",
    "HPCD_DEBUG": "When set, errors are printed with their tracebacks.",
    "BCC_KERNEL_SOURCE": "Kernel headers to compile the BPF programs with (default: those found).",
    "HPCD_RESULTS": "Where hpcd profile keeps results (default: hpcd/results below XDG_DATA_HOME).",
    "XDG_DATA_HOME": "Base directory of the user's data (default: ~/.local/share).",
    "XDG_CONFIG_HOME": "Base directory of the user's configuration (default: ~/.config);"
    " hpcd/roles.toml below it says what the user's procedures and libraries do (docs/report.md).",
    "SUDO_UID": "The user who ran sudo, to whom the results of hpcd profile then belong.",
    "_ARGCOMPLETE, COMP_LINE": "Set by a shell that completes a command line.",
    "DEBUGINFOD_URLS": "Servers of separate debug information, as for debuginfod-find(1).",
    "XDG_CACHE_HOME": "Base directory of the user's caches (default: ~/.cache).",
    "XDG_RUNTIME_DIR": "Where hpcd view keeps the private file by which it opens the browser "
    "(default: the directory of temporary files).",
    "LD_LIBRARY_PATH": "Where hpcd run looks for the libraries of its command, as ld.so(8) does.",
    "LD_PRELOAD": "Further libraries of the command that hpcd run looks for, as ld.so(8) does.",
    "PYTHONPATH": "Ignored by the installed command. Where pip alone installed hpcd, its relative"
    " entries are left out: nothing is imported from the current directory.",
    "LISTEN_FDS, LISTEN_PID": "Set by systemd when it passes the control socket to the service.",
}


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
        if action.help == argparse.SUPPRESS:  # former names
            continue
        value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
        if isinstance(value, tuple):
            value = " ".join(value)
        names = ", ".join(action.option_strings)
        term = " ".join(part for part in (names, value if action.nargs != 0 else "") if part)
        text = (action.help or "") % {"default": action.default, "prog": "hpcd"}
        if action.choices and not action.metavar:
            text += f"; one of {', '.join(map(str, action.choices))}"
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
        '.TH HPCD 1 "" "hpcd" "User Commands"',
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
        "found; see docs/exit\\-codes.md.",
        ".SH ENVIRONMENT",
    ]
    for names, meaning in ENVIRONMENT.items():
        out += [".TP", f".B {escape(names)}", escape(meaning)]
    return "\n".join(out) + "\n"


def configuration_page() -> str:
    """hpcd.toml(5)."""
    out = [
        '.TH HPCD.TOML 5 "" "hpcd" "File Formats"',
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


def options_page() -> str:
    """docs/recording-options.md."""
    out = [
        "# Options of recordings",
        "",
        "Made by `make man` from `daemon/capture/recording_options.py:Options`. A request to the",
        "[service](service.md#the-control-socket) has them as the fields named last; a measurement",
        "shows them in its `options`, and so does `--json`.",
        "",
        "| option | meaning | verbs | field of a request |",
        "| --- | --- | --- | --- |",
    ]
    for option in options_of(Options):
        names = " ".join(
            filter(None, (", ".join(option.flags), option.kind.argument.get("metavar")))
        )
        verbs = ", ".join(option.verbs)
        field = f"`{option.key}`: {option.kind.json}" if option.served else "refused"
        out.append(f"| `{names}` | {option.help % ()} | {verbs} | {field} |")
    return "\n".join(out) + "\n"


PAGES = {"configuration": configuration_page, "options": options_page}

if __name__ == "__main__":
    print(PAGES[sys.argv[1]]() if sys.argv[1:] else page(), end="")
