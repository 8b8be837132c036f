"""A server of asyncio and its client, a process of its own: a request every 10 ms, answered by a
coroutine that another one awaits, and by a thread of the pool. All else is waiting for requests."""

import asyncio
import subprocess
import sys
import time

CLIENT = """
import socket, sys, time
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    for _ in range(int(sys.argv[2])):
        connection.sendall(b"a\\n")
        assert connection.recv(2) == b"a\\n"
        time.sleep(0.01)
"""


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def answer(line):
    spin(0.001)
    await asyncio.to_thread(spin, 0.001)
    return line


async def serve(done, reader, writer):
    while line := await reader.readline():
        writer.write(await answer(line))
    writer.close()
    done.set()


async def main(requests):
    done = asyncio.Event()
    server = await asyncio.start_server(lambda *ends: serve(done, *ends), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = subprocess.Popen([sys.executable, "-c", CLIENT, str(port), str(requests)])
    await done.wait()
    client.wait()


asyncio.run(main(int(sys.argv[1])))
