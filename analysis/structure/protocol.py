"""What :mod:`reader` and :mod:`worker` say to each other.

A request is a file's descriptor with the lengths of what follows, JSON and arrays. A reply is a
status byte, the length of what follows, and that: arrays, or why there are none.
"""

from __future__ import annotations

import struct

REPLY = struct.Struct("<BQ")
REQUEST = struct.Struct("<IQ")
OK, FAILED = 0, 1
