"""The code of procedures with what it cost, for ``hpcd annotate`` and the page."""

from __future__ import annotations

from collections.abc import Sequence

from hpcd.analysis.answers.json_form import json_form, rows
from hpcd.analysis.profile.annotation import Annotated, InstructionListing
from hpcd.analysis.profile.source_files import SourceFile


def source_lines(
    annotated: Annotated, source: SourceFile, metrics: Sequence[str]
) -> dict[str, object]:
    """Return the lines of a file that cost something, with their text, null where unknown."""
    text = dict(enumerate(source.lines, start=1))
    return {
        "file": annotated.name,
        "found": str(source.path) if source.path else None,
        "note": source.note,
        "lines": _places("line", text, annotated, metrics),
    }


def instructions(listing: InstructionListing, metrics: Sequence[str]) -> dict[str, object]:
    """Return the instructions of a procedure that cost something."""
    return {
        "procedure": listing.costs.name,
        "module": listing.module,
        "note": listing.note,
        "instructions": _places("address", dict(listing.text), listing.costs, metrics),
    }


def unplaced_costs(
    unplaced: Sequence[Annotated], metrics: Sequence[str]
) -> list[dict[str, object]]:
    """Return the costs of contexts whose line is unknown, by procedure."""
    return [{"procedure": one.name, **costs} for one in unplaced for costs in _costs(one, metrics)]


def own_cost(annotated: Annotated, metrics: Sequence[str]) -> dict[str, float]:
    """Return the exclusive cost of all places together, by metric."""
    own = annotated.costs.exclusive[:, 1:].sum(axis=1)
    return dict(zip(metrics, json_form(own), strict=True))


def _places(
    kind: str, text: dict[int, str], annotated: Annotated, metrics: Sequence[str]
) -> list[dict[str, object]]:
    return [
        {kind: place, "text": text.get(place), **costs}
        for place, costs in zip(annotated.place.tolist(), _costs(annotated, metrics), strict=True)
    ]


def _costs(annotated: Annotated, metrics: Sequence[str]) -> list[dict[str, object]]:
    view = annotated.costs
    return rows({
        kind: rows(dict(zip(metrics, costs[:, 1:], strict=True)))
        for kind, costs in (("inclusive", view.inclusive), ("exclusive", view.exclusive))
    })  # fmt: skip
