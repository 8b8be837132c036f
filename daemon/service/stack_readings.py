"""Readings of stacks that users ask the service for, and what each user may take of them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from dataclasses import asdict

from hpcd.daemon.access.token_bucket import TokenBucket, UserBuckets
from hpcd.daemon.service.configuration import ControlSettings as Limits
from hpcd.daemon.service.configuration import share_of, size_of
from hpcd.daemon.service.permission import Permission, RefusedError
from hpcd.daemon.service.protocol import MAX_ANSWER, EncodedAnswer
from hpcd.daemon.targets.selector import Selector
from hpcd.errors import HpcdError
from hpcd.startup.isolation import python_command, python_environment

# A reading that takes longer is ended; the client waits for 30 s.
_MOST_SECONDS = 25.0
# CPU time a user's readings may take at once; then they have the share that a recorder has.
_BURST_SECONDS = 10.0
# A reading that would have to wait for longer is refused.
_PATIENCE_SECONDS = 5.0
# What a reading that came to nothing counts at least: files may be analysed for it yet.
_FAILED_SECONDS = 5.0


class StackReadings:
    """Reads stacks, one reading of a user at a time. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: set[int] = set()
        self._spent = UserBuckets()

    def read(
        self, selector: Selector, permission: Permission, limits: Limits, children: bool
    ) -> EncodedAnswer:
        """The snapshot of the selected processes, as a message (``stack_message``), or an error.

        Raises :class:`RefusedError` for who asks while a reading is under way, or too often.
        """
        peer = permission.peer
        specification = {
            "selector": asdict(selector),
            "uid": peer.uid,
            "groups": (peer.gid, *peer.groups),
            "children": children,
            "tables": size_of(limits.tables),
            "memory": size_of(limits.memory),
            "other_pids": permission.knows_other_pids,
        }
        if permission.root:
            return _whole(_read(specification)[0])
        share = share_of(limits.cpu)
        bucket = self._begin(peer.uid, share)
        try:
            answer, cpu_seconds = _read(specification)
            bucket.spend(time.monotonic(), cpu_seconds)
        finally:
            with self._lock:
                self._under_way.discard(peer.uid)
        return _whole(answer)

    def _begin(self, uid: int, share: float) -> TokenBucket:
        """Begin a reading of ``uid``'s, when its share of CPU time lets it."""
        now = time.monotonic()
        with self._lock:
            if uid in self._under_way:
                raise RefusedError("stacks are being read for you already")
            bucket = self._spent.bucket(uid, share, _BURST_SECONDS / share, now)
            delay = bucket.delay(now)
            if delay > _PATIENCE_SECONDS:
                raise RefusedError(
                    f"stacks were read for you so often that the next reading is in {delay:.0f} s"
                )
            self._under_way.add(uid)
        time.sleep(delay)
        return bucket


def _whole(answer: bytes) -> EncodedAnswer:
    if not answer:
        raise HpcdError("the stacks could not be read in the time and memory there is for a user")
    return EncodedAnswer(answer)


def _read(specification: dict[str, object]) -> tuple[bytes, float]:
    """Return the answer of a process of its own, b"" if it failed, and the CPU seconds it took."""
    process = subprocess.Popen(
        python_command("-m", "hpcd.daemon.service.stack_process"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        # numpy's threads each reserve memory; nothing here multiplies matrices.
        env=python_environment(OPENBLAS_NUM_THREADS="1"),
        start_new_session=True,  # Ctrl-C is for the service alone
    )
    assert process.stdin and process.stdout
    timer = threading.Timer(_MOST_SECONDS, process.kill)
    timer.start()
    answer = b""
    try:
        with process.stdout, process.stdin:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(specification).encode())
                process.stdin.close()
            answer = process.stdout.read(MAX_ANSWER + 1)
    except BaseException:
        process.kill()
        raise
    finally:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
    spent = usage.ru_utime + usage.ru_stime
    if process.returncode or not 0 < len(answer) <= MAX_ANSWER:
        return b"", max(spent, _FAILED_SECONDS)
    return answer, spent
