"""A process fills a pipe that another reads slowly. Prints the seconds that the writer waited."""

import os
import time

read_end, write_end = os.pipe()


def reads_slowly():
    while os.read(read_end, 65536):
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass


def produces():
    begin = time.monotonic()
    for _ in range(150):
        os.write(write_end, b"x" * 65536)
    print(f"{time.monotonic() - begin:.6f}", flush=True)


if os.fork():
    os.close(read_end)
    produces()
    os.close(write_end)
    os.wait()
else:
    os.close(write_end)
    reads_slowly()
