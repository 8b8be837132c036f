"""The process that looks after the store.

Users may put any number of entries into their measurements: whoever walks them holds a Python
interpreter for seconds, and whoever answers requests would wait for it again and again.

Started by :class:`hpcd.daemon.service.store_keeper.StoreKeeper` with the store as its argument. A
line of JSON on its standard input is a look: ``{"now": SECONDS, "busy": [PATH], "keep": SECONDS,
"quota": BYTES, "user_quota": BYTES}``; see :func:`hpcd.daemon.service.retention.surplus`. It is
answered by one, ``{"removed": [[PATH, UID]], "stuck": [[PATH, WHY]], "users": [UID]}``: what was
removed or could not be, and whose recordings alone take too much. What was removed is emptied
between looks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from hpcd.daemon.service.retention import Ledger, Trash, surplus


def main() -> int:
    """Look when told to, until standard input ends."""
    store = Path(sys.argv[1])
    ledger, trash = Ledger(store), Trash(store)
    for line in sys.stdin:
        print(json.dumps(look(ledger, trash, json.loads(line))), flush=True)
        trash.empty()
    return 0


def look(ledger: Ledger, trash: Trash, asked: dict[str, Any]) -> dict[str, Any]:
    """Look at the store once; return the answer."""
    busy = {Path(path) for path in asked["busy"]}
    now = asked["now"]
    selected = surplus(
        ledger.note(busy, now), busy, now, asked["keep"], asked["quota"], asked["user_quota"]
    )
    removed, stuck = [], []
    for measurement in selected.measurements:
        try:
            trash.put(measurement.path)
        except OSError as error:
            stuck.append([str(measurement.path), error.strerror])
        else:
            removed.append([str(measurement.path), measurement.uid])
    return {"removed": removed, "stuck": stuck, "users": sorted(selected.users)}


if __name__ == "__main__":
    sys.exit(main())
