"""``hpcd doctor``: what hpcd can do on this machine."""

from __future__ import annotations

import argparse
import dataclasses
import json

from hpcd.bpf.loading.features import Feature, probe
from hpcd.cli.command import Command
from hpcd.cli.output.tree_tables import TextOutput
from hpcd.errors import PlatformError


class Doctor(Command):
    """Show what hpcd can do on this machine; for what it cannot, the reason and the remedy.

    The exit code is 0 when recording is possible and 5 when it is not.
    """

    name = "doctor"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, args: argparse.Namespace) -> int:
        features = probe()
        blocking = [feature for feature in features if feature.needed and not feature.available]
        if args.json:
            print(
                json.dumps(
                    {
                        "can_record": not blocking,
                        "features": [dataclasses.asdict(feature) for feature in features],
                    }
                )
            )
        else:
            TextOutput(None).sentences(map(as_line, features), indent=5)
            print(f"\n{verdict(blocking)}")
        return PlatformError.exit_code if blocking else 0


def verdict(blocking: list[Feature]) -> str:
    """The result in one line: the first feature whose absence prevents recording, if any."""
    if not blocking:
        return "hpcd can record here"
    first = blocking[0]
    return f"hpcd cannot record here: {first.name}: {first.detail}; {first.remedy}"


def as_line(feature: Feature) -> str:
    """A feature as a line: yes, NO where recording needs it, or no."""
    answer = "yes" if feature.available else "NO" if feature.needed else "no"
    remedy = "" if feature.available or not feature.remedy else f"  ->  {feature.remedy}"
    return f"{answer:3}  {feature.name:28}  {feature.detail}{remedy}"
