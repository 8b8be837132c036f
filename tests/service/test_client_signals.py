"""Clients of the service that are told to end, or not."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.service.conftest import RunningService
from tests.support.signals import IGNORING, ignored_signals

pytestmark = pytest.mark.root

Start = Callable[..., RunningService]


def test_a_service_leaves_ctrl_c_ignored(service: Start) -> None:
    running = service(before=IGNORING)
    assert ignored_signals(running.process.pid) == {signal.SIGINT}
    assert running.end() == 0
