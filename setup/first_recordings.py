"""Records programs for pictures of first screens: MPI, a build, a server, Java, OpenMP.

Run ``sudo .venv/bin/python setup/first_recordings.py OUT [NAME ...]`` after ``make setup-test`` and
``make objects``; databases are OUT/NAME.db, for ``setup/first_screens.py``. HPCD_COMMAND in the
environment is another hpcd than this one, such as a former version.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
HPCD = shlex.split(os.environ.get("HPCD_COMMAND", "")) or [sys.executable, "-m", "hpcd"]
_REQUESTS = 600

# Requests are answered by a thread each, which hashes.
_SERVER = """
import hashlib, http.server, sys

class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        words = hashlib.pbkdf2_hmac("sha256", self.path.encode(), b"salt", 6000).hex()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(words.encode())
    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
server.daemon_threads = False
print(server.server_address[1], flush=True)
for _ in range(int(sys.argv[1])):
    server.handle_request()
server.server_close()
"""
# Workers that take turns at a lock and compute.
_JAVA = """
public class Work extends Thread {
    static long collatz(long n) {
        long steps = 0;
        for (; n != 1; steps++) n = (n & 1) == 0 ? n / 2 : 3 * n + 1;
        return steps;
    }
    static long most;
    final int first;
    Work(int number) { super("worker-" + number); first = number; }
    static void work(int number) {
        for (int turn = 0; turn < 600; turn++) {
            long longest = 0;
            for (long n = 1 + number; n < 6000; n += 3) longest = Math.max(longest, collatz(n));
            synchronized (Work.class) { most = Math.max(most, longest); }
        }
    }
    public void run() { work(first); }
    public static void main(String[] words) throws Exception {
        Work[] workers = new Work[3];
        for (int number = 0; number < 3; number++) (workers[number] = new Work(number)).start();
        for (Work worker : workers) worker.join();
        System.out.println(most);
    }
}
"""
_MAKEFILE = """
OBJECTS = a.o b.o c.o d.o e.o templates.o hot.o
all: $(OBJECTS)
%.o: %.c
	gcc -O2 -c -o $@ $<
%.o: ROOT/tests/programs/%.cpp
	g++ -O2 -c -o $@ $<
"""


def _lammps(folder: Path) -> tuple[list[str], None]:
    """One of two ranks has all the atoms."""
    demo = (ROOT / "setup/demo.sh").read_text()
    (folder / "in.drop").write_text(demo.split("<<'INPUT'\n")[1].split("INPUT\n")[0])
    launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    return [*launch, "lmp", "-in", "in.drop", "-v", "balanced", "no", "-screen", "none"], None


def _build(folder: Path) -> tuple[list[str], None]:
    (folder / "Makefile").write_text(_MAKEFILE.replace("ROOT", str(ROOT)))
    for name in "abcde":
        (folder / f"{name}.c").write_text("#include <stdio.h>\nint main(void) { return 0; }\n")
    return ["make", "-B", "-j4"], None


def _server(folder: Path) -> tuple[list[str], Callable[[str], None]]:
    (folder / "server.py").write_text(_SERVER)

    def ask(port: str) -> None:
        def some() -> None:
            for number in range(_REQUESTS // 2):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/{number}").read()

        threads = [threading.Thread(target=some) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return ["/usr/bin/python3", "server.py", str(_REQUESTS)], ask


def _java(folder: Path) -> tuple[list[str], None]:
    (folder / "Work.java").write_text(_JAVA)
    subprocess.run(["javac", "Work.java"], cwd=folder, check=True)
    named = ["-XX:+PreserveFramePointer", "-XX:+UnlockDiagnosticVMOptions"]
    return ["java", *named, "-XX:+DumpPerfMapAtExit", "Work"], None


def _openmp(folder: Path) -> tuple[list[str], None]:
    source = ROOT / "tests/programs/openmp.c"
    built = ["gcc", "-O2", "-g", "-fopenmp", "-o", "openmp", str(source), "-lm"]
    subprocess.run(built, cwd=folder, check=True)
    return ["env", "OMP_NUM_THREADS=4", "./openmp", "3"], None


PROGRAMS = {
    "lammps": _lammps,
    "build": _build,
    "server": _server,
    "java": _java,
    "omp": _openmp,
}


def main(out: Path, names: list[str]) -> None:
    """Record each of ``names`` and merge."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for name in names:
        folder = (out / name).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        command, client = PROGRAMS[name](folder)
        recorded = [*HPCD, "run", "-o", str(folder / "m"), "--", *command]
        with subprocess.Popen(
            recorded, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
        ) as run:
            assert run.stdout
            if client:
                client(run.stdout.readline().strip())
            run.communicate()
        database = (out / f"{name}.db").resolve()
        subprocess.run([*HPCD, "merge", str(folder / "m"), "-o", str(database)], check=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python setup/first_recordings.py OUT [NAME ...]")
    main(Path(sys.argv[1]), sys.argv[2:] or list(PROGRAMS))
