"""Samples of an OTF2 archive, written by its library: two calls of C for each."""

from __future__ import annotations

import ctypes
from typing import Any

import _otf2

from hpcd.array_types import I64
from hpcd.interchange.export_kernels import export_kernels
from hpcd.interchange.otf2_events import UNDEFINED_32


class SampleWriter:
    """Writes samples with the attribute list ``attributes``."""

    def __init__(self, attributes: Any) -> None:
        library = _otf2.Config.conf.lib
        self._attributes = _address(attributes)
        self._add = _address(library.OTF2_AttributeList_AddUint64)
        self._sample = _address(library.OTF2_EvtWriter_CallingContextSample)
        self._kernels = export_kernels()

    def write(self, writer: Any, samples: I64) -> None:
        """Write ``samples`` int64[n, 5]: time, context, event, metric, weight. Raises the bindings'
        error."""
        code = self._kernels.write_samples(
            self._add, self._sample, _address(writer), self._attributes, samples, UNDEFINED_32
        )
        _otf2.ErrorCodes.HandleErrorCode(_otf2.ErrorCode(code))


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0
