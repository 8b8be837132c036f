"""Names for the frames of a recording in files.

They are kept, as a file may be gone, replaced or hidden by a mount namespace when the measurement
is merged. There the file at the path is asked first, if it has the recorded build id.
"""

from __future__ import annotations

import time

from hpcd.array_types import U64
from hpcd.daemon.naming.load_modules import Modules
from hpcd.distinct import distinct
from hpcd.errors import HpcdError
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame as frames

# All files together. Whether one can be read again is not asked: a path may lead through a file
# system that a user serves, which may never answer.
_MAX_SECONDS = 2.0
_MAX_ADDRESSES = 100_000


def name_frames(modules: Modules, writer: MeasurementWriter, cct_frames: U64) -> list[str]:
    """Write the symbols of the files of ``cct_frames`` u64[n]; returns the paths of those
    that there was no time for. To be called once, when sampling is over."""
    module = frames.module_of(cct_frames)
    numbers = [number for number in distinct(module).tolist() if modules.has_image(number)]
    end = time.monotonic() + _MAX_SECONDS
    late = []
    for number in numbers:
        if time.monotonic() > end:
            late.append(modules.name(number))
            continue
        offsets = distinct(frames.offset_of(cct_frames[module == number]))[:_MAX_ADDRESSES]
        try:
            rows = modules.symbols(number, offsets)
        except HpcdError:  # it costs that file its names
            continue
        if rows:
            writer.add_symbols(number, rows)
    return late
