"""Imported measurements, as sums over call paths of procedure names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hpcd.interchange.importing import Imported, ImportOptions, import_recording
from hpcd.measurement.reader import Measurement, open_measurement
from hpcd.model import frame
from tests.support.paths import ROOT

DATA = ROOT / "tests/data/imports"


def imported(source: Path, output: Path, **options: object) -> Imported:
    """Import a file."""
    return import_recording(source, output, ImportOptions(**options))  # type: ignore[arg-type]


def sums(path: Path) -> dict[str, Counter[tuple[str, ...]]]:
    """By event: what its records stand for, by call path, the outermost procedure first."""
    with open_measurement(path) as measurement:
        names = _names(measurement)
        totals: dict[str, Counter[tuple[str, ...]]] = {}
        for part in measurement.record_chunks():
            for node, event, value in zip(
                part.node.tolist(), part.event.tolist(), part.value.tolist(), strict=True
            ):
                call_path = tuple(names[at] for at in measurement.cct.path(node).tolist())
                counter = totals.setdefault(measurement.events[event].name, Counter())
                counter[call_path] += value
        return totals


def _names(measurement: Measurement) -> list[str]:
    symbols = {
        (module, start): name
        for module, rows in measurement.symbols.items()
        for start, _, name in rows
    }
    names = []
    for value in measurement.cct.frame.tolist():
        place = value >> frame.MODULE_SHIFT, value & frame.OFFSET_MASK
        marked = value & (1 << 62)
        names.append("[unknown]" if marked else symbols.get(place, ""))
    return names
