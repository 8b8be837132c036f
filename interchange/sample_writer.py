"""Samples of an OTF2 archive, written by its library: two calls of C for each."""

from __future__ import annotations

import ctypes
from typing import Any

import _otf2

from hpcd.array_types import I64
from hpcd.interchange.otf2_events import UNDEFINED_32


class SampleWriter:
    """Writes samples with the list ``attributes``; ``loops`` is
    :class:`ExportLoops` or None."""

    def __init__(self, attributes: Any, loops: Any) -> None:
        library = _otf2.Config.conf.lib
        self._attributes = attributes
        self._loops = loops
        # The bindings set these at every call, of which there is one for each record.
        self._add, self._sample = (
            library.OTF2_AttributeList_AddUint64,
            library.OTF2_EvtWriter_CallingContextSample,
        )
        self._add.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64]
        self._sample.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32,
            ctypes.c_uint32,
        ]  # fmt: skip
        for function in (self._add, self._sample):
            function.restype = _otf2.ErrorCode
            function.errcheck = _otf2.ErrorCodes.HandleErrorCode
        if loops is not None:
            self._called = (_address(self._add), _address(self._sample))

    def write(self, writer: Any, samples: I64) -> None:
        """Write ``samples`` ``int64[n, 5]``: time, context, event, metric, and what it stands for.
        Raises the bindings' error."""
        # The list is emptied by each event it is written with.
        if self._loops is not None:
            code = self._loops.write_samples(
                *self._called, _address(writer), _address(self._attributes), samples, UNDEFINED_32
            )
            _otf2.ErrorCodes.HandleErrorCode(_otf2.ErrorCode(code))
            return
        add, sample, attributes = self._add, self._sample, self._attributes
        for time, context, event, metric, value in samples.tolist():
            add(attributes, metric, value)
            sample(writer, attributes, time, context, UNDEFINED_32, event)


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0
