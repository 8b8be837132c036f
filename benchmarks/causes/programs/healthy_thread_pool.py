"""A pool of threads: a request comes every 50 ms and takes 5 ms."""

import time
from concurrent.futures import ThreadPoolExecutor


def serves_a_request():
    end = time.thread_time() + 0.005
    while time.thread_time() < end:
        pass


with ThreadPoolExecutor(4) as pool:
    for _ in range(40):
        time.sleep(0.05)
        pool.submit(serves_a_request)
