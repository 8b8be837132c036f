"""A tight loop, at 20 Python and about 20 native frames: after each SECONDS it prints how many
turns a second it has made since, as often as a second argument says. Seconds are those in which it
had a CPU or was stopped: while it waited for a CPU, others used that."""

import sys
import time
from pathlib import Path


def seconds():
    waited = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    return time.perf_counter() - waited / 1e9


def loop():
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else sys.maxsize):
        begin, turns = seconds(), 0
        now = begin
        while now < begin + SECONDS:
            for _ in range(100_000):
                turns += 1
            now = seconds()
        print(turns / (now - begin), flush=True)


def through_c(depth):
    list(map(deep, [depth]))


def deep(depth):
    if depth % 8 == 1:
        through_c(depth - 1)
    elif depth:
        deep(depth - 1)
    else:
        loop()


SECONDS = float(sys.argv[1])
deep(15)
