"""The verbs of the command line, loaded only when they are used."""

from __future__ import annotations

import importlib
from keyword import iskeyword

from hpcd.cli.command import Command
from hpcd.errors import PlatformError

VERBS = {
    "profile": ("Profile", "record, merge and report in one step, and keep the result"),
    "results": ("ResultsCommand", "list or delete what hpcd profile kept"),
    "attach": ("Attach", "record running processes"),
    "run": ("Run", "start a command and record it"),
    "top": ("Top", "show live where processes spend their time"),
    "stacks": ("Stacks", "show where all threads of a job stand now, and what they wait for"),
    "list": ("List", "show the jobs and ranks on this host"),
    "detach": ("Detach", "end a recording of the service"),
    "status": ("Status", "show what the service records"),
    "snapshot": ("Snapshot", "end the host's measurement and start a new one"),
    "import": ("Import", "import recordings of perf, py-spy and other tools"),
    "merge": ("Merge", "merge measurements into a database"),
    "report": ("Report", "print a database's call tree"),
    "calls": ("CallsCommand", "show what system calls did: files, bytes, bandwidth"),
    "memory": ("MemoryCommand", "show which call paths made memory grow, and held its peak"),
    "annotate": ("Annotate", "print source lines or instructions with their cost"),
    "scaling": ("ScalingCommand", "show scaling losses between runs on different numbers of ranks"),
    "compare": ("CompareCommand", "compare runs, ranks or parts of a run"),
    "imbalance": ("ImbalanceCommand", "show how unevenly ranks share the work"),
    "messages": ("MessagesCommand", "show what ranks sent each other, and who waited for whom"),
    "view": ("View", "show databases in a browser"),
    "render": ("Render", "draw the viewer's pictures into files"),
    "export": ("Export", "write a database in the format of another tool"),
    "push": ("Push", "push profiles to OpenTelemetry or Pyroscope while they are recorded"),
    "structure": (
        "StructureCommand",
        "show procedures, inlined calls, loops and lines of binaries",
    ),
    "synth": ("Synth", "make measurements of any size, for benchmarks"),
    "check": ("Check", "verify a measurement or database"),
    "daemon": ("Daemon", "run the service"),
    "doctor": ("Doctor", "show what hpcd can do on this machine, and how to enable the rest"),
}
"""Verb → (class in the module of the verb's name, one-line summary)."""


def load(verb: str) -> Command:
    """The command of this name. A missing library disables only the verbs that need it."""
    # A word of the language names no module.
    name = f"{verb}_" if iskeyword(verb) else verb
    try:
        module = importlib.import_module(f"hpcd.cli.verbs.{name}")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("hpcd"):
            raise
        raise PlatformError(f"hpcd {verb} needs the Python library {error.name}") from error
    command: Command = getattr(module, VERBS[verb][0])()
    return command
