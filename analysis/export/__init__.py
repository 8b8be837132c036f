"""Databases in the formats of other tools: ``hpcd export``.

:mod:`.formats` lists the formats and writes one. Each has a module with a function ``write``, which
reads a :class:`export_selection.Selection`: the calling contexts as a table
(:mod:`.context_table`), what they cost on each trace line, and the trace, line by line in blocks,
so that memory depends on the calling context tree and the number of lines, never on the length of
the trace.
"""
