"""What every verb of the command line is."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod


class Command(ABC):
    """One verb. Its docstring is its help: the first line in the list, all of it on its own."""

    name: str

    @abstractmethod
    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's options."""

    @abstractmethod
    def run(self, args: argparse.Namespace) -> int:
        """Do it; the result is the exit code."""
