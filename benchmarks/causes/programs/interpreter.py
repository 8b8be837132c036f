"""Programs in Python with one planted cause each, and healthy ones: a folder, then the case.

Each prints the seconds that its cause takes, by its own clocks, where that is an amount.
"""

import asyncio
import copy
import gc
import json
import logging
import multiprocessing
import os
import queue
import socket
import sqlite3
import subprocess
import sys
import threading
import time

planted = 0.0


def computes(seconds):
    end, x = time.thread_time() + seconds, 0
    while time.thread_time() < end:
        for _ in range(500):
            x += 1


class Planted:
    """Adds what is done in it to the seconds planted, by a clock."""

    def __init__(self, clock=time.monotonic):
        self.clock = clock

    def __enter__(self):
        self.begin = self.clock()

    def __exit__(self, *_):
        global planted
        planted += self.clock() - self.begin


def in_threads(*calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- work ---


def collects_garbage(kept):
    gc.collect()


def garbage_collection():
    kept = [[n] for n in range(200_000)]
    while planted < 1:
        computes(0.002)
        with Planted(time.thread_time):
            collects_garbage(kept)


def copies_the_state(state):
    return copy.deepcopy(state)


def deep_copies():
    state = {n: [n, {"a": n}] for n in range(2000)}
    while planted < 1:
        with Planted(time.thread_time):
            copies_the_state(state)
        computes(0.001)


def inserts_in_front(numbers):
    for n in range(1000):
        numbers.insert(0, n)


def list_as_queue():
    numbers = list(range(30_000))
    while planted < 1:
        with Planted(time.thread_time):
            inserts_in_front(numbers)


def encodes_again(document):
    return json.dumps(document)


def encodes_each_time():
    document = [{"n": n, "name": str(n)} for n in range(5000)]
    while planted < 1:
        with Planted(time.thread_time):
            encodes_again(document)
        computes(0.001)


def logs_the_step(log, n):
    log.info("step %d of the run is done and its residual is %g", n, n / 7)


def logging_each_step():
    logging.basicConfig(
        filename="log", level=logging.INFO, format="%(asctime)s %(filename)s:%(lineno)d %(message)s"
    )
    log, n = logging.getLogger("run"), 0
    while planted < 1:
        n += 1
        with Planted(time.thread_time):
            logs_the_step(log, n)


# --- waits ---


def commits_each_row(database, n):
    database.execute("insert into t values (?)", (n,))
    database.commit()


def commit_per_row():
    database = sqlite3.connect("data")
    database.execute("create table t (n)")
    for n in range(300):
        with Planted():
            commits_each_row(database, n)


async def answers_with_a_pause(n):
    with Planted():
        time.sleep(0.02)


async def answers_all():
    await asyncio.gather(*(answers_with_a_pause(n) for n in range(80)))


def blocked_event_loop():
    asyncio.run(answers_all())


def decompresses(blocks):
    for n in range(60):
        computes(0.02)
        blocks.put(n)
    for _ in range(2):
        blocks.put(None)


def takes_blocks(blocks):
    block = 0
    while block is not None:
        with Planted():
            block = blocks.get()
        computes(0.006)


def slow_source():
    blocks = queue.Queue()
    in_threads(
        lambda: decompresses(blocks), lambda: takes_blocks(blocks), lambda: takes_blocks(blocks)
    )


def counts_in_python():
    end, n = time.thread_time() + 1.0, 0
    while time.thread_time() < end:
        for _ in range(500):
            n += 1


def reads_the_sensor():
    time.sleep(0.001)


def reads_the_sensors():
    global planted
    for _ in range(120):
        with Planted():
            reads_the_sensor()
        planted -= 0.001


def interpreter_convoy():
    """One computes; another needs the interpreter's lock after each of its short waits."""
    in_threads(counts_in_python, reads_the_sensors)


def starts_a_converter(n):
    subprocess.run(["/usr/bin/expr", str(n), "+", "1"], stdout=subprocess.DEVNULL, check=True)


def process_per_item():
    for n in range(250):
        with Planted():
            starts_a_converter(n)


def handles_a_share(seconds):
    computes(seconds)


# --- healthy ---


def healthy_worker_pool():
    with multiprocessing.Pool(2) as pool:
        pool.map(handles_a_share, [0.02] * 80, chunksize=4)


def healthy_idle_workers():
    """A pool of processes: a task comes every 30 ms and takes 5 ms."""
    with multiprocessing.Pool(4) as pool:
        for _ in range(50):
            time.sleep(0.03)
            pool.apply_async(handles_a_share, (0.005,))
        pool.close()
        pool.join()


async def serves_a_client(reader, writer):
    while await reader.read(1):
        computes(0.003)
        writer.write(b"y")
    writer.close()


async def serves_clients():
    done = asyncio.Event()

    async def serves(reader, writer):
        await serves_a_client(reader, writer)
        done.set()

    server = await asyncio.start_unix_server(serves, "socket")
    if not os.fork():
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("socket")
            for _ in range(60):
                time.sleep(0.03)
                client.send(b"x")
                client.recv(1)
        os._exit(0)
    await done.wait()
    server.close()
    os.wait()


def healthy_asyncio_server():
    asyncio.run(serves_clients())


os.chdir(sys.argv[1])
globals()[sys.argv[2]]()
print(f"{planted:.6f}")
