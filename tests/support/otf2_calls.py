"""Recorded calls of an OTF2 archive, as PyPI's otf2 reads it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import otf2

Ends = Counter[tuple[str, str, str, int, int]]
"""By sender, receiver (names of locations), communicator, tag and bytes: how many."""


@dataclass
class ArchivedCalls:
    """``sent`` and ``received``: messages; ``collectives``: calls by (function, operation,
    communicator, root), and under the same key in ``passed`` their bytes. ``one_sided``: bytes by
    the locations they come from and go to. ``moved``: by (file, mode) operations and bytes.
    ``handles``: by name, in time, what became of it. ``contexts``: by function the innermost
    regions of its calls. ``members``: of communicators by name."""

    sent: Ends = field(default_factory=Counter)
    received: Ends = field(default_factory=Counter)
    collectives: Counter[tuple[str, str, str, int]] = field(default_factory=Counter)
    passed: Counter[tuple[str, str, str, int]] = field(default_factory=Counter)
    moved: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    handles: dict[str, list[str]] = field(default_factory=dict)
    contexts: dict[str, set[str]] = field(default_factory=dict)
    one_sided: Counter[tuple[str, str]] = field(default_factory=Counter)
    members: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    unfinished: int = 0
    """Requests, collectives and operations that do not end."""


def read_otf2_calls(path: Path) -> ArchivedCalls:
    """All calls of an archive; what ends must have begun on its location."""
    calls = ArchivedCalls()
    begun: dict[Any, Any] = {}
    with otf2.reader.open(str(path / "traces.otf2")) as trace:
        for communicator in trace.definitions.comms:
            members = tuple(one.name for one in communicator.group.members)
            calls.members.setdefault(communicator.name, []).append(members)
        last: dict[Any, int] = {}
        for location, event in trace.events:
            assert last.get(location, 0) <= event.time
            last[location] = event.time
            if isinstance(event, otf2.events.CallingContextSample):
                continue
            output = {attribute.name: value for attribute, value in event.attributes.items()}
            if "calling context" in output and output["calling context"] is not None:
                names = calls.contexts.setdefault(output["function"], set())
                names.add(output["calling context"].region.name)
            _take(calls, begun, location, event, output["function"])
        for handle in trace.definitions.io_handles:
            before = handle.io_handle_flags == otf2.IoHandleFlag.PRE_CREATED
            calls.handles.setdefault(handle.name, []).insert(0, "before" if before else "opened")
    calls.unfinished = len(begun)
    return calls


def _take(calls: ArchivedCalls, begun: Any, location: Any, event: Any, function: str) -> None:
    kind = type(event).__name__
    if kind in ("MpiSend", "MpiIsend"):
        receiver = event.communicator.location(event.receiver)
        calls.sent[location.name, receiver.name, event.communicator.name, event.msg_tag,
                   event.msg_length] += 1  # fmt: skip
    if kind in ("MpiRecv", "MpiIrecv"):
        sender = event.communicator.location(event.sender)
        calls.received[sender.name, location.name, event.communicator.name, event.msg_tag,
                       event.msg_length] += 1  # fmt: skip
    if kind in ("MpiIsend", "MpiIrecvRequest", "NonBlockingCollectiveRequest"):
        assert (location, event.request_id) not in begun
        begun[location, event.request_id] = kind
    if kind in ("MpiIsendComplete", "MpiIrecv", "NonBlockingCollectiveComplete"):
        del begun[location, event.request_id]
    if kind == "MpiCollectiveBegin":
        begun[location, "collective"] = kind
    if kind == "MpiCollectiveEnd":
        del begun[location, "collective"]
    if kind in ("MpiCollectiveEnd", "NonBlockingCollectiveComplete"):
        operation = str(event.collective_op).rpartition(".")[2]
        key = function, operation, event.communicator.name, event.root
        calls.collectives[key] += 1
        calls.passed[key] += event.size_sent + event.size_received
    if kind in ("RmaPut", "RmaGet"):
        remote = event.win.comm.location(event.remote)
        pair = location.name, remote.name
        calls.one_sided[pair if kind == "RmaPut" else pair[::-1]] += event.bytes
        begun[location, event.matching_id] = kind
    if kind == "RmaOpCompleteBlocking":
        del begun[location, event.matching_id]
    if kind == "IoOperationBegin":
        begun[location, event.matching_id, event.handle] = event.mode
    if kind == "IoOperationComplete":
        mode = begun.pop((location, event.matching_id, event.handle))
        name = str(mode).rpartition(".")[2]
        total = calls.moved.setdefault((event.handle.name, name), [0, 0])
        total[0] += 1
        total[1] += event.bytes_result
    if kind in ("IoCreateHandle", "IoDestroyHandle"):
        calls.handles.setdefault(event.handle.name, []).append(kind)
