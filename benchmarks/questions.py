"""The usual questions, asked of hpcd and of perf, about a program that was never recorded.

Each tool's commands are run as they stand here: how many, how long they take with what they record,
and the line of their last output that answers, or comes closest. What other viewers need is counted
in docs/comparison.md, from their documentation.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benchmarks.compare import SOURCE as TWO_CALLERS
from benchmarks.workloads import HPCD, ROOT, build, scratch, sized
from tests.support.standing import asleep

_SECONDS = sized(2, 0.3)
_PERF = "perf record -q -e cpu-clock -F 997 -g"
_LOOPS = """
#include <stdlib.h>
#include <time.h>
static double a[512], b[512];
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
__attribute__((noinline)) double solve(void) {
    double sum = 0;
    for (int i = 0; i < 512; i++)
        a[i] = a[i] * 0.5 + i;
    for (int i = 0; i < 512; i++)
        for (int j = 0; j < 512; j++)
            sum += a[i] * b[j];
    return sum;
}
int main(int count, char **arguments) {
    volatile double sum = 0;
    for (double end = now() + atof(arguments[1]); now() < end;)
        sum += solve();
}
"""
_MAKEFILE = """
all: one.o two.o templates.o hot.o
one.o two.o: %.o: %.c
	gcc -O2 -c -o $@ $<
%.o: ROOT/tests/programs/%.cpp
	g++ -O2 -c -o $@ $<
"""


@dataclass(frozen=True)
class Question:
    """``commands`` of a tool, and the expression of the line that answers."""

    text: str
    tool: str
    commands: tuple[str, ...]
    answer: str


def _asked(question: Question, folder: Path, words: dict[str, str]) -> tuple[float, str]:
    """Seconds for all commands, and the answer."""
    environment = {**os.environ, "HPCD_RESULTS": str(folder / "results")}
    begin, output = time.perf_counter(), ""
    for command in question.commands:
        line = command.format(**words).replace("hpcd ", shlex.join(HPCD) + " ", 1)
        done = subprocess.run(
            ["sh", "-c", line if command.startswith("hpcd") else command.format(**words)],
            cwd=folder, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        output = done.stdout
    seconds = time.perf_counter() - begin
    match = re.search(question.answer, output, re.M)
    return seconds, re.sub(r"\s+", " ", match[0]).strip() if match else "nothing"


def _prepared(folder: Path) -> Callable[[str], str]:
    """Compiles what is asked about; the path of each program."""
    for name, text in (("loops", _LOOPS), ("callers", TWO_CALLERS)):
        (folder / f"{name}.c").write_text(text)
        subprocess.run(["gcc", "-O1", "-g", "-o", folder / name, folder / f"{name}.c"], check=True)
    (folder / "Makefile").write_text(_MAKEFILE.replace("ROOT", str(ROOT)))
    for name in ("one.c", "two.c"):
        (folder / name).write_text("int number;\n")
    return lambda name: str(folder / name)


_QUESTIONS = (
    Question("who waits for whom", "hpcd", ("hpcd stacks --pid {pid}",), r"^deadlock.*\n.*\n.*"),
    Question(
        "who waits for whom", "perf",
        ("perf record -q -e sched:sched_switch -g -o s.data -p {pid} sleep {seconds}",
         "perf script -i s.data | grep -c sched_switch || true"),
        r"^\d+$",
    ),
    Question(
        "which loop", "hpcd",
        ("hpcd profile --name nested -- {loops} {seconds}", "hpcd report nested --view loops"),
        r"^ *\S+ % +\S+ m?s +[1-9]\d\S* % .*loop at.*$",
    ),
    Question(
        "which loop", "perf",
        (_PERF + " -o l.data -- {loops} {seconds}", "perf annotate --stdio -i l.data solve"),
        r"^ +[1-9]\d\.\d\d .*$",
    ),
    Question(
        "what changed", "hpcd",
        ("hpcd profile --name first -- {callers} {seconds} {seconds}",
         "hpcd profile --name second -- {callers} {seconds} {longer}", "hpcd compare first second"),
        r"^.*second.*kernel.*$",
    ),
    Question(
        "what changed", "perf",
        (_PERF + " -o 1.data -- {callers} {seconds} {seconds}",
         _PERF + " -o 2.data -- {callers} {seconds} {longer}", "perf diff 1.data 2.data"),
        r"^.*\[\.\] kernel.*$",
    ),
    Question(
        "which process of a build", "hpcd", ("hpcd profile --name build -- make -B -j2",),
        r"^stands out: cc1plus.*$",
    ),
    Question(
        "which process of a build", "perf",
        (_PERF + " -o b.data -- make -B -j2",
         "perf report --stdio -g none --no-children --sort pid -i b.data"),
        r"^ +\d+\.\d+% .*$",
    ),
)  # fmt: skip


def run() -> Table:
    """The table."""
    table = Table("question", "tool", "commands", "seconds", "what it says", title="one try each")
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        folder = Path(name)
        program = _prepared(folder)
        with asleep(Path(build(folder, "asleep.c")), "deadlock", threads=4) as pid:
            words = {
                "pid": str(pid), "loops": program("loops"), "callers": program("callers"),
                "seconds": str(_SECONDS), "longer": str(1.5 * _SECONDS),
            }  # fmt: skip
            for question in sized(_QUESTIONS, _QUESTIONS[:4]):
                seconds, answer = _asked(question, folder, words)
                table.add_row(
                    question.text, question.tool, str(len(question.commands)), f"{seconds:.1f}",
                    answer,
                )  # fmt: skip
    return table
