"""OTF2's library where its bindings do not suffice: errors, memory, fast functions.

The bindings set the types of a function at every call, and their callbacks of memory lack a
parameter.
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Sequence
from typing import Any

import _otf2
import numpy as np

from hpcd.array_types import I64
from hpcd.interchange.otf2.otf2_events import UNDEFINED_32, CallEventKind, CallEvents
from hpcd.kernels.library import kernels

# Chunks of a location's events in memory.
_EVENT_CHUNKS = 4


def _function(name: str, types: Sequence[Any]) -> Any:
    """Return a function of the library with the types of its arguments."""
    function = getattr(_otf2.Config.conf.lib, name)
    function.argtypes = [*types]
    function.restype = _otf2.ErrorCode
    function.errcheck = _otf2.ErrorCodes.HandleErrorCode
    return function


# OTF2_ErrorCallback; its last parameter, a va_list, is a pointer where hpcd runs.
_ERROR_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_int,
    ctypes.c_char_p, ctypes.c_void_p,
)  # fmt: skip


class LibraryErrors:
    """Collects the library's errors, which it would write to standard error.

    Errors while buffers are written are reported nowhere else.
    """

    def __init__(self) -> None:
        self.first = ""
        self._callback = _ERROR_CALLBACK(self._note)
        self._register = _otf2.Config.conf.lib.OTF2_Error_RegisterCallback
        self._register.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._register.restype = ctypes.c_void_p
        self._previous = None

    def __enter__(self) -> LibraryErrors:
        self._previous = self._register(ctypes.cast(self._callback, ctypes.c_void_p), None)
        return self

    def __exit__(self, *_: object) -> None:
        self._register(self._previous, None)

    def check(self) -> None:
        """Raise :class:`OSError` if there was an error."""
        if self.first:
            raise OSError(errno.EIO, self.first)

    def _note(self, _data: object, _file: object, _line: int, _function: object, code: int,
              *_: object) -> int:  # fmt: skip
        if code > 0 and not self.first:
            description = _otf2.Error_GetDescription(_otf2.ErrorCode(code))
            self.first = str(description)
        return code


# OTF2_MemoryAllocate and OTF2_MemoryFreeAll; the bindings' types lack their first parameter.
_ALLOCATE = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint8, ctypes.c_uint64, ctypes.c_void_p,
    ctypes.c_uint64,
)  # fmt: skip
_FREE_ALL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint8, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_bool
)


class _MemoryCallbacks(ctypes.Structure):
    _fields_ = (("allocate", _ALLOCATE), ("free_all", _FREE_ALL))


class LibraryMemory:
    """The library's memory. It keeps a location's events until the location is closed, and flushes
    them when it gets no more."""

    def __init__(self) -> None:
        self._chunks: dict[tuple[int, int], list[Any]] = {}
        self._callbacks = _MemoryCallbacks(_ALLOCATE(self._allocate), _FREE_ALL(self._free_all))

    def attach(self, archive: Any) -> None:
        """Make ``archive`` use this memory, for as long as this object exists."""
        pointer = ctypes.c_void_p
        function = _function("OTF2_Archive_SetMemoryCallbacks", (pointer, pointer, pointer))
        function(archive, ctypes.byref(self._callbacks), None)

    def _allocate(self, _: object, kind: int, location: int, _data: object, size: int) -> Any:
        chunks = self._chunks.setdefault((kind, location), [])
        if kind == _otf2.FILETYPE_EVENTS.value and len(chunks) >= _EVENT_CHUNKS:
            return None
        chunks.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(chunks[-1])

    def _free_all(self, _: object, kind: int, location: int, _data: object, _final: bool) -> None:
        self._chunks.pop((kind, location), None)


_U8, _U32, _U64 = ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64
# Arguments of every function: writer, attributes, time.
_HEAD = (ctypes.c_void_p, ctypes.c_void_p, _U64)
# The library's function of each kind, and the types of its other arguments.
_WRITERS = {
    CallEventKind.MPI_SEND: ("MpiSend", (_U32, _U32, _U32, _U64)),
    CallEventKind.MPI_ISEND: ("MpiIsend", (_U32, _U32, _U32, _U64, _U64)),
    CallEventKind.MPI_ISEND_COMPLETE: ("MpiIsendComplete", (_U64,)),
    CallEventKind.MPI_RECEIVE: ("MpiRecv", (_U32, _U32, _U32, _U64)),
    CallEventKind.MPI_IRECEIVE_REQUEST: ("MpiIrecvRequest", (_U64,)),
    CallEventKind.MPI_IRECEIVE: ("MpiIrecv", (_U32, _U32, _U32, _U64, _U64)),
    CallEventKind.MPI_COLLECTIVE_BEGIN: ("MpiCollectiveBegin", ()),
    CallEventKind.MPI_COLLECTIVE_END: ("MpiCollectiveEnd", (_U8, _U32, _U32, _U64, _U64)),
    CallEventKind.COLLECTIVE_REQUEST: ("NonBlockingCollectiveRequest", (_U64,)),
    CallEventKind.COLLECTIVE_COMPLETE: (
        "NonBlockingCollectiveComplete", (_U8, _U32, _U32, _U64, _U64, _U64),
    ),
    CallEventKind.IO_BEGIN: ("IoOperationBegin", (_U32, _U8, _U32, _U64, _U64)),
    CallEventKind.IO_COMPLETE: ("IoOperationComplete", (_U32, _U64, _U64)),
    CallEventKind.IO_CREATE: ("IoCreateHandle", (_U32, _U8, _U32, _U32)),
    CallEventKind.IO_DESTROY: ("IoDestroyHandle", (_U32,)),
    CallEventKind.WINDOW_CREATE: ("RmaWinCreate", (_U32,)),
    CallEventKind.PUT: ("RmaPut", (_U32, _U32, _U64, _U64)),
    CallEventKind.GET: ("RmaGet", (_U32, _U32, _U64, _U64)),
    CallEventKind.TRANSFER_COMPLETE: ("RmaOpCompleteBlocking", (_U32, _U64)),
}  # fmt: skip


class CallEventWriter:
    """Writes events of calls; ``first`` is the number of the first of :data:`CALL_ATTRIBUTES`."""

    def __init__(self, attributes: Any, first: int) -> None:
        self._attributes = attributes
        self._first = first
        self._write = {
            int(kind): (_function(f"OTF2_EvtWriter_{name}", (*_HEAD, *types)), len(types))
            for kind, (name, types) in _WRITERS.items()
        }
        self._add_context, self._add_function, self._add_number = (
            _function(f"OTF2_AttributeList_Add{name}", (ctypes.c_void_p, _U32, value))
            for name, value in (("CallingContextRef", _U32), ("StringRef", _U32), ("Uint64", _U64))
        )

    def write(self, writer: Any, events: CallEvents, context: I64) -> None:
        """Write ``events`` in their order; ``context`` int64[n] are their calling contexts."""
        first, attributes = self._first, self._attributes
        columns = (events.kind.tolist(), events.time.tolist(), context.tolist(),
                   events.function.tolist(), events.calls.tolist(), events.duration.tolist(),
                   events.argument.tolist())  # fmt: skip
        for kind, time, place, name, calls, duration, arguments in zip(*columns, strict=True):
            # The list is emptied by each event it is written with.
            self._add_context(attributes, first, place)
            self._add_function(attributes, first + 1, name)
            if calls != 1:
                self._add_number(attributes, first + 2, calls)
            if duration:
                self._add_number(attributes, first + 3, duration)
            function, count = self._write[kind]
            function(writer, attributes, time, *arguments[:count])


class SampleWriter:
    """Writes samples with the attribute list ``attributes``."""

    def __init__(self, attributes: Any) -> None:
        library = _otf2.Config.conf.lib
        self._attributes = _address(attributes)
        self._add = _address(library.OTF2_AttributeList_AddUint64)
        self._sample = _address(library.OTF2_EvtWriter_CallingContextSample)

    def write(self, writer: Any, samples: I64) -> None:
        """Write ``samples`` int64[n, 5]: time, context, event, metric, weight. Raises the bindings'
        error."""
        code = kernels.write_samples(
            self._add, self._sample, _address(writer), self._attributes,
            np.ascontiguousarray(samples), len(samples), UNDEFINED_32,
        )  # fmt: skip
        _otf2.ErrorCodes.HandleErrorCode(_otf2.ErrorCode(code))


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0
