"""Every option of a recording goes through the service, or is refused in a line."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from hpcd.bpf.events.event_names import parse_events
from hpcd.cli.service_client import request_of
from hpcd.daemon.capture.start.recording_options import REFUSED, REQUESTED, Options
from hpcd.daemon.probes.probe_request import ProbeRequest
from hpcd.daemon.service.configuration import Configuration
from hpcd.daemon.service.control import Control
from hpcd.daemon.service.permission import Permission
from hpcd.daemon.service.protocol import Peer, encoded
from hpcd.daemon.targets.selector import Selector
from hpcd.errors import UsageError

# Set by the service, for what its user may have, or by the process that records.
OF_THE_SERVICE = {
    "output", "owner", "only_user", "only_groups", "table_bytes", "max_memory", "max_cpu",
    "max_probed", "existing",
}  # fmt: skip
OF_HPCD_RUN = {"before_exec", "command", "release", "analysing", "analysing_last", "extra"}
PARSED = {"selector", "probes"}
OTHERS: dict[str, Any] = {
    "frequency": 100, "duration": 3.5, "children": False, "waits": False, "threshold_ns": 7,
    "overhead": 0.25, "io": True, "memory": True, "events": parse_events("page-faults", 997),
    "loader": "bcc",
}  # fmt: skip
SELECTOR = Selector(pids=(os.getpid(),))


def served(options: Options) -> Options:
    """Return the options that the service reads from root's request for ``options``."""
    control = Control(Configuration(), *[None] * 4)  # type: ignore[arg-type]
    request = json.loads(encoded(request_of(options)))
    return control._options(request, Permission(Peer(os.getpid(), 0, 0, ()), "hpcd"))


def test_every_option_is_accounted_for() -> None:
    names = {field.name for field in dataclasses.fields(Options)}
    parts = [set(REQUESTED), set(REFUSED), OF_THE_SERVICE, OF_HPCD_RUN, PARSED]
    assert names == set().union(*parts) and len(names) == sum(map(len, parts))
    assert OTHERS.keys() == {*REQUESTED, *REFUSED}


@pytest.mark.parametrize("name", REQUESTED)
def test_options_that_are_requested_arrive(name: str) -> None:
    usual = Options(SELECTOR, Path("/"))
    assert getattr(usual, name) != OTHERS[name]
    for options in (usual, dataclasses.replace(usual, **{name: OTHERS[name]})):
        arrived = served(options)
        assert [getattr(arrived, one) for one in REQUESTED] == [
            getattr(options, one) for one in REQUESTED
        ]


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused_in_a_line(name: str) -> None:
    options = dataclasses.replace(Options(SELECTOR, Path("/")), **{name: OTHERS[name]})
    with pytest.raises(UsageError, match=f"does not take {REFUSED[name]}; record as root"):
        request_of(options)


def test_processes_and_probes_arrive() -> None:
    probes = ProbeRequest.of([], [], mpi=True, heap=True)
    arrived = served(Options(SELECTOR, Path("/"), probes=probes))
    assert (arrived.selector, arrived.probes) == (SELECTOR, probes)
