"""Handlers of the signals that end a command."""

from __future__ import annotations

import subprocess
import sys

from tests.support.signals import IGNORING

HANDLED = """
import signal
from hpcd.signals import ENDING, handle
handle(ENDING, lambda: print("handled"))
for number in ENDING:
    signal.raise_signal(number)
"""

INTERRUPTED = """
import signal
from hpcd.signals import ENDING, interrupt_on
interrupt_on(ENDING)
try:
    signal.raise_signal(signal.SIGTERM)
except KeyboardInterrupt:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGINT):
        signal.raise_signal(number)
    print("cleaned up")
"""


def run(script: str, *before: str) -> subprocess.CompletedProcess[str]:
    """Run ``script`` in a Python process that ``before`` starts."""
    command = [*before, sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_a_signal_that_was_ignored_at_the_start_stays_ignored() -> None:
    assert run(HANDLED, "env", "--default-signal=INT,HUP").stdout == "handled\n" * 3
    assert run(HANDLED, *IGNORING).stdout == "handled\n"  # SIGTERM


def test_a_clean_up_is_not_interrupted() -> None:
    done = run(INTERRUPTED, "env", "--default-signal=INT,HUP")
    assert done.stdout == "cleaned up\n"
    assert done.stderr == "hpcd: ending already; Ctrl-\\ ends it at once\n"
