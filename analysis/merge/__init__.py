"""Measurements into a database: :func:`hpcd.analysis.merge.stages.merge`.

Ingest makes parts of batches of measurements; the parts' trees are united into one canonical
calling context tree; metrics, trace lines and names are translated to it and written. ``stages``
calls the others in turn. The formats of parts and databases are described by the packages that
read them.
"""
