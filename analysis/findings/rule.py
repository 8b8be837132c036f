"""A rule: when a sentence is said about facts, and what it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpcd.analysis.findings.facts import Facts
from hpcd.analysis.findings.finding import Finding


@dataclass(frozen=True)
class FindingRule:
    """A rule over facts. ``find`` yields what it finds, with its place and amount.

    ``speaks`` says when it does, ``silent`` when it does not though one might expect it, ``helps``
    what usually helps: for people who ask why.
    """

    name: str
    find: Callable[[Facts], Iterator[Finding]]
    speaks: str
    helps: str
    silent: str = ""
