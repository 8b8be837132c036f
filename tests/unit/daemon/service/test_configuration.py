"""The service's configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcd.daemon.service.configuration import (
    Configuration,
    as_toml,
    load_configuration,
    seconds_of,
    share_of,
    size_of,
)
from hpcd.errors import NotFoundError, UsageError


def load(tmp_path: Path, text: str) -> Configuration:
    path = tmp_path / "hpcd.toml"
    path.write_text(text)
    return load_configuration(path)


def test_what_is_printed_is_what_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, as_toml(Configuration())) == Configuration()
    assert load(tmp_path, "") == Configuration()
    changed = load(tmp_path, '[monitor]\nenabled = true\nusers = ["ada"]\nrotate = "10min"\n')
    assert changed.monitor.users == ["ada"]
    assert load(tmp_path, as_toml(changed)) == changed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[stor]\n", "unknown key stor; did you mean store?"),
        ("[store]\nkept = 3\n", "unknown key store.kept; did you mean store.keep?"),
        ("[store]\nxyz = 3\n", "unknown key store.xyz"),
        ("store = 3\n", "store is a table"),
        ("[store]\nkeep = 14\n", "store.keep must be text"),
        ('[store]\nkeep = "soon"\n', "store.keep: 'soon' is no time"),
        ('[store]\nquota = "much"\n', "no size"),
        ('[monitor]\noverhead = "0%"\n', "no share"),
        ("[monitor]\nenabled = 1\n", "monitor.enabled must be true or false"),
        ("[monitor]\nusers = [1]\n", "monitor.users must be texts"),
        ("[monitor]\nfrequency = true\n", "monitor.frequency must be a whole number"),
        ("[monitor]\nfrequency = 0\n", "at least 1"),
        ("[store\n", "hpcd.toml"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        load(tmp_path, text)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        load_configuration(tmp_path / "none")


def test_units() -> None:
    assert (size_of("20G"), size_of("1.5 MB"), size_of("7")) == (20 * 10**9, 1_500_000, 7)
    assert (seconds_of("90s"), seconds_of("2h"), seconds_of("0.5d")) == (90, 7200, 43200)
    assert share_of("1%") == 0.01
