"""From ring buffers to a measurement.

:class:`start.recording.Recording` runs one recording from attach to close. It makes a
:class:`loop.session.Session`, whose loop has the :class:`loop.collector.Collector` empty the rings:

- ``paths``: from stacks to nodes of the calling context tree;
- ``threads``: trace lines of threads, events of processes, CPU time and waits between samples;
- ``calls``: recorded calls;
- ``records``: records in columns, on their way to the measurement.
"""
