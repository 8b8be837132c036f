"""Retention of the store, whatever users do with their measurements."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcd.daemon.service import retention
from hpcd.daemon.service.retention import Kept, Ledger, Trash, surplus, usage

ALICE, MALLORY = 4001, 4002
MB = 1 << 20
NOW = 1_000_000.0


def measurement(store: Path, uid: int, name: str, size: int = 4096) -> Path:
    path = store / str(uid) / name
    path.mkdir(parents=True)
    (path / "segment-000000.hpcd").write_bytes(b"x" * size)
    return path


def noted(paths: list[Path], ages: list[float]) -> list[Kept]:
    kept = [
        Kept(path, int(path.parent.name), NOW - age) for path, age in zip(paths, ages, strict=True)
    ]
    return sorted(kept, key=lambda entry: entry.ended)


def removed(kept: list[Kept], *, quota: int = 1 << 40, user_quota: int = 1 << 40,
            seconds: float = 1e6, busy: frozenset[Path] = frozenset()) -> list[Path]:  # fmt: skip
    removal = surplus(kept, busy, NOW, seconds, quota, user_quota)
    return [entry.path for entry in removal.measurements]


def empty(trash: Trash, store: Path) -> int:
    """Rounds it takes until nothing is left."""
    rounds = 0
    while list((store / ".removing").iterdir()):
        trash.empty()
        rounds += 1
    return rounds


def test_the_oldest_go_first_and_what_is_being_written_stays(tmp_path: Path) -> None:
    paths = [measurement(tmp_path, 0, f"m{number}", MB) for number in range(4)]
    kept = noted(paths, [500, 400, 300, 200])
    size = usage(paths[0])[0]
    assert removed(kept) == []
    assert set(removed(kept, seconds=350)) == set(paths[:2])
    assert removed(kept, quota=2 * size) == paths[:2]
    assert removed(kept, seconds=350, busy=frozenset(paths[:1])) == paths[1:2]


def test_what_is_no_measurement_is_left_alone(tmp_path: Path) -> None:
    directory = measurement(tmp_path, ALICE, "20260101-000000")
    put = measurement(tmp_path, 0, "by hand")
    (tmp_path / "0" / "notes").mkdir()
    measurement(tmp_path, ALICE, "x").rename(tmp_path / "backup")
    (tmp_path / "file").touch()
    # Its user may take away what is in it, and it is one still.
    (directory / "segment-000000.hpcd").unlink()
    assert {entry.path for entry in Ledger(tmp_path).note((), NOW)} == {directory, put}


def test_sizes_and_times_that_users_set_mean_nothing(tmp_path: Path) -> None:
    honest = measurement(tmp_path, ALICE, "20260101-000000", MB)
    hostile = measurement(tmp_path, MALLORY, "20260101-000000")
    with (hostile / "segment-000001.hpcd").open("wb") as file:
        file.truncate(1 << 40)
    os.utime(hostile / "segment-000000.hpcd", (4e9, 4e9))
    os.utime(honest / "segment-000000.hpcd", (1, 1))
    ledger = Ledger(tmp_path)
    ledger.note((), NOW - 10)
    kept = ledger.note((), NOW)
    assert {entry.ended for entry in kept} == {NOW - 10}
    assert removed(kept, quota=1 << 30, user_quota=1 << 30, seconds=60) == []


def test_who_takes_too_much_pays_for_it_alone(tmp_path: Path) -> None:
    honest = measurement(tmp_path, ALICE, "20250101-000000", MB)
    hostile = [measurement(tmp_path, MALLORY, f"2026010{day}-000000", 4 * MB) for day in (1, 2, 3)]
    kept = noted([honest, *hostile], [900, 300, 200, 100])
    # The honest one is the oldest of all.
    assert set(removed(kept, quota=10 * MB)) == {hostile[0]}
    assert set(removed(kept, user_quota=5 * MB)) == set(hostile[:2])
    # Nothing of it may go: nothing else goes in its place, and the recordings end.
    removal = surplus(kept, frozenset(hostile), NOW, 1e6, 10 * MB, 5 * MB)
    assert removal.measurements == [] and removal.users == {MALLORY}


def test_many_files_cost_their_user_and_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MOST_ENTRIES", 100)
    honest = measurement(tmp_path, ALICE, "20250101-000000")
    hostile = measurement(tmp_path, MALLORY, "20260101-000000")
    for number in range(200):
        (hostile / f"{number}").touch()
    assert usage(hostile, 50)[1:] == (50, False)
    assert removed(noted([honest, hostile], [900, 100])) == [hostile]


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_directories_however_deep_are_removed(tmp_path: Path, few_descriptors: None) -> None:
    hostile = measurement(tmp_path, MALLORY, "20260101-000000")
    fd = os.open(hostile, os.O_RDONLY)
    for _ in range(2_000):  # longer than a path may be, too
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    assert not usage(hostile)[2]
    trash = Trash(tmp_path)
    trash.put(hostile)
    assert not hostile.exists()
    assert empty(trash, tmp_path) <= 2


def test_each_round_of_removing_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_REMOVED_AT_ONCE", 50)
    hostile = measurement(tmp_path, MALLORY, "20260101-000000")
    for number in range(200):
        (hostile / f"{number}").touch()
    trash = Trash(tmp_path)
    trash.put(hostile)
    assert empty(trash, tmp_path) >= 4


def test_links_in_a_measurement_are_removed_and_not_followed(tmp_path: Path) -> None:
    hostile = measurement(tmp_path, MALLORY, "20260101-000000")
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "data").write_bytes(bytes(MB))
    (hostile / "link").symlink_to(outside)
    (hostile / "segment-000001.hpcd").symlink_to("/dev/zero")
    os.mkfifo(hostile / "segment-000002.hpcd")
    assert usage(hostile)[0] < MB
    trash = Trash(tmp_path)
    trash.put(hostile)
    empty(trash, tmp_path)
    assert (outside / "data").exists()


def test_the_ledger_outlasts_the_service_and_its_own_loss(tmp_path: Path) -> None:
    path = measurement(tmp_path, ALICE, "20260101-000000")
    ledger = Ledger(tmp_path)
    ledger.note({path}, NOW)
    ledger.note((), NOW + 5)
    assert (tmp_path / ".ledger").stat().st_mode & 0o777 == 0o600
    assert [entry.ended for entry in Ledger(tmp_path).note((), NOW + 50)] == [NOW + 5]
    (tmp_path / ".ledger").write_text('{"ended": {"x": []}}')
    assert [entry.ended for entry in Ledger(tmp_path).note((), NOW + 90)] == [NOW + 90]


def test_a_measurement_that_goes_while_it_is_looked_at(tmp_path: Path) -> None:
    path = measurement(tmp_path, MALLORY, "20260101-000000")
    kept = Ledger(tmp_path).note((), NOW - 1)
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    assert removed(kept) == [] and usage(path) == (0, 0, True)
