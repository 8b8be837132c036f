"""Load modules of a measurement that differ from the unchanged files at their paths."""

from __future__ import annotations

import os
from collections.abc import Iterator

from hpcd.analysis.symbols.confined_naming import ConfinedNaming
from hpcd.errors import FormatError
from hpcd.measurement.reader import Measurement
from hpcd.model.identity import Module, ModuleKind


def mistaken_modules(measurement: Measurement) -> Iterator[tuple[Module, str]]:
    """Yield load modules, each with the build id of the file at its path: not the module's own,
    although the file was there before the recording and has not changed since.

    None where the measurement is of another host. Reads the files, confined.
    """
    clock = measurement.clock_pairs
    if not len(clock) or measurement.host.hostname != os.uname().nodename:
        return
    naming = ConfinedNaming()
    try:
        for module in measurement.modules.values():
            if module.kind is ModuleKind.ELF and module.build_id:
                try:
                    build_id = naming.unchanged_build_id(module.path, int(clock[0, 1]))
                except FormatError:  # it is gone, or no ELF file by now
                    continue
                if build_id and build_id != module.build_id:
                    yield module, build_id
    finally:
        naming.close()
