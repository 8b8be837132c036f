"""The page's files, answered from memory.

The page is some seventy small modules, which import one another: asked for one after the other, as
a browser finds the imports, they took half a second, more than the first picture. So the page names
all of them at its beginning, and none is read from the disk for a request.
"""

from __future__ import annotations

import mimetypes
from pathlib import Path

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

_INDEX = "index.html"
_HEAD = "</head>"


class PageFiles:
    """ASGI application that answers with the files below ``folder``; ``/`` is ``index.html``."""

    def __init__(self, folder: Path) -> None:
        """Read them, together half a megabyte."""
        self._answers: dict[str, Response] = {}
        modules = []
        for path in sorted(folder.rglob("*")):
            if not path.is_file():
                continue
            name = path.relative_to(folder).as_posix()
            kind = "text/javascript" if path.suffix == ".js" else mimetypes.guess_type(name)[0]
            self._answers[f"/{name}"] = Response(path.read_bytes(), media_type=kind)
            if path.suffix == ".js":
                modules.append(f'<link rel="modulepreload" href="{name}">\n')
        index = (folder / _INDEX).read_text().replace(_HEAD, "".join(modules) + _HEAD)
        self._answers["/"] = self._answers[f"/{_INDEX}"] = Response(index, media_type="text/html")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        answer = self._answers.get(scope["path"])
        if answer is None:
            answer = PlainTextResponse("Not Found", 404)
        elif scope["method"] not in ("GET", "HEAD"):
            answer = PlainTextResponse("Method Not Allowed", 405)
        await answer(scope, receive, send)
