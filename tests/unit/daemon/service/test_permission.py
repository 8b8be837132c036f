"""Visibility of recordings to a peer of the service, and the service's cost to determine it."""

from __future__ import annotations

import grp
from types import SimpleNamespace
from typing import Any

import pytest

from hpcd.daemon.service.permission import Permission
from hpcd.daemon.service.protocol import Peer

ALICE = 48_001


def test_the_groups_of_a_peer_are_looked_up_once_however_many_recordings_others_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up: list[str] = []

    def getgrnam(name: str) -> Any:
        looked_up.append(name)
        raise KeyError(name)

    monkeypatch.setattr(grp, "getgrnam", getgrnam)
    permission = Permission(Peer(1, ALICE, ALICE, ()), "hpcd")
    recordings: Any = [SimpleNamespace(uid=uid) for uid in range(48_000, 48_080)]
    assert [recording.uid for recording in recordings if permission.sees(recording)] == [ALICE]
    assert looked_up == ["hpcd"]
