"""Prints the line tables of modules' code objects and what this interpreter says of their lines:
(table, first line, [(begin, end, line)]), in bytes of code."""

import dis
import importlib.util
import inspect
import sys


def nested(code):
    yield code
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from nested(constant)


def rows(code):
    if hasattr(code, "co_lines"):
        return list(code.co_lines())
    starts = [*dis.findlinestarts(code), (len(code.co_code), None)]
    ends = [begin for begin, _ in starts[1:]]
    return [(begin, end, line) for end, (begin, line) in zip(ends, starts)]  # noqa: B905 (3.9)


for module in sys.argv[1:]:
    for code in nested(importlib.util.find_spec(module).loader.get_code(module)):
        table = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
        print(repr((table, code.co_firstlineno, rows(code))))
