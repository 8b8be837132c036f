"""A limit on the share of a CPU that a kind of work may use."""

from __future__ import annotations

import math

# Users whose work is counted; users without recent work are forgotten first.
_COUNTED_USERS = 1_000


class TokenBucket:
    """Work may use ``share`` of a CPU in the long run.

    What was not used in the last ``saved_seconds`` may be used at once; after that each piece of
    work is followed by a delay in proportion to its cost, of at most ``max_delay`` seconds. Times
    are seconds of any clock. Example, share 1/20: after 1 ms of work with nothing saved up, the
    next may start 20 ms later.
    """

    def __init__(
        self, share: float, saved_seconds: float, now: float, max_delay: float = math.inf
    ) -> None:
        self._share = share
        self._saved_seconds = saved_seconds
        self._max_delay = max_delay
        self.next_allowed = now - saved_seconds
        """When the next piece of work may start; in the past while something is saved up."""

    def delay(self, now: float) -> float:
        """Seconds until work may start, 0 when it may start now."""
        return max(self.next_allowed - now, 0.0)

    def spend(self, now: float, cpu_seconds: float) -> None:
        """Count work that has just been done."""
        saved_since = max(self.next_allowed, now - self._saved_seconds)
        self.next_allowed = min(saved_since + cpu_seconds / self._share, now + self._max_delay)


class UserBuckets:
    """Token buckets of users, each with the share of a CPU, or of other work, that one may use."""

    def __init__(self) -> None:
        self._buckets: dict[int, TokenBucket] = {}

    def bucket(self, uid: int, share: float, saved_seconds: float, now: float) -> TokenBucket:
        """Return the bucket of user ``uid``, new with this ``share`` if none is known."""
        bucket = self._buckets.pop(uid, None) or TokenBucket(share, saved_seconds, now)
        self._buckets[uid] = bucket  # the latest last
        if len(self._buckets) > _COUNTED_USERS:
            del self._buckets[next(iter(self._buckets))]
        return bucket
