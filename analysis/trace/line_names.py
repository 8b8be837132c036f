"""Names of trace lines: of a few lines read when needed, of all kept as numbers of words.

A million lines are drawn without their names, and an axis shows a few dozen of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hpcd.analysis.trace.process_titles import command_words, process_title
from hpcd.array_types import U32
from hpcd.errors import FormatError

QueryRows = Callable[..., Iterator[tuple[Any, ...]]]

_HOSTS = "process JOIN host ON host.id = process.host"
_AMONG = "IN (SELECT value FROM json_each(?))"
# For more lines at once all names are read: such callers need them again.
_FEW = 10_000


class Words:
    """A column of text with few different values: ``code`` ``uint32[n]`` into ``word``."""

    def __init__(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """The first column of ``rows``; NULL is an empty word."""
        numbers: dict[str, int] = {}
        codes = (numbers.setdefault(str(row[0] or ""), len(numbers)) for row in rows)
        self.code: U32 = np.fromiter(codes, np.uint32)
        self.word = list(numbers)

    def __getitem__(self, row: int) -> str:
        return self.word[int(self.code[row])]

    def __len__(self) -> int:
        return len(self.code)


class ProcessName(NamedTuple):
    """The name of a process, its job ("" if none), its host, its title in rows."""

    process: str
    job: str
    host: str
    title: str


def _title(name: object, executable: object, command: object) -> str:
    text = command_words(command if isinstance(command, str) else None)
    return process_title(str(name or ""), str(executable or ""), text)


class LineNames:
    """Names of the processes (by row of their table) and threads (by line) of a database.

    Everything raises :class:`FormatError` if the tables are incomplete.
    """

    def __init__(self, rows: QueryRows, processes: int, lines: int) -> None:
        """``rows`` answers an SQL query with parameters; there are at least that number of both."""
        self._rows = rows
        self._counts = processes, lines
        self._all: dict[str, Words] = {}

    def processes(self, chosen: Sequence[int]) -> list[ProcessName]:
        """The names of processes ``chosen``."""
        if self._all.keys() >= {*ProcessName._fields} or len(chosen) > _FEW:
            columns = [self.column(name) for name in ProcessName._fields]
            return [ProcessName(*(column[row] for column in columns)) for row in chosen]
        query = (
            f"SELECT process.id, job, hostname, name, exe, command FROM {_HOSTS}"
            f" WHERE process.id {_AMONG}"
        )
        names = {
            row: ProcessName(str(name or ""), str(job or ""), str(host or ""), _title(name, *rest))
            for row, job, host, name, *rest in self._rows(query, json.dumps(sorted(set(chosen))))
        }
        try:
            return [names[row] for row in chosen]
        except KeyError:
            raise FormatError("a trace line's process does not exist") from None

    def threads(self, chosen: Sequence[int]) -> list[str]:
        """The names of the threads of lines ``chosen``."""
        if "thread" in self._all or len(chosen) > _FEW:
            column = self.column("thread")
            return [column[line] for line in chosen]
        query = f"SELECT trace_line, name FROM thread WHERE trace_line {_AMONG}"
        names = {line: str(name) for line, name in self._rows(query, json.dumps(list(chosen)))}
        try:
            return [names[line] for line in chosen]
        except KeyError:
            raise FormatError("threads and trace lines do not agree") from None

    def column(self, name: str) -> Words:
        """The ``process``, ``job``, ``host`` or ``title`` of all processes, the ``thread`` of all
        lines."""
        if name not in self._all:
            processes, lines = self._counts
            if name == "thread":
                words = Words(self._rows("SELECT name FROM thread ORDER BY trace_line"))
                if len(words) != lines:
                    raise FormatError("threads and trace lines do not agree")
            else:
                fields = {
                    "process": "name", "job": "job", "host": "hostname",
                    "title": "name, exe, command",
                }  # fmt: skip
                rows = self._rows(f"SELECT {fields[name]} FROM {_HOSTS} ORDER BY process.id")
                words = Words(((_title(*row),) for row in rows) if name == "title" else rows)
                if len(words) < processes:
                    raise FormatError("a trace line's process does not exist")
            self._all[name] = words
        return self._all[name]

    @cached_property
    def several_jobs(self) -> bool:
        """Whether processes belong to different jobs."""
        query = "SELECT DISTINCT job FROM process WHERE job != '' LIMIT 2"
        return len(list(self._rows(query))) > 1

    @cached_property
    def several_hosts(self) -> bool:
        """Whether they ran on different hosts."""
        return len(list(self._rows(f"SELECT DISTINCT hostname FROM {_HOSTS} LIMIT 2"))) > 1
