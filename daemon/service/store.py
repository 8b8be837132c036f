"""The service's store: a folder of each user, in it that user's measurements."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

from hpcd.errors import StorageError


def make_measurement(store: Path, uid: int, gid: int) -> Path:
    """A new directory of ``uid`` in the store, which is root's down to there."""
    user = store / str(uid)
    try:
        # The name of a measurement may be known, its contents not: others may pass, not list.
        # The service's own mask may be stricter than what its users need.
        with contextlib.suppress(FileExistsError):
            user.mkdir(mode=0o711)
        if stat.S_IMODE(user.lstat().st_mode) & 0o011 != 0o011:
            user.chmod(0o711)
        folder = user / time.strftime("%Y%m%d-%H%M%S")
        for number in range(1, 1000):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                folder.chmod(0o700)
                os.chown(folder, uid, gid)
                return folder
            folder = user / f"{time.strftime('%Y%m%d-%H%M%S')}-{number}"
    except OSError as error:
        raise StorageError(f"cannot make a measurement in {store}: {error.strerror}") from None
    raise StorageError(f"cannot make a measurement in {store}")
