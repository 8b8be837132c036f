"""The page's modules as one script.

The page is some seventy small modules, which import one another. A browser requests each by itself
and takes two milliseconds for it, its server one: together as long as the first picture. So they
are answered in one piece, each module a function that is called once, in an order in which each
finds what it imports. The text of a module stays as it is; only its imports and exports are
written otherwise.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence

from hpcd.errors import HpcdError

# As all modules write them: what is imported is named, what is exported is declared, one a
# declaration.
_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "([^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function\*?|class|const) (\w+)", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


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

    text = _EXPORT.sub(r"\1 \2", _IMPORT.sub(imports, text))
    other = _OTHER.search(text)
    if other:
        raise HpcdError(f"{path}: {other[0]}: cannot be joined with other modules")
    return text


def _name(path: str, order: Sequence[str]) -> str:
    return f"module{order.index(path)}"


def _beside(path: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
