"""The recorder: it attaches to targets and writes what they do to a measurement.

- ``targets``: which processes, and the events attached to their threads;
- ``naming``: load modules, kernel symbols, code made at run time;
- ``unwind``: tables that say how to step out of any instruction of a module;
- ``capture``: from the kernel's ring buffers to the measurement
  (:class:`capture.recording.Recording`);
- ``service``: recordings for many users, on request and all the time.
"""
