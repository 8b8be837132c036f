"""Trace records: how parts keep them, and how a picture of them is sampled.

A *part* has a batch of measurements: blocks of records, overviews of them, and the
measurements' metadata (:class:`part_contents.PartContents`). :class:`records.Trace` reads
records by trace line and time; :func:`pixel_samples.sample_grid` is the sampled picture, in time
independent of the trace's length. The database maps measurements to parts, and the parts'
numbers to its own.
"""
