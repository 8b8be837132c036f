"""The page's files, answered from memory, and its modules as one script.

The page is some seventy small modules, which import one another. A browser requests each by itself
and takes two milliseconds for it, its server one: together as long as the first picture. So they
are answered in one piece, each module a function that is called once, in an order in which each
finds what it imports. The text of a module stays as it is, but for its imports and exports, which
are written otherwise, and lines of comments, which are left out: more than a quarter of all.
"""

from __future__ import annotations

import mimetypes
import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from hpcd.errors import HpcdError

_INDEX = "index.html"
# The module that puts the page together, answered as the script that it and all others are.
_FIRST = "core/app.js"
# As all modules write them: what is imported is named, what is exported is declared, one a
# declaration.
_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "([^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function\*?|class|const) (\w+)", re.MULTILINE)
# Templates have no lines like these (setup/page_rules.mjs).
_COMMENT = re.compile(r"^[ \t]*(?://.*|/\*\*(?:(?!\*/)[^`])*\*/)[ \t]*\n", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


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


def page_script(modules: Mapping[str, str], first: str) -> str:
    """The script that does what the module ``first`` of ``modules``, texts by path, does when a
    browser imports it. Raises :class:`HpcdError` for a module that is written otherwise."""
    order: list[str] = []
    begun: set[str] = set()

    def add(path: str) -> None:
        if path in order:
            return
        if path in begun or path not in modules:
            raise HpcdError(f"{path}: imports itself, or is not there")
        begun.add(path)
        for imported in _IMPORT.finditer(modules[path]):
            add(_beside(path, imported[2]))
        order.append(path)

    add(first)
    exports = {path: [match[2] for match in _EXPORT.finditer(modules[path])] for path in order}
    parts = []
    for path in order:
        text = _as_function(path, modules[path], order, exports)
        if path != first:  # the last may await
            names = ", ".join(exports[path])
            text = f"const {_name(path, order)} = (() => {{\n{text}\nreturn {{ {names} }};\n}})();"
        parts.append(f"// {path}\n{text}")
    return "\n".join(parts)


def _as_function(
    path: str, text: str, order: Sequence[str], exports: Mapping[str, Sequence[str]]
) -> str:
    """The body of a function that does what the module ``path`` does, which is ``text``."""

    def imports(match: re.Match[str]) -> str:
        imported = _beside(path, match[2])
        for name in match[1].split(", "):
            if name not in exports[imported]:
                raise HpcdError(f"{path}: {imported} does not export {name} directly")
        return f"const {{ {match[1]} }} = {_name(imported, order)};"

    text = _EXPORT.sub(r"\1 \2", _IMPORT.sub(imports, _COMMENT.sub("", text)))
    other = _OTHER.search(text)
    if other:
        raise HpcdError(f"{path}: {other[0]}: cannot be joined with other modules")
    return text


def _name(path: str, order: Sequence[str]) -> str:
    return f"module{order.index(path)}"


def _beside(path: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
