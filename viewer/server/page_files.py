"""The page's files, answered from memory: its modules as one script, for a browser requests each
file by itself (see :mod:`hpcd.viewer.server.page_script`)."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from hpcd.viewer.server.page_script import page_script

_INDEX = "index.html"
# The module that puts the page together, answered as the script that it and all others are.
_FIRST = "core/app.js"


class PageFiles:
    """ASGI application that answers with the files below ``folder``; ``/`` is ``index.html``."""

    def __init__(self, folder: Path) -> None:
        """Read them, together half a megabyte."""
        self._answers: dict[str, Response] = {}
        modules = {}
        for path in sorted(folder.rglob("*")):
            if not path.is_file():
                continue
            name = path.relative_to(folder).as_posix()
            kind = "text/javascript" if path.suffix == ".js" else mimetypes.guess_type(name)[0]
            self._answers[f"/{name}"] = Response(path.read_bytes(), media_type=kind)
            if path.suffix == ".js":
                modules[name] = path.read_text()
        self._answers["/"] = self._answers[f"/{_INDEX}"]
        script = page_script(modules, _FIRST)
        self._answers[f"/{_FIRST}"] = Response(script, media_type="text/javascript")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        answer = self._answers.get(scope["path"])
        if answer is None:
            answer = PlainTextResponse("Not Found", 404)
        elif scope["method"] not in ("GET", "HEAD"):
            answer = PlainTextResponse("Method Not Allowed", 405)
        await answer(scope, receive, send)
