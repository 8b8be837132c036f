"""The verbs of the command line, loaded only when they are used."""

from __future__ import annotations

import importlib
from keyword import iskeyword

from hpcd.cli.command import Command
from hpcd.errors import PlatformError

GROUPS = {
    "Record": {
        "profile": ("ProfileCommand", "record, merge and report in one step, and keep the result"),
        "run": ("RunCommand", "start a command and record it"),
        "attach": ("Attach", "record running processes"),
        "top": ("Top", "show live where processes spend their time"),
        "stacks": ("Stacks", "show where all threads of a job stand now, and what they wait for"),
        "list": ("List", "show the jobs and ranks on this host"),
        "import": ("Import", "import recordings of perf, py-spy and other tools"),
    },
    "Look": {
        "results": ("ResultsCommand", "list or delete what hpcd profile kept"),
        "merge": ("Merge", "merge measurements into a database"),
        "report": ("Report", "print a database's call tree"),
        "view": ("ViewCommand", "show databases in a browser"),
        "annotate": ("Annotate", "print source lines or instructions with their cost"),
        "render": ("Render", "draw the viewer's pictures into files"),
    },
    "Find the cause": {
        "imbalance": ("ImbalanceCommand", "show how unevenly ranks share the work"),
        "scaling": (
            "ScalingCommand",
            "show scaling losses between runs on different numbers of ranks",
        ),
        "compare": ("CompareCommand", "compare runs, ranks or parts of a run"),
        "critical-path": ("CriticalPathCommand", "show what the length of a run depended on"),
        "what-if": ("WhatIfCommand", "show how much sooner a run would end if parts were faster"),
        "openmp": ("OpenmpCommand", "show what threads of OpenMP's regions used their time for"),
        "messages": ("MessagesCommand", "show what ranks sent each other, and who waited for whom"),
        "calls": ("CallsCommand", "show what system calls did: files, bytes, bandwidth"),
        "memory": ("MemoryCommand", "show which call paths made memory grow, and held its peak"),
        "structure": (
            "StructureCommand",
            "show procedures, inlined calls, loops and lines of binaries",
        ),
    },
    "Other tools": {
        "export": ("Export", "write a database in the format of another tool"),
        "push": ("Push", "push profiles to OpenTelemetry or Pyroscope while they are recorded"),
    },
    "The service and the host": {
        "doctor": (
            "Doctor",
            "show what hpcd can do on this machine, and how to enable the rest",
        ),
        "daemon": ("Daemon", "run the service"),
        "status": ("Status", "show what the service records"),
        "detach": ("Detach", "end a recording of the service"),
        "snapshot": ("SnapshotCommand", "end the host's measurement and start a new one"),
        "check": ("Check", "verify a measurement or database"),
        "synth": ("Synth", "make measurements of any size, for benchmarks"),
    },
}
"""Purpose → verb → (class in the module of the verb's name, one-line summary)."""

VERBS = {verb: entry for verbs in GROUPS.values() for verb, entry in verbs.items()}


def load(verb: str) -> Command:
    """The command of this name. A missing library disables only the verbs that need it."""
    # A word of the language names no module.
    name = f"{verb}_" if iskeyword(verb) else verb.replace("-", "_")
    try:
        module = importlib.import_module(f"hpcd.cli.verbs.{name}")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("hpcd"):
            raise
        raise PlatformError(f"hpcd {verb} needs the Python library {error.name}") from error
    command: Command = getattr(module, VERBS[verb][0])()
    return command
