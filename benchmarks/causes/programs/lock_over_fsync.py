"""Four threads book in one ledger: a lock is held over fsync(2). Prints the seconds waited."""

import os
import sys
import tempfile
import threading
import time


class Ledger:
    def __init__(self, file):
        self.lock, self.file, self.waited = threading.Lock(), file, 0.0

    def book(self):
        begin = time.monotonic()
        with self.lock:
            self.waited += time.monotonic() - begin
            self.file.write(b"x" * 4096)
            os.fsync(self.file.fileno())


def keeps_the_books(ledger):
    for _ in range(150):
        ledger.book()


with tempfile.NamedTemporaryFile(dir=sys.argv[1], buffering=0) as file:
    ledger = Ledger(file)
    threads = [threading.Thread(target=keeps_the_books, args=(ledger,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{ledger.waited:.6f}")
