"""installed.py [EXTRA...]: are hpcd and all it requires, with these extras, in this environment?

Exit code 0 when they are; else 1, silently: whoever asks is about to install them.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, distribution, requires


def main(extras: list[str]) -> int:
    """The exit code."""
    try:
        for requirement in requires("hpcd") or []:
            name, _, marker = requirement.partition(";")
            extra = re.search(r"extra == ['\"](\w+)['\"]", marker)
            if extra is None or extra[1] in extras:
                distribution(re.split(r"[\s<>=!~\[]", name.strip(), maxsplit=1)[0])
    except PackageNotFoundError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
