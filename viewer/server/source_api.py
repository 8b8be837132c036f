"""The code of a procedure with its costs in a selection: source lines, or instructions.

A request names a procedure and a file by their numbers in the database: nothing it says is part of
a path. What the database's line tables name may be anything, too;
:mod:`hpcd.analysis.profile.source_files` says what of that is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.answers.annotated_code import (
    instructions,
    own_cost,
    source_lines,
    unplaced_costs,
)
from hpcd.analysis.profile.annotation import Annotator
from hpcd.analysis.profile.filters import inside_of
from hpcd.analysis.profile.source_files import read_source
from hpcd.array_types import F64
from hpcd.errors import UsageError
from hpcd.model.scope import ScopeKind
from hpcd.viewer.contexts import Trees
from hpcd.viewer.picture_tree import with_places
from hpcd.viewer.selected_costs import SelectedCosts

# More than a person reads, and than a browser shows at once.
_MOST_LINES = 20_000
_MOST_FILES = 200
_MOST_WIDTH = 1000
_MOST_LISTINGS = 20
_MOST_CODE = 1 << 17


class Sources:
    """The code of one database's procedures."""

    def __init__(self, db: Database, trees: Trees) -> None:
        self._db = db
        self._trees = trees

    def _annotator(self, procedure: int, costs: F64, view: str) -> Annotator:
        """Costs of the code of an entity of ``view``, ``flat`` or what it is with each of the
        procedures without names, wherever it was inlined. Raises :class:`UsageError`."""
        db = self._db
        entities = self._trees.of(view).entities
        if not (
            0 <= procedure < len(entities) and int(entities.kind[procedure]) <= ScopeKind.INLINED
        ):
            raise UsageError("no such procedure")
        labels = with_places(db, entities.name)
        name = labels[procedure]
        own = np.array([text == name for text in db.procedure_labels], bool)
        own |= entities.of_procedure == procedure
        inlined = [bool(text) and text == name for text in db.scopes.name]
        return Annotator(db, inside_of(db, own, inlined), costs)

    def _metrics(self, profile: SelectedCosts) -> list[str]:
        return ["time"] if profile.kind else self._db.metrics.names

    def lines(
        self, procedure: int, profile: SelectedCosts, file: int | None,
        folders: Sequence[Path] = (), view: str = "flat",
    ) -> dict[str, object]:  # fmt: skip
        """Files with a procedure's code, costliest first, and the lines of one (None: the first),
        around the costliest if there are too many.

        Sources are looked for in ``folders`` too. Raises :class:`UsageError`.
        """
        db, numbers, metrics = self._db, self._trees.files, self._metrics(profile)
        annotation = self._annotator(procedure, profile.value, view).lines()
        answer: dict[str, object] = {
            "kind": profile.kind,
            "pixels": profile.pixels,
            "files": [
                {"file": numbers[one.name], "name": one.name, "exclusive": own_cost(one, metrics)}
                for one in annotation.lines[:_MOST_FILES]
            ],
            "unplaced": unplaced_costs(annotation.unplaced, metrics),
            "shown": None,
        }
        of_file = (one for one in annotation.lines if file in (None, numbers[one.name]))
        annotated = next(of_file, None)
        if annotated is None:
            if file is not None:
                raise UsageError("no code of this procedure is in such a file")
            return answer
        source = read_source(annotated.name, folders, db.path, db.origin_ns + db.duration_ns)
        costs = annotated.costs.exclusive[:, 1:].sum(axis=0)
        hot = int(annotated.place[int(np.argmax(costs))]) if len(costs) else 1
        first = max(0, min(hot - _MOST_LINES // 2, len(source.lines) - _MOST_LINES))
        text = [line[:_MOST_WIDTH] for line in source.lines[first : first + _MOST_LINES]]
        shown = source_lines(annotated, replace(source, lines=[]), metrics)
        answer["shown"] = {
            **shown,
            "file": numbers[annotated.name],
            "first": first + 1,
            "text": text,
        }
        return answer

    def code(self, procedure: int, profile: SelectedCosts, view: str = "flat") -> dict[str, object]:
        """The instructions of a procedure, and of those it was inlined into, costliest first.

        Raises :class:`UsageError`.
        """
        metrics = self._metrics(profile)
        listings = self._annotator(procedure, profile.value, view).code(_MOST_CODE)
        code = [
            {**instructions(listing, metrics), "text": listing.text}
            for listing in listings[:_MOST_LISTINGS]
        ]
        return {"kind": profile.kind, "pixels": profile.pixels, "code": code}
