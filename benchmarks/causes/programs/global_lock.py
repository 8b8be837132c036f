"""Three threads compute in Python: one at a time has the interpreter's lock."""

import threading
import time


def computes_in_python():
    end = time.thread_time() + 0.5
    x = 0
    while time.thread_time() < end:
        for _ in range(1000):
            x += 1


threads = [threading.Thread(target=computes_in_python) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
