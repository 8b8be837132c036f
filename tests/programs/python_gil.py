"""One thread computes, and another runs a little Python now and then: it waits for the
interpreter's lock, which the first one hands over every 5 ms at the earliest. Prints how long it
waited."""

import sys
import threading
import time

end = time.monotonic() + float(sys.argv[1])
waited = 0.0


def hog() -> None:
    while time.monotonic() < end:
        sum(range(1000))


def polite() -> None:
    global waited
    while time.monotonic() < end:
        before = time.monotonic()
        time.sleep(0.001)  # without the lock
        waited += time.monotonic() - before - 0.001


threads = [threading.Thread(target=hog), threading.Thread(target=polite)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(waited)
