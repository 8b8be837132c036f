"""Pushing profiles over HTTP: one measurement, at intervals, to one receiver."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from hpcd.analysis.live.label_profiles import IntervalProfiles, ProfileFollower
from hpcd.errors import HpcdError, UsageError
from hpcd.interchange.pprof.push_requests import FORMATS, Request

_TIMEOUT_SECONDS = 10.0
# Answers that mean "later" (OTLP, retryable response codes; RFC 9110).
_LATER = (408, 429, 502, 503, 504)
# Bytes of requests kept while a receiver is away; beyond it the oldest are dropped.
_MAX_WAITING = 64 << 20
_MAX_ANSWER = 1 << 16


class PushError(HpcdError):
    """A receiver did not take a profile; with ``later`` it may when it is sent again."""

    def __init__(self, message: str, *, later: bool) -> None:
        super().__init__(message)
        self.later = later


@dataclass(frozen=True)
class Receiver:
    """A receiver of profiles: ``url`` http or https; ``headers`` such as Authorization.

    Without a path in ``url`` the format's default is used. Raises UsageError.
    """

    url: str
    format: str
    headers: Mapping[str, str]

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            good = False
        if not good or parts.username is not None or parts.fragment:
            raise UsageError(f"{self.url!r} is no URL such as http://host:4318")
        if self.format not in FORMATS:
            raise UsageError(f"unknown format {self.format}; there are {', '.join(FORMATS)}")

    def requests(self, profiles: IntervalProfiles) -> list[Request]:
        """Return the requests that bring ``profiles``."""
        return FORMATS[self.format].encode(profiles)

    def send(self, request: Request) -> None:
        """Send one request. Raises PushError."""
        parts = urlsplit(self.url)
        kind = FORMATS[self.format]
        path = parts.path if parts.path not in ("", "/") else kind.path
        query = "&".join(filter(None, (parts.query, request.query)))
        headers = {**kind.headers, "User-Agent": "hpcd", **self.headers}
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                parts.netloc, timeout=_TIMEOUT_SECONDS, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(parts.netloc, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request("POST", f"{path}?{query}" if query else path, request.body, headers)
            answer = connection.getresponse()
            body = answer.read(_MAX_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            raise PushError(f"{self.url}: {error or type(error).__name__}", later=True) from None
        finally:
            connection.close()
        if answer.status >= 300:
            why = body[:200].decode("utf-8", "replace")
            raise PushError(
                f"{self.url}: {answer.status} {answer.reason} {why!r}",
                later=answer.status in _LATER,
            )


class Pusher:
    """Pushes the profiles of a growing measurement every ``interval`` seconds, until it ends.

    ``report`` is called with a line for people when things change: the receiver is away, or back,
    or refuses something.
    """

    def __init__(
        self,
        follower: ProfileFollower,
        receiver: Receiver,
        interval: float,
        report: Callable[[str], None],
    ) -> None:
        self._follower = follower
        self._receiver = receiver
        self._interval = interval
        self._report = report
        self._waiting: deque[Request] = deque()
        self._away = False
        self.sent = 0
        """Number of requests that the receiver took."""
        self.lost = 0
        """Number of requests that were refused or dropped."""

    def run(self, stop: threading.Event) -> None:
        """Push until the measurement ends or ``stop`` is set; then push the rest, once."""
        while True:
            began = time.monotonic()
            # In this order: data written between the two is still collected.
            last = stop.is_set() or self._follower.measurement.ended
            self.push()
            if last:
                self.lost += len(self._waiting)
                return
            stop.wait(max(self._interval - (time.monotonic() - began), 0.1))

    def push(self) -> None:
        """Collect and send the profiles since the last time."""
        profiles = self._follower.collect()
        if profiles is not None:
            self._waiting.extend(self._receiver.requests(profiles))
        size = sum(len(request.body) for request in self._waiting)
        while size > _MAX_WAITING:
            size -= len(self._waiting.popleft().body)
            self.lost += 1
        while self._waiting:
            try:
                self._receiver.send(self._waiting[0])
            except PushError as error:
                if error.later:
                    if not self._away:
                        self._report(f"{error}; will be tried again")
                    self._away = True
                    return
                self._report(str(error))
                self.lost += 1
            else:
                self.sent += 1
                if self._away:
                    self._report(f"{self._receiver.url}: takes profiles again")
                self._away = False
            self._waiting.popleft()
