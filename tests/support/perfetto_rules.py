"""The rules of Perfetto's proto that its classes do not enforce (``trace_packet.proto``,
``interned_data.proto``)."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

# What refers to interned entries: message, its field, the field of InternedData.
_REFERENCES = {
    "Frame": {"function_name_id": "function_names", "mapping_id": "mappings",
              "source_path_iid": "source_paths"},
    "Mapping": {"build_id": "build_ids", "path_string_ids": "mapping_paths"},
    "Callstack": {"frame_ids": "frames"},
    "StackSample": {"task_context_iid": "stack_sample_task_contexts",
                    "callstack_iid": "callstacks",
                    "primary_descriptor_iid": "stack_sample_counter_descriptors"},
}  # fmt: skip
_CLEARED, _NEEDS_STATE = 1, 2


def parsed(path: Path) -> perfetto_trace_pb2.Trace:
    """The trace, which must keep the rules."""
    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString(path.read_bytes())
    interned: dict[str, set[int]] = defaultdict(set)
    described: set[int] = set()
    first = trace.packet[0]
    assert first.incremental_state_cleared and first.sequence_flags == _CLEARED
    clocks = {clock.clock_id: clock.timestamp for clock in first.clock_snapshot.clocks}
    for packet in trace.packet:
        _all_known(packet)
        # One sequence, whose identifier is not 0.
        assert packet.trusted_packet_sequence_id == 1
        if packet.HasField("interned_data") or packet.HasField("stack_sample"):
            assert packet.sequence_flags & _NEEDS_STATE
        for field, entries in packet.interned_data.ListFields():
            for entry in entries:
                _refer(entry, interned)
                assert entry.iid and entry.iid not in interned[field.name], field.name
                interned[field.name].add(entry.iid)
        if packet.HasField("stack_sample"):
            _refer(packet.stack_sample, interned)
            assert packet.timestamp >= min(clocks.values())
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid and track.uuid not in described
            assert not track.parent_uuid or track.parent_uuid in described
            described.add(track.uuid)
    return trace


def _refer(message: Message, interned: dict[str, set[int]]) -> None:
    """Check that all that ``message`` refers to has been interned before it."""
    for name, table in _REFERENCES.get(message.DESCRIPTOR.name, {}).items():
        value = getattr(message, name)
        for number in [value] if isinstance(value, int) else value:
            assert not number or number in interned[table], (name, number)


def _all_known(message: Message) -> None:
    assert not UnknownFieldSet(message)
    for field, value in message.ListFields():
        if field.message_type:
            for part in value if field.is_repeated else [value]:
                _all_known(part)
