"""Titles of processes in rows."""

from __future__ import annotations

import pytest

from hpcd.analysis.trace.process_titles import command_words, process_title


@pytest.mark.parametrize(
    ("name", "executable", "words", "title"),
    [
        ("nginx", "/usr/sbin/nginx", ["nginx: worker process"], "nginx: worker process"),
        ("nginx", "/usr/sbin/nginx", ["nginx: master process /usr/sbin/nginx -g daemon off;"],
         "nginx: master process /usr/sbin/nginx -…"),
        ("postgres", "/usr/lib/postgresql/15/bin/postgres", ["postgres: walwriter "],
         "postgres: walwriter"),
        ("prog", "/opt/my tools/prog", ["/opt/my tools/prog", "-v"], "prog"),
        ("cc1", "/usr/lib/gcc/cc1", ["/usr/lib/gcc/cc1", "-quiet", "src/a.c", "-o", "/tmp/b.s"],
         "cc1 a.c"),
        ("gcc", "/usr/bin/gcc-12", ["gcc", "-c", "a.c", "-o", "a.o"], "gcc a.c"),
        ("as", "/usr/bin/x86_64-linux-gnu-as", ["as", "--64", "-o", "out/a.o", "/tmp/b.s"],
         "as a.o"),
        ("collect2", "/usr/lib/gcc/collect2", ["collect2", "-o", "prog", "a.o"], "collect2 prog"),
        ("as", "/usr/bin/as", ["as", "-o"], "as"),
        ("sort", "/usr/bin/sort", ["sort", "-o", "out", "in"], "sort"),
        ("python3", "/usr/bin/python3", ["python3", "train.py"], "python3"),
        ("kworker", "", [], "kworker"),
        ("a-solver-of-equ", "/opt/a-solver-of-equations", ["solve"], "a-solver-of-equations"),
        ("nightly-backup-", "/usr/bin/bash", ["/bin/bash", "/opt/nightly-backup-job.sh"],
         "nightly-backup-job.sh"),
        ("named-otherwise", "/opt/a-solver-of-equations", ["solve"], "named-otherwise"),
    ],
)  # fmt: skip
def test_a_process_is_called_by_its_title_or_its_source_file(
    name: str, executable: str, words: list[str], title: str
) -> None:
    assert process_title(name, executable, words) == title


@pytest.mark.parametrize("text", [None, "", "{", '"a"', "3", "[[]]", "null"])
def test_a_command_line_that_is_none_has_few_words(text: str | None) -> None:
    assert all(isinstance(word, str) for word in command_words(text))
