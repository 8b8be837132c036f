"""Parse the documents that the ranks of a parallel program print."""

from __future__ import annotations

import json
import re
from typing import Any


def documents(text: str) -> list[dict[str, Any]]:
    """The JSON objects in a program's output, none of which has another in it.

    Wherever they are on a line: a launcher passes on what its ranks print as it comes, so two may
    share one, and what libraries warn of may stand before them.
    """
    return [json.loads(document) for document in re.findall(r"\{[^{}]*\}", text)]
