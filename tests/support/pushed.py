"""Measurements to push, and what OTLP requests that come of it say."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2

from hpcd.measurement.summary import Summary
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from tests.support.receiver import Received

START, REALTIME = 5 * 10**12, 1_700_000_000 * 10**9
MS = 10**6
# Command, job, rank, and of each metric ms in main > work, main > [k] sleep.
PROCESSES = [
    ("solver", "17", 0, 300, 40),
    ("solver", "17", 1, 200, 10),
    ("sh", "", None, 5, 0),
    ("sh", "", None, 6, 0),
    ('odd "{name}, \x1b[31m\n', "", None, 7, 0),
]


class Recorder:
    """Writes a measurement bit by bit."""

    def __init__(self, path: Path) -> None:
        self.writer = writer = MeasurementWriter(
            path, Host("node7", "b", "6", "x86_64", 2), options={}
        )
        writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
        writer.add_event(Event(1, "blocked", "ns", 1.0, "blocked_time", interval=True))
        writer.add_event(Event(2, "cycles", "", 1.0, "cycles"))
        writer.add_module(Module(1, ModuleKind.JIT, "/opt/solver", "abcd"))
        writer.add_module(Module(2, ModuleKind.KERNEL, "[kernel]"))
        writer.add_symbols(1, [(0, 16, "main"), (16, 16, "work")])
        writer.add_symbols(2, [(0, 16, "sleep")])
        writer.add_clock_pair(START, START + REALTIME)
        for number, (name, job, rank, _, _) in enumerate(PROCESSES):
            writer.add_process(
                Process(number, 100 + number, 1, name, "/bin/x", (name, "--password=x"),
                        0 if number < 4 else 4_000_000, START, job, rank, 2)
            )  # fmt: skip
            writer.add_thread(Thread(number, number, 100 + number, name, START, None))
        frames = [module_frame(1, 4), module_frame(1, 20), module_frame(2, 8)]
        writer.add_nodes(np.array([0, 1, 1], np.uint32), np.array(frames, np.uint64))
        self.at = START

    def record(self) -> None:
        """A second of all processes."""
        rows = []
        for line, (_, _, _, cpu, blocked) in enumerate(PROCESSES):
            rows += [(line, self.at + n * MS, 2, 0, 1) for n in range(cpu)]
            rows += [(line, self.at + cpu * MS, 3, 1, blocked * MS)] * bool(blocked)
            rows.append((line, self.at + 900 * MS, 2, 2, 12345))
        column = np.array(rows, np.uint64).T
        self.writer.add_records(
            column[0].astype(np.uint32), column[1], column[2].astype(np.uint32),
            column[3].astype(np.uint16), column[4],
        )  # fmt: skip
        self.writer.flush(Summary())
        self.at += 1000 * MS


Costs = dict[tuple[str, ...], Counter[tuple[str, ...]]]


def otlp_message(request: Received) -> profiles_service_pb2.ExportProfilesServiceRequest:
    """Parse the message that was posted."""
    assert request.headers["content-type"] == "application/x-protobuf"
    assert urlsplit(request.path).path == "/v1development/profiles"
    return profiles_service_pb2.ExportProfilesServiceRequest.FromString(
        gzip.decompress(request.body)
    )


def otlp_costs(request: Received) -> Costs:
    """Costs in ns by call path, by labels and sample type."""
    message = otlp_message(request)
    tables, strings = message.dictionary, list(message.dictionary.string_table)
    costs: Costs = {}
    for resource in message.resource_profiles:
        attributes = {a.key: a.value.string_value for a in resource.resource.attributes}
        assert attributes["host.name"] == "node7"
        assert attributes["service.name"] == attributes["command"] != ""
        (scope,) = resource.scope_profiles
        assert scope.scope.name == "hpcd"
        for profile in scope.profiles:
            kind = strings[profile.sample_type.type_strindex]
            assert strings[profile.sample_type.unit_strindex] == "nanoseconds"
            assert strings[profile.period_type.type_strindex] == kind
            assert strings[profile.period_type.unit_strindex] == "nanoseconds"
            assert profile.period == (MS if kind == "cpu" else 1)
            assert profile.duration_nano > 0
            assert START + REALTIME <= profile.time_unix_nano < START + REALTIME + 60 * 10**9
            labels = tuple(attributes[key] for key in ("user", "job", "rank", "command"))
            by_path = costs.setdefault((*labels, kind), Counter())
            for sample in profile.samples:
                (value,) = sample.values
                stack = []
                for number in tables.stack_table[sample.stack_index].location_indices:
                    location = tables.location_table[number]
                    (line,) = location.lines
                    stack.append(strings[tables.function_table[line.function_index].name_strindex])
                    mapping = tables.mapping_table[location.mapping_index]
                    assert strings[mapping.filename_strindex] in ("/opt/solver", "[kernel]")
                by_path[tuple(reversed(stack))] += value
    return costs
