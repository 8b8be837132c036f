"""Command lines of processes, as people tell them apart."""

from __future__ import annotations

from pathlib import Path

import hpcd.analysis
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.profile.groups import command_lines
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.identity import Host, Process, Thread


def commands_of(folder: Path, *processes: tuple[str, tuple[str, ...]]) -> list[str]:
    """The command lines of processes, each of an executable and words, by increasing pid."""
    writer = MeasurementWriter(folder / "m", Host("h", "b", "6", "x86_64", 2), options={})
    for number, (executable, words) in enumerate(processes, start=1):
        writer.add_process(Process(number, 1, 0, "x", executable, words, 0, 0))
        writer.add_thread(Thread(number, number, number, "x", 0))
    writer.close()
    merge([folder / "m"], folder / "db", workers=1)
    with hpcd.analysis.open(folder / "db") as db:
        return command_lines(db)


def test_programs_lose_their_folders_and_titles_keep_their_words(tmp_path: Path) -> None:
    nginx = "/usr/sbin/nginx"
    assert commands_of(
        tmp_path,
        (nginx, ("nginx: master process /usr/sbin/nginx -c /tmp/nginx.conf -g user root;",)),
        (nginx, ("nginx: worker process",)),
        ("/opt/My Game (x86)/bin/game", ("/opt/My Game (x86)/bin/game", "--fast")),
        ("/usr/bin/python3.11", ("/usr/bin/python3", "a.py")),
        ("/usr/bin/postgres", ("/usr/bin/postgres: user db 127.0.0.1/32 idle",)),
    ) == [
        "nginx: master process /usr/sbin/nginx -c /tmp/nginx.conf -g user root;",
        "nginx: worker process",
        "game --fast",
        "python3 a.py",
        "postgres: user db 127.0.0.1/32 idle",
    ]
