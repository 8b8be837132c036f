"""The rules of a module, and their numbers."""

from __future__ import annotations

import numpy as np

from hpcd.bpf.wire import MAX_RULES, CfaKind
from hpcd.daemon.unwind.unwind_rules import RuleSet, rule


def test_rules_are_named_by_as_many_bits_as_rows_have() -> None:
    """A row is rule << 16 | pc within its page."""
    assert np.iinfo(np.uint16).max == MAX_RULES - 1


def test_a_module_with_too_many_rules_has_unsupported_ones_but_no_impossible_numbers() -> None:
    rules = RuleSet()
    numbers = [rules.number(rule(CfaKind.SP, offset)) for offset in range(MAX_RULES + 2)]
    most = MAX_RULES - 1
    assert numbers[: most - 1] == list(range(most - 1))
    assert set(numbers[most - 1 :]) == {most - 1}
    assert len(rules.array()) == most
    assert rules.array()[-1]["cfa_kind"] == CfaKind.UNSUPPORTED
