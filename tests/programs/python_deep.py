"""Runs with more Python frames than a path has room for."""

import sys
import time


def deep(depth):
    if depth:
        deep(depth - 1)
    else:
        spin()


def spin():
    end = time.thread_time() + 1
    while time.thread_time() < end:
        pass


sys.setrecursionlimit(10_000)
deep(3000)
