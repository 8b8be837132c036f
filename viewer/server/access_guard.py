"""Access to the viewer, only for the user who started it, from this machine, and no other web
page.

The page is public; all data wants the token that only the printed URL has. A page of another site
could make the browser ask, so requests must name this server as their host and, if they name one,
as their origin; nothing answers to others, and the page may load nothing from elsewhere.
"""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "x-hpcd-token"
_NAMES = ("127.0.0.1", "localhost")
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class AccessGuard:
    """ASGI middleware that answers 403 to all others.

    ``host`` is ``address:port``; without one any port of the loopback address will do, for a
    socket may be forwarded to any.
    """

    def __init__(self, app: ASGIApp, token: str, host: str) -> None:
        self._app = app
        self._token = token
        self._port = host.rpartition(":")[2]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, pass on, and add the headers that confine the page."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if self._refused(Headers(scope=scope), scope["path"]):
            answer = PlainTextResponse("refused: open the URL that hpcd view printed", 403)
            await answer(scope, receive, with_headers)
        else:
            await self._app(scope, receive, with_headers)

    def _refused(self, headers: Headers, path: str) -> bool:
        if not self._ours(headers.get("host", "")):
            return True
        origin = headers.get("origin")
        if origin is not None and not self._ours(origin.removeprefix("http://")):
            return True
        if not path.startswith("/api/"):
            return False
        given = headers.get(TOKEN_HEADER, "")
        return not hmac.compare_digest(given.encode(), self._token.encode())

    def _ours(self, host: str) -> bool:
        name, _, port = host.rpartition(":")
        return name in _NAMES and (port == self._port if self._port else port.isdigit())
