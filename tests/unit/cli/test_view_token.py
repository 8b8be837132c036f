"""``hpcd view`` opens a browser and gives its token to nobody else."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from hpcd.cli.verbs.view import _leading_to
from tests.support.call_paths import database


def test_the_file_that_leads_there_is_its_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with _leading_to('http://127.0.0.1:1/#token=secret&x="') as address:
        page = Path(unquote(urlparse(address).path))
        assert "secret" not in address
        assert page.stat().st_mode & 0o777 == 0o600
        assert page.parent.stat().st_mode & 0o777 == 0o700
        text = page.read_text()
        assert "0;url=http://127.0.0.1:1/#token=secret&amp;x=&quot;" in text
    assert not page.parent.exists()


def test_the_token_is_in_no_command_line(tmp_path: Path) -> None:
    shown = database(tmp_path, [((("main", 1), ("solve", 1)), 60)])
    browser = tmp_path / "browser"
    given = tmp_path / "given"
    os.mkfifo(given)
    browser.write_text(f'#!/bin/sh\ntr "\\0" " " </proc/$$/cmdline >{given}\n')
    browser.chmod(0o755)
    environment = {**os.environ, "BROWSER": str(browser)}
    with subprocess.Popen(
        [sys.executable, "-m", "hpcd", "view", str(shown)],
        stdout=subprocess.PIPE, text=True, env=environment,
    ) as viewer:  # fmt: skip
        assert viewer.stdout
        url = viewer.stdout.readline()
        token = re.search(r"token=([\w-]+)", url)
        assert token
        words = given.read_text()
        viewer.send_signal(signal.SIGINT)
    assert "file://" in words and token[1] not in words


def test_a_program_reads_where_a_database_is_served(tmp_path: Path) -> None:
    shown = database(tmp_path, [((("main", 1), ("solve", 1)), 60)])
    socket = tmp_path / "socket"
    command = [sys.executable, "-m", "hpcd", "view", "--json", "--listen", str(socket), str(shown)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as viewer:
        assert viewer.stdout
        served = json.loads(viewer.stdout.readline())
        viewer.send_signal(signal.SIGINT)
    assert served["databases"] == [shown.name] and served["socket"] == str(socket)
    assert re.fullmatch(r"http://127\.0\.0\.1:8000/#token=[\w-]+", served["url"])
