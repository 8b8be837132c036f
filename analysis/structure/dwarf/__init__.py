"""What debug information says: compile units, line tables, inlined calls.

``debug_scopes`` is what the rest of :mod:`hpcd.analysis.structure` asks.
"""
