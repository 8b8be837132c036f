"""From ring buffers to a measurement.

:class:`recording.Recording` runs one recording from attach to close. It makes a
:class:`session.Session`, whose loop has the :class:`collector.Collector` empty the rings:

- ``thread_lifecycle``: trace lines of threads, events of processes;
- ``cpu_account``: CPU time of threads, and which part of their processes was seen;
- ``stack_resolver`` and ``cct_builder``: from stacks to nodes of the calling context tree;
- ``thread_times``: CPU time and waits between samples;
- ``budget`` and ``token_bucket``: what recording and immediate wake-ups may cost;
- ``heap``: freed memory goes back to the system.
"""
