"""Debug information: compile units, line tables, inlined calls.

The rest of :mod:`hpcd.analysis.structure` uses ``debug_scopes``.
"""
