"""Threads that stand in known lines: in a lock, below C code that calls back, and running without
the interpreter's lock."""

import hashlib
import threading
import time

held, gate = threading.Lock(), threading.Event()


class Waiter:
    def run(self):
        self.take()

    def take(self):
        with held:  # stands here: take
            pass


def nap(value):
    time.sleep(1000)  # stands here: nap
    return value


def through_c():
    sorted([2, 1], key=nap)


def spin():
    hashlib.pbkdf2_hmac("sha256", b"", b"", (1 << 31) - 1)  # stands here: spin


def main():
    gate.wait()


held.acquire()
for target, name in ((Waiter().run, "take"), (through_c, "nap"), (spin, "spin")):
    threading.Thread(target=target, name=name).start()
print("started", flush=True)
main()
