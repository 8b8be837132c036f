"""Functions of two families that call in turns, on several threads: none calls the other family's.

CALLERS says who calls whom, without the family: what is not there is impossible. In the families
every way into the evaluation loop is taken: calls, C functions that call back, generators that one
thread begins and another ends, coroutines, exceptions that pass through C, constructors, callbacks
of the C library, and threads that C has made. Some of the calls wait.
"""

import ctypes
import itertools
import sys
import threading
import time

CALLERS = {
    "nap": {"leaf"},
    "leaf": {"key", "items", "fold", "compare", "raises", "deep", "handed", "awaited", "begin",
             "hot"},
    "key": {"hot"}, "items": {"hot"}, "fold": {"hot"}, "compare": {"hot"}, "raises": {"hot"},
    "deep": {"deep", "hot"},
    "awaited": {"awaits"}, "awaits": {"hot"},
    "begin": {"hot"},
    "handed": {"hot", "end"}, "end": {"run"},
    "hot": {"turns", "run", "in_thread_of_c"},
    "<lambda>": {"turns", "run", "in_thread_of_c"},
    "turns": {"main"}, "main": {"<module>"},
    "turns_left": {"turns", "run", "in_thread_of_c"},
    "run": set(), "in_thread_of_c": set(), "<module>": set(),
}  # fmt: skip

FAMILY = """
import functools
import queue

def nap_F():
    time.sleep(0.002)

def leaf_F(value):
    if value == 7:
        nap_F()
    return sum(range(60))

def key_F(value):
    return leaf_F(value) - value

def items_F():
    for value in range(3):
        yield leaf_F(value)

def fold_F(total, value):
    return total + leaf_F(value)

def compare_F(one, other):
    leaf_F(one[0])
    return one[0] - other[0]

def raises_F(value):
    leaf_F(value)
    raise ValueError(value)

def deep_F(depth):
    return deep_F(depth - 1) if depth else leaf_F(depth)

def handed_F():
    while True:
        yield leaf_F(1)

async def awaited_F(value):
    leaf_F(value)

async def awaits_F(value):
    await awaited_F(value)

class Begun_F:
    def begin_F(self):
        leaf_F(1)

    __init__ = begin_F

def hot_F(turn):
    wait = 7 if turn % 16 == 0 else 3
    leaf_F(1)
    sorted((3, 1, 2), key=key_F)
    list(map(leaf_F, (1, 2, wait)))
    sum(items_F())
    functools.reduce(fold_F, (1, 2, 3))
    numbers = (ctypes.c_int * 4)(4, 2, 3, 1)
    QSORT(numbers, 4, 4, COMPARE_F)
    try:
        list(map(raises_F, (1, 2)))
    except ValueError:
        pass
    deep_F(20)
    try:
        awaits_F(wait).send(None)
    except StopIteration:
        pass
    Begun_F()
    for _ in items_F():
        pass
    generator = handed_F()
    next(generator)
    HANDED_F.put(generator)

def end_F():
    while not HANDED_F.empty():
        next(HANDED_F.get())

def run_F():
    for turn in turns_left():
        hot_F(turn)
        end_F()

def in_thread_of_c_F(argument):
    for turn in turns_left():
        hot_F(turn)
    return 0

COMPARE_F = COMPARISON(compare_F)
HANDED_F = queue.SimpleQueue()
THREAD_F = THREAD(in_thread_of_c_F)
"""

C = ctypes.CDLL(None)
QSORT = C.qsort
COMPARISON = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.POINTER(ctypes.c_int)] * 2)
THREAD = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def turns_left():
    return itertools.takewhile(lambda turn: time.monotonic() < END, itertools.count())


def turns(hot_a, hot_b):
    for turn in turns_left():
        hot_a(turn)
        hot_b(turn)


def main():
    space = globals()
    for family in "ab":
        exec(compile(FAMILY.replace("_F", f"_{family}"), __file__, "exec"), space)
    threads = [threading.Thread(target=space[f"run_{family}"]) for family in "ab"]
    c_threads = (ctypes.c_void_p * 2)()
    for thread in threads:
        thread.start()
    for number, family in enumerate("ab"):
        C.pthread_create(ctypes.byref(c_threads, 8 * number), None, space[f"THREAD_{family}"], None)
    print("ready", flush=True)
    turns(space["hot_a"], space["hot_b"])
    for thread in threads:
        thread.join()
    for thread in c_threads:
        C.pthread_join(ctypes.c_void_p(thread), None)


if __name__ == "__main__":
    END = time.monotonic() + float(sys.argv[1])
    main()
