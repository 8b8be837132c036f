"""Roles of procedures by their names: communicates, waits, locks, is of a runtime, and so on.

``roles.toml`` is the only list of such names; everything else asks for a procedure's :class:`Role`.
"""
