"""Pictures for files, with axis, names and legend, as ``hpcd render`` draws them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from threading import Lock

from hpcd.errors import UsageError
from hpcd.viewer.palette import parse_patterns
from hpcd.viewer.server.open_database import OpenDatabase
from hpcd.viewer.server.query_params import QueryParameters

MEDIA_TYPES = {"png": "image/png", "svg": "image/svg+xml"}
_LARGEST = 4000  # pixels each way: more takes a browser's user seconds
_LONGEST_PATTERNS = 4000
# Settings of the library that draws are the process's.
_DRAWING = Lock()


def rendered_trace(database: OpenDatabase, parameters: QueryParameters) -> tuple[bytes, str]:
    """The trace view of the requested rows and time as a file's bytes, and its media type."""
    format_ = parameters.text("format")
    if format_ not in MEDIA_TYPES:
        raise UsageError(f"no format {format_}; there are {', '.join(MEDIA_TYPES)}")
    start, end = parameters.interval()
    lines = database.own_rows(parameters)
    width, height = (parameters.whole(name, 320, _LARGEST) for name in ("w", "h"))
    depth = parameters.whole("depth", 0, 1 << 20)
    patterns = parse_patterns(parameters.text("patterns", longest=_LONGEST_PATTERNS).split("\n"))
    with _DRAWING, tempfile.TemporaryDirectory(prefix="hpcd-render-") as folder:
        # Loading the library takes longer than a page's first picture.
        from hpcd.viewer.pictures import PictureView, draw

        path = Path(folder) / f"trace.{format_}"
        view = PictureView(
            width=width, height=height, depth=depth, start=start, end=end, lines=lines.tolist(),
            share=True, colours=patterns, dark=parameters.has("dark"),
            critical_path=parameters.has("critical"),
        )  # fmt: skip
        draw(database.db, path, view)
        return path.read_bytes(), MEDIA_TYPES[format_]
