"""Lines of instructions, compared with what each interpreter says of its own."""

from __future__ import annotations

import ast
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.daemon.runtimes.python.line_tables import read_line_table
from tests.support.interpreters import interpreters
from tests.support.paths import ROOT

LINES = ROOT / "tests/programs/python_lines.py"

MODULES = (
    "argparse",
    "ast",
    "asyncio.tasks",
    "dataclasses",
    "_pydecimal",
    "enum",
    "logging",
    "typing",
)


@pytest.mark.parametrize("version", interpreters())
def test_every_instruction_has_the_line_the_interpreter_says(version: str) -> None:
    command = [*map(str, interpreters()[version]), str(LINES), *MODULES]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    checked = 0
    for row in printed.splitlines():
        data, first, stretches = ast.literal_eval(row)
        table = read_line_table((3, int(version[2:])), data, first)
        width = 1 if version == "3.9" else 2
        for start, end, line in stretches:
            if line is not None:
                assert {table.line(unit) for unit in range(start // width, end // width)} <= {
                    line
                }, row
                checked += (end - start) // width
    assert checked > 30_000


def test_the_table_of_3_10() -> None:
    # def f():        # 10
    #     a = 1       # 11
    #     return a    # 13, after an instruction without a line
    table = read_line_table((3, 10), bytes([4, 1, 2, 128, 4, 2]), 10)
    assert [table.line(unit) for unit in range(5)] == [11, 11, 11, 13, 13]
    assert table.line(5) == 10


@given(
    st.sampled_from([(3, 9), (3, 10), (3, 11), (3, 15)]),
    st.binary(max_size=300),
    st.integers(0, 1 << 31),
)
def test_damaged_tables_have_some_line(version: tuple[int, int], data: bytes, first: int) -> None:
    table = read_line_table(version, data, first)
    for unit in (0, 1, len(data), 1 << 24):
        assert 0 <= table.line(unit) < 1 << 32
