"""The part that a merge makes of one measurement."""

from __future__ import annotations

from pathlib import Path

from hpcd.analysis.merge.read.ingest import IngestTask, MeasurementSource, ingest
from hpcd.analysis.trace.part_contents import PartContents


def ingest_one(path: Path, folder: Path, memory: int = 1 << 30) -> PartContents:
    """Make the part of the measurement ``path`` in ``folder``. Raises why it cannot be made."""
    answer = ingest(IngestTask((MeasurementSource(path, 0),), folder, memory))
    for error in answer.refused.values():
        raise error
    (part,) = answer.parts
    return part
