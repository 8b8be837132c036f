"""A tight loop, at 20 Python and about 20 native frames: after each SECONDS of CPU time it prints
how many turns a CPU second it has made since."""

import sys
import time


def loop():
    while True:
        begin, turns = time.thread_time(), 0
        while time.thread_time() < begin + SECONDS:
            for _ in range(10_000):
                turns += 1
        print(turns / (time.thread_time() - begin), flush=True)


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
