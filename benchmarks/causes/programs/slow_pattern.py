"""A regular expression that tries all ways to match. Prints its CPU time."""

import re
import time


def looks_for_the_pattern(text):
    return re.match(r"(a+)+$", text)


begin = time.thread_time()
while time.thread_time() - begin < 1:
    looks_for_the_pattern("a" * 18 + "b")
print(f"{time.thread_time() - begin:.6f}")
