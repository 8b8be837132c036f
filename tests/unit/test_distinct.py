"""Distinct values, compared with numpy's own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpcd.distinct import are_among, distinct

NUMBERS = st.lists(st.integers(0, 9), max_size=12)


@given(NUMBERS, NUMBERS)
def test_values_are_those_of_numpy(values: list[int], among: list[int]) -> None:
    array, ordered = np.array(values, np.uint32), distinct(np.array(among, np.uint32))
    assert distinct(array).tolist() == np.unique(array).tolist()
    assert are_among(array, ordered).tolist() == np.isin(array, ordered).tolist()


def test_masked_arrays_are_not_imported() -> None:
    script = (
        "import sys, numpy\nfrom hpcd.distinct import are_among, distinct\n"
        "are_among(numpy.arange(3), distinct(numpy.arange(3)))\n"
        "sys.exit('numpy.ma' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
