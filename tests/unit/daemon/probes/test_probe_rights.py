"""A user's rights to probe: readable files only, and limits on everything."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import pytest

from hpcd.daemon.probes import probe_rights
from hpcd.daemon.probes.probe_request import ProbeRequest
from hpcd.daemon.probes.probe_rights import ProbeRights
from hpcd.errors import NotFoundError, UsageError
from hpcd.option_schema import build

ALICE, GROUP = 48_001, 48_009


@pytest.mark.root
@pytest.mark.parametrize(
    ("mode", "owner", "group", "readable"),
    [
        (0o755, 0, 0, True),
        (0o700, 0, 0, False),
        (0o711, 0, 0, False),
        (0o700, ALICE, 0, True),
        (0o750, 0, GROUP, True),
        (0o750, 0, GROUP + 1, False),
        (0o007, 0, GROUP, False),  # the group's bits are its own
    ],
)
def test_a_file_is_readable_with_the_users_rights(
    tmp_path: Path, mode: int, owner: int, group: int, readable: bool
) -> None:
    path = tmp_path / "library.so"
    path.touch()
    os.chown(path, owner, group)
    path.chmod(mode)
    with path.open("rb") as file:
        rights = ProbeRights(ALICE, (ALICE, GROUP), 4)
        assert rights.may_read(file.fileno()) is readable
    assert os.geteuid() == 0
    assert path.open("rb").read() == b""  # this thread has its rights


def test_reading_and_attaching_take_no_longer_than_they_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(probe_rights.time, "monotonic", lambda: now[0])
    rights = ProbeRights(ALICE, (ALICE,), 4, _since=now[0])
    assert rights.spend_reading(59.0)
    assert not rights.spend_reading(2.0)
    rights.spend_attaching(1.9)
    assert rights.may_attach
    rights.spend_attaching(0.2)
    assert not rights.may_attach
    now[0] += 10.0
    assert rights.may_attach


def test_a_request_has_the_contents_of_its_files(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('library = "libm"\n[[probe]]\nfunction = "cos"\n')
    words = Namespace(probe=["libc:puts"], probes=[str(own), "threads"])
    asked = build(ProbeRequest, lambda option: option.parsed(words))
    own.unlink()
    specs = asked.specs()
    assert [spec.function for spec in specs[:2]] == ["puts", "cos"]
    assert len(specs) > 5
    assert not ProbeRequest()
    assert len(ProbeRequest(mpi=True).specs()) > 80
    with pytest.raises(NotFoundError):
        build(ProbeRequest, lambda option: option.parsed(words))
    with pytest.raises(UsageError, match=r"own\.toml"):
        ProbeRequest(files=((str(own), "x = ["),)).specs()
