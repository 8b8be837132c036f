"""The verbs of the command line, loaded only when they are used."""

from __future__ import annotations

import importlib

from hpcd.commands.base import Command
from hpcd.errors import PlatformError

VERBS = {
    "attach": ("Attach", "record running processes"),
    "run": ("Run", "start a command and record it"),
    "top": ("Top", "show live where processes spend their time"),
    "list": ("List", "show the jobs and ranks on this node"),
    "detach": ("Detach", "end a recording of the service"),
    "status": ("Status", "what the service records"),
    "snapshot": ("Snapshot", "end the node's measurement and go on in a new one"),
    "merge": ("Merge", "merge measurements into a database"),
    "report": ("Report", "print a database's call tree"),
    "annotate": ("Annotate", "print source lines or instructions with what they cost"),
    "scaling": ("ScalingCommand", "show what is lost on more ranks"),
    "compare": ("CompareCommand", "compare runs, ranks or parts of a run"),
    "imbalance": ("ImbalanceCommand", "show how unevenly ranks share the work"),
    "view": ("View", "look at databases in a browser"),
    "render": ("Render", "draw what the viewer shows, without a browser"),
    "structure": (
        "StructureCommand",
        "show procedures, inlined calls, loops and lines of binaries",
    ),
    "synth": ("Synth", "make measurements of any size, for benchmarks"),
    "check": ("Check", "verify a measurement or database"),
    "daemon": ("Daemon", "run the service"),
    "doctor": ("Doctor", "say what this machine can do, and why not the rest"),
}
"""Verb → (class in the module of the verb's name, what it does in a line)."""


def load(verb: str) -> Command:
    """The command of this name. A missing library costs only the verbs that need it."""
    try:
        module = importlib.import_module(f"hpcd.commands.{verb}")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("hpcd"):
            raise
        raise PlatformError(f"hpcd {verb} needs the Python library {error.name}") from error
    command: Command = getattr(module, VERBS[verb][0])()
    return command
