"""Import matplotlib, before any other module of this package does.

While it is imported, matplotlib reads a ``matplotlibrc`` of the current directory, which may be
another user's and never end (a named pipe); the user's own is read as ever.
"""

from __future__ import annotations

from hpcd.isolation import in_root_directory

with in_root_directory():
    import matplotlib as matplotlib
