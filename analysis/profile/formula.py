"""Metrics derived by a formula: ``waste = cpu_time - instructions / 4e9``.

The text is parsed by Python's own parser and evaluated over whole columns by a walk that knows
numbers, metrics, ``+ - * /``, and a few functions: nothing else is reachable from it.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from hpcd.array_types import F64
from hpcd.errors import UsageError

# A formula is typed by hand; beyond this it is a mistake, or an attack on the parser.
_MAX_TEXT = 1000
_MAX_DEPTH = 50
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
}
_SIGNS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "abs": (1, np.abs),
    "sqrt": (1, np.sqrt),
    "min": (2, np.minimum),
    "max": (2, np.maximum),
}
_CONSTANT, _ADDITIVE, _OTHER = 0, 1, 2


@dataclass(frozen=True)
class Formula:
    """A derived metric.

    ``additive``: the cost of a whole is the sum of its parts', as of measured metrics; ratios are
    not. ``unit`` is that of the metrics in it where they agree, and empty otherwise.
    """

    name: str
    text: str
    additive: bool
    unit: str
    _tree: ast.expr
    _metrics: Mapping[str, int]

    def evaluate(self, values: F64) -> F64:
        """``float64[n]`` from ``float64[metrics, n]``; 0 where it is not a finite number."""
        with np.errstate(all="ignore"):
            result = np.asarray(self._value(self._tree, values), np.float64)
        whole = np.broadcast_to(result, values.shape[1:])
        finite: F64 = np.where(np.isfinite(whole), whole, 0.0)
        return finite

    def as_json(self) -> dict[str, object]:
        """Return the formula for an evaluator elsewhere.

        ``tree`` is a number, a metric's number as ``["metric", n]``, or a list of what to do
        (``+ - * /``, ``negate`` or a function) and with what.
        """
        return {
            "name": self.name,
            "unit": self.unit,
            "additive": self.additive,
            "tree": self._as_json(self._tree),
        }

    def _as_json(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return float(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            return ["metric", self._metrics[node.id]]
        if isinstance(node, ast.UnaryOp):
            value = self._as_json(node.operand)
            return ["negate", value] if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.BinOp):
            sign = _SIGNS[type(node.op)]
            return [sign, self._as_json(node.left), self._as_json(node.right)]
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        return [node.func.id, *(self._as_json(arg) for arg in node.args)]

    def _value(self, node: ast.expr, values: F64) -> Any:
        if isinstance(node, ast.Constant):
            return np.float64(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            return values[self._metrics[node.id]]
        if isinstance(node, ast.UnaryOp):
            value = self._value(node.operand, values)
            return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.BinOp):
            operator = _OPERATORS[type(node.op)]
            return operator(self._value(node.left, values), self._value(node.right, values))
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        return _FUNCTIONS[node.func.id][1](*(self._value(arg, values) for arg in node.args))


def is_formula(text: str) -> bool:
    """Whether ``text`` is a formula and not a metric's name."""
    return "=" in text


def parse_formula(text: str, names: Sequence[str], units: Sequence[str]) -> Formula:
    """``NAME = EXPRESSION`` over the metrics ``names`` with their ``units``.

    In formulas ``cache-misses`` is written ``cache_misses``. Raises :class:`UsageError`.
    """
    name, _, expression = text.partition("=")
    name = name.strip()
    if not _NAME.fullmatch(name):
        raise UsageError(f"{text}: a formula is NAME = EXPRESSION")
    if name in names:
        raise UsageError(f"{text}: there is a metric {name} already")
    if len(text) > _MAX_TEXT:
        raise UsageError(f"{name}: formula is too long")
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(f"{text}: not a formula") from None
    metrics = {identifier(metric): number for number, metric in enumerate(names)}
    used: set[str] = set()
    kind = _check(tree, metrics, used, 0)
    if not used:
        raise UsageError(f"{text}: names no metric; there are {', '.join(metrics)}")
    different = {units[metrics[metric]] for metric in used}
    unit = different.pop() if kind == _ADDITIVE and len(different) == 1 else ""
    return Formula(name, text, kind == _ADDITIVE, unit, tree, metrics)


def identifier(metric: str) -> str:
    """A metric's name as formulas have it."""
    return re.sub(r"\W", "_", metric)


def _check(node: ast.expr, metrics: Mapping[str, int], used: set[str], depth: int) -> int:
    """Return the kind of an expression's value; the metrics it names are added to ``used``.

    Raises :class:`UsageError` for what it may not hold.
    """
    if depth > _MAX_DEPTH:
        raise UsageError("formula is nested too deeply")
    if isinstance(node, ast.Constant):
        if type(node.value) not in (int, float) or not _finite(node.value):
            raise UsageError(f"{ast.unparse(node)[:40]}: not a number a formula may have")
        return _CONSTANT
    if isinstance(node, ast.Name):
        if node.id not in metrics:
            raise UsageError(f"no metric {node.id}; there are {', '.join(metrics)}")
        used.add(node.id)
        return _ADDITIVE
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return _check(node.operand, metrics, used, depth + 1)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left = _check(node.left, metrics, used, depth + 1)
        right = _check(node.right, metrics, used, depth + 1)
        return _kind_of_operation(node.op, left, right)
    if _is_known_call(node):
        kinds = [_check(argument, metrics, used, depth + 1) for argument in node.args]
        return _CONSTANT if set(kinds) == {_CONSTANT} else _OTHER
    raise UsageError(
        f"a formula has numbers, metrics, + - * / and {', '.join(_FUNCTIONS)}, "
        f"not {ast.unparse(node)[:40]}"
    )


def _kind_of_operation(operator: ast.operator, left: int, right: int) -> int:
    """The kind of ``left operator right``, of their kinds."""
    if isinstance(operator, ast.Add | ast.Sub):
        return left if left == right else _OTHER
    if isinstance(operator, ast.Div):
        return left if right == _CONSTANT else _OTHER
    return left + right if _CONSTANT in (left, right) else _OTHER


def _is_known_call(node: ast.expr) -> TypeGuard[ast.Call]:
    """Whether ``node`` calls a function formulas have, with as many arguments as it takes."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
        return False
    arguments, _ = _FUNCTIONS.get(node.func.id, (-1, None))
    return arguments == len(node.args)


def _finite(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
