"""Base class of the verbs of the command line."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod


class Command(ABC):
    """One verb of ``hpcd``. Its docstring is the description in ``hpcd VERB --help``."""

    name: str

    @abstractmethod
    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's options."""

    @abstractmethod
    def run(self, args: argparse.Namespace) -> int:
        """Run the verb. Returns the exit code (``docs/exit-codes.md``)."""
