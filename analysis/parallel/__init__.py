"""Ranks and runs side by side: imbalance, scaling loss, comparison, phases.

``tree_matching`` aligns the trees of several databases; ``ranks`` and ``waiting`` say which trace
lines are a parallel program, and when each works or waits; the others are questions asked of these.
"""
