"""What procedures do, by their names: communicate, wait, lock, begin threads, belong to a runtime.

``roles.toml`` is the only list of such names; everything else asks for a procedure's :class:`Role`.
"""
