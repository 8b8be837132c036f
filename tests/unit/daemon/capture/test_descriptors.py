"""Waiting for descriptors of any number."""

from __future__ import annotations

import os
import resource

from hpcd.daemon.capture.loop.descriptors import readable


def test_descriptors_above_what_select_takes() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 4096), max(limits[1], 4096)))
    reader, writer = os.pipe()
    high = 3000
    os.dup2(reader, high)
    try:
        assert readable([high], 0) == []
        os.write(writer, b"x")
        assert readable([high, reader], 5) == [high, reader]
    finally:
        for descriptor in (reader, writer, high):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
