"""Two ranks take turns by messages; the second has more to do."""

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
for _ in range(20):
    if world.rank == 0:
        asks()
        world.Send(token, 1)
        world.Recv(token, 1)
    else:
        world.Recv(token, 0)
        answers()
        world.Send(token, 0)
