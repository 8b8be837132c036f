"""Lines of instructions, compared with what this interpreter says of each of its own."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterator
from types import CodeType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.daemon.runtimes.python.line_tables import read_line_table

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


def nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from nested(constant)


@pytest.mark.parametrize("module", MODULES)
def test_every_instruction_has_the_line_the_interpreter_says(module: str) -> None:
    spec = importlib.util.find_spec(module)
    assert spec and spec.loader
    whole = spec.loader.get_code(module)  # type: ignore[attr-defined]
    checked = 0
    for code in nested(whole):
        table = read_line_table(sys.version_info[:2], code.co_linetable, code.co_firstlineno)
        for start, end, line in code.co_lines():
            for unit in range(start // 2, end // 2):
                if line is not None:
                    assert table.line(unit) == line, (code, unit)
                    checked += 1
    assert checked > 1000


def test_the_table_of_3_10() -> None:
    # def f():        # 10
    #     a = 1       # 11
    #     return a    # 13, after an instruction without a line
    table = read_line_table((3, 10), bytes([4, 1, 2, 128, 4, 2]), 10)
    assert [table.line(unit) for unit in range(5)] == [11, 11, 11, 13, 13]
    assert table.line(5) == 10


@given(
    st.sampled_from([(3, 10), (3, 11), (3, 15)]), st.binary(max_size=300), st.integers(0, 1 << 31)
)
def test_damaged_tables_have_some_line(version: tuple[int, int], data: bytes, first: int) -> None:
    table = read_line_table(version, data, first)
    for unit in (0, 1, len(data), 1 << 24):
        assert 0 <= table.line(unit) < 1 << 32
