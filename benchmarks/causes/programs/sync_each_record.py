"""Writes a log and waits for the disk at each record. Prints the seconds of fsync(2)."""

import os
import sys
import tempfile
import time

waited = 0.0


def writes_the_log(file):
    global waited
    file.write(b"x" * 1000)
    begin = time.monotonic()
    os.fsync(file.fileno())
    waited += time.monotonic() - begin


with tempfile.NamedTemporaryFile(dir=sys.argv[1], buffering=0) as file:
    for _ in range(400):
        writes_the_log(file)
print(f"{waited:.6f}")
