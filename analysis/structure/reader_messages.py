"""What :mod:`reader` asks :mod:`worker` by: a file's descriptor with the lengths of what follows,
JSON and arrays, which are the answer too."""

from __future__ import annotations

import struct

REQUEST = struct.Struct("<IQ")
