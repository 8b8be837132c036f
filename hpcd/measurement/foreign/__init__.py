"""Recordings of other tools, turned into measurements. See ``docs/import.md``.

One module a format; what they have in common: every name and number in such a file is taken for
hostile, memory follows what is distinct in a file (names, call paths) and not its length, and
whatever is wrong with a file is one :class:`~hpcd.errors.FormatError`.
"""
