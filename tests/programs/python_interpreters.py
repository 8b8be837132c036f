"""Threads that execute code in interpreters of their own, which compute and wait there; one in an
interpreter that another one executes, and two that share an interpreter and its lock."""

import sys
import threading
import time

import _interpreters

WORK = """
import time

def leaf_N():
    sum(range(2000))

def nap_N():
    time.sleep(0.002)

def work_N():
    for _ in range(20):
        leaf_N()
    nap_N()

while time.monotonic() < END:
    work_N()
"""
NESTED = """
import _interpreters

def outer_N():
    _interpreters.exec(INNER, INNER_CODE)

outer_N()
"""
SHARED = """
import threading
import time

def hog():
    while time.monotonic() < END:
        sum(range(1000))

def polite():
    while time.monotonic() < END:
        time.sleep(0.001)  # without the lock

threading.Thread(target=polite).start()
hog()
"""


def code(text, number, **names):
    """The text for the thread with this number, in which names have their values."""
    for name, value in names.items():
        text = text.replace(name, repr(value))
    return text.replace("_N", f"_{number}").replace("END", repr(end))


def begin_1():
    _interpreters.exec(first, code(WORK, 1))


def begin_2():
    _interpreters.exec(second, code(WORK, 2))


def begin_3():
    inner = code(WORK, 4)
    _interpreters.exec(third, code(NESTED, 3, INNER_CODE=inner, INNER=fourth))


def begin_hog():
    _interpreters.exec(shared, code(SHARED, 5))


def main():
    targets = [begin_1, begin_3, begin_hog]
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    begin_2()
    for thread in threads:
        thread.join()


end = time.monotonic() + float(sys.argv[1])
# The inner interpreter is newer than the outer one, or older.
first, second, third, fourth, shared = (_interpreters.create() for _ in range(5))
if sys.argv[2:] == ["older"]:
    third, fourth = fourth, third
main()
