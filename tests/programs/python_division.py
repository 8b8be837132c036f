"""Known CPU time: f has 3 times that of g, both in spin(). Then a nap in a callback through C."""

import ctypes
import sys
import time


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        for _ in range(200):
            pass


def f(seconds):
    spin(3 * seconds)


def g(seconds):
    spin(seconds)


def nap():
    time.sleep(0.2)


def compare(one, other):
    nap()
    return one[0] - other[0]


def through_c():
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.POINTER(ctypes.c_int)] * 2)
    numbers = (ctypes.c_int * 2)(2, 1)
    ctypes.CDLL(None).qsort(numbers, 2, 4, kind(compare))


def main(seconds):
    for number in range(10):
        f(seconds / 40)
        g(seconds / 40)
        if number == 4:
            through_c()


if __name__ == "__main__":
    main(float(sys.argv[1]))
