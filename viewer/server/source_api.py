"""The code of a procedure with what it cost in a selection: source lines, or instructions.

A request names a procedure and a file by their numbers in the database: nothing it says is part of
a path. What the database's line tables name may be anything, too;
:mod:`hpcd.analysis.profile.source_files` says what of that is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.profile.annotation import Annotated, Annotator
from hpcd.analysis.profile.filters import inside_of
from hpcd.analysis.profile.source_files import read_source
from hpcd.array_types import F64
from hpcd.errors import UsageError
from hpcd.model.scope import ScopeKind
from hpcd.viewer.server.contexts import Trees

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

    def annotator(self, procedure: int, costs: F64, view: str) -> Annotator:
        """Costs of the code of an entity of ``view``, ``flat`` or what it is with each of the
        procedures without names, wherever it was inlined.

        ``costs`` ``float64[metrics, nodes]``. Raises :class:`UsageError`.
        """
        db = self._db
        entities = self._trees.of(view).entities
        if not (
            0 <= procedure < len(entities) and int(entities.kind[procedure]) <= ScopeKind.INLINED
        ):
            raise UsageError("no such procedure")
        name = entities.name[procedure]
        own = np.array([text == name for text in db.procedure_names], bool)
        own |= entities.of_procedure == procedure
        inlined = [bool(text) and text == name for text in db.scopes.name]
        return Annotator(db, inside_of(db, own, inlined), costs)

    def lines(
        self, procedure: int, costs: F64, file: int | None, folders: Sequence[Path] = (),
        view: str = "flat",
    ) -> dict[str, object]:  # fmt: skip
        """Files with a procedure's code, costliest first, and the lines of one (None: the first).

        Sources are looked for in ``folders`` too. Raises :class:`UsageError`.
        """
        annotation = self.annotator(procedure, costs, view).lines()
        numbers = self._trees.files
        shown = None
        for annotated in annotation.lines:
            if file is None or numbers[annotated.name] == file:
                shown = annotated
                break
        if file is not None and shown is None:
            raise UsageError("no code of this procedure is in such a file")
        return {
            "procedures": annotation.procedures[:_MOST_FILES],
            "files": [
                {"file": numbers[annotated.name], "name": annotated.name, **_sums(annotated)}
                for annotated in annotation.lines[:_MOST_FILES]
            ],
            "unplaced": [
                {"name": annotated.name, **_sums(annotated)} for annotated in annotation.unplaced
            ],
            "shown": self._text(shown, folders) if shown else None,
        }

    def _text(self, annotated: Annotated, folders: Sequence[Path]) -> dict[str, object]:
        """A file's lines, around the costliest if there are too many."""
        db = self._db
        source = read_source(annotated.name, folders, db.path, db.origin_ns + db.duration_ns)
        costs = annotated.costs.exclusive[:, 1:].sum(axis=0)
        hot = int(annotated.place[int(np.argmax(costs))]) if len(costs) else 1
        first = max(0, min(hot - _MOST_LINES // 2, len(source.lines) - _MOST_LINES))
        text = [line[:_MOST_WIDTH] for line in source.lines[first : first + _MOST_LINES]]
        return {
            "file": self._trees.files[annotated.name],
            "found": str(source.path) if source.path else None,
            "note": source.note,
            "first": first + 1,
            "text": text,
            **_costs(annotated),
        }

    def code(self, procedure: int, costs: F64, view: str = "flat") -> dict[str, object]:
        """The instructions of a procedure, and of those it was inlined into, costliest first.

        Raises :class:`UsageError`.
        """
        listings = self.annotator(procedure, costs, view).code(_MOST_CODE)
        return {
            "code": [
                {
                    "name": listing.costs.name,
                    "module": listing.module,
                    "note": listing.note,
                    "address": [address for address, _ in listing.text],
                    "text": [text for _, text in listing.text],
                    **_costs(listing.costs),
                }
                for listing in listings[:_MOST_LISTINGS]
            ]
        }


def _sums(annotated: Annotated) -> dict[str, object]:
    """Own cost of all places together, by metric."""
    return {"exclusive": np.nan_to_num(annotated.costs.exclusive[:, 1:].sum(axis=1)).tolist()}


def _costs(annotated: Annotated) -> dict[str, object]:
    """Costs of places: by metric, then place."""
    return {
        "place": annotated.place.tolist(),
        "inclusive": np.nan_to_num(annotated.costs.inclusive[:, 1:]).tolist(),
        "exclusive": np.nan_to_num(annotated.costs.exclusive[:, 1:]).tolist(),
    }
