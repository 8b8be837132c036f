"""Two ranks take turns by messages of bytes, or of Python's objects; the second has more to do."""

import sys
import time

from mpi4py import MPI


def work(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(2000))


def asks():
    work(0.005)


def answers():
    work(0.02)


world = MPI.COMM_WORLD
token = bytearray(8)


def sends(to):
    world.send(token, to) if "objects" in sys.argv else world.Send(token, to)


def receives(source):
    world.recv(source=source) if "objects" in sys.argv else world.Recv(token, source)


for _ in range(20):
    if world.rank == 0:
        asks()
        sends(1)
        receives(1)
    else:
        receives(0)
        answers()
        sends(0)
