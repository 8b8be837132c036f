"""Waiting for descriptors."""

from __future__ import annotations

import math
import select
from collections.abc import Iterable


def readable(descriptors: Iterable[int], seconds: float) -> list[int]:
    """Return which of ``descriptors`` can be read, waiting at most ``seconds`` for one.

    Their numbers may be of any size: targets decide how many files a recorder has open, and
    select(2) ends at 1,023.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [fd for fd, _ in poll.poll(max(math.ceil(seconds * 1000), 0))]
