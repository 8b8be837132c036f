"""``hpcd run``: start a command and record it from its first instruction."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hpcd.cli.caller_state import caller_environment, caller_state
from hpcd.cli.command import Command
from hpcd.cli.output.terminal_text import say
from hpcd.cli.record_options import (
    add_options,
    add_output_option,
    add_summary_options,
    default_output,
    recording_options,
)
from hpcd.cli.recorder import (
    record,
    report,
    say_32_bit,
    stop_on_signals,
)
from hpcd.daemon.capture.start.sampler_loading import prepare_recording
from hpcd.daemon.targets.selector import Selector
from hpcd.elf.word_size import is_32_bit
from hpcd.errors import NotFoundError, TargetError, UsageError
from hpcd.signals import blocked
from hpcd.wording import counted

if TYPE_CHECKING:
    from hpcd.measurement.summary import Summary


class RunCommand(Command):
    """Start a command and record it and its descendants until it ends.

    The command keeps its standard input and output: the summary goes to standard error. hpcd exits
    with the command's exit code. Needs root.
    """

    name = "run"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_options(parser, self.name)
        add_summary_options(parser)
        add_output_option(parser)
        parser.add_argument(
            "command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="command to start"
        )

    def run(self, args: argparse.Namespace) -> int:
        command = command_of(args.command)
        if not command:
            raise UsageError("no command given: hpcd run [options] -- COMMAND ...")
        summary, code = run_recorded(args, command, args.output or default_output())
        report(summary, args, stream=sys.stderr)
        return code


def command_of(words: list[str]) -> list[str]:
    """The command after the options, without the ``--`` before it."""
    return words[1:] if words[:1] == ["--"] else words


def run_recorded(args: argparse.Namespace, command: list[str], output: Path) -> tuple[Summary, int]:
    """Record ``command`` from its start to its end; returns the summary and its exit code."""
    if not command[0]:
        raise UsageError("the name of the command is empty")
    if _is_32_bit(command[0]):
        say_32_bit(command[0])
    child = HeldChild(command)
    try:
        options = recording_options(args, Selector(pids=(child.pid,)), output)
        options.before_exec = True
        options.command = tuple(command)
        options.release = child.release
        options.analysing = lambda files: say(
            f"hpcd: {counted(files, 'file')} to analyse before the command starts, once"
        )
        options.extra["command"] = sys.argv[1:]
        recording = prepare_recording(options)
        stop_on_signals(recording)
        summary = record(recording, as_json=args.json, attached=lambda: None)
    except BaseException as error:
        if child.kill() == -signal.SIGINT and isinstance(error, TargetError):
            raise KeyboardInterrupt from None  # the command did not begin
        raise
    try:
        return summary, _exit_code(child)
    except NotFoundError:  # it never began: there is nothing to keep
        shutil.rmtree(output)
        raise


def _exit_code(child: HeldChild) -> int:
    """Return the command's exit code, 128 + N when signal N ended it; report a failure."""
    if child.runs():
        say(
            f"hpcd: the recording has ended, {child.name} goes on; hpcd stacks --pid"
            f" {child.pid} shows where its threads stand"
        )
    code = child.wait()
    if code:
        end = f"ended with exit code {code}" if code > 0 else f"was ended by {_signal_name(-code)}"
        say(f"hpcd: {child.name} {end}")
    return code if code >= 0 else 128 - code


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _is_32_bit(program: str) -> bool:
    path = shutil.which(program)
    if not path or not Path(path).is_file():
        return False
    with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
        return is_32_bit(file.read(5))
    return False


class HeldChild:
    """A child process that waits before its exec until it is released.

    The command inherits what hpcd inherited from its caller (:mod:`hpcd.cli.caller_state`). The
    child does not hold on to the parent: when hpcd dies before releasing it, the child ends.
    """

    def __init__(self, command: list[str]) -> None:
        hold, self._release = os.pipe()
        failed, report_failure = os.pipe()
        # Ctrl-C ends the child only when the child no longer takes it for hpcd's own.
        with blocked((signal.SIGINT,)) as mask:
            self.pid = os.fork()
            if self.pid == 0:
                os.close(self._release)
                os.close(failed)
                _become(command, hold, report_failure, mask)
        os.close(hold)
        os.close(report_failure)
        self._failed = failed
        self.name = command[0]

    def release(self) -> None:
        """Let the command start; calling again does nothing."""
        if self._release >= 0:
            release, self._release = self._release, -1
            with contextlib.suppress(BrokenPipeError):  # Ctrl-C ended the child
                os.write(release, b"!")
            os.close(release)

    def runs(self) -> bool:
        """Return whether the child has not ended."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self) -> int:
        """Return the command's exit code, -N when signal N ended it."""
        with os.fdopen(self._failed, "rb") as pipe:
            message = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        if message:
            raise NotFoundError(f"{self.name}: {message.decode()}")
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> int | None:
        """End the child, whatever it is doing; returns its exit code as :meth:`wait` does, None if
        that is taken already."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            return os.waitstatus_to_exitcode(status)
        return None


def _become(command: list[str], hold: int, report_failure: int, mask: set[int]) -> None:
    """In the child: wait for the release, then exec with the signals ``mask`` blocked.

    Never returns.
    """
    try:
        # Before the wait: the child ends at Ctrl-C, which the whole foreground group gets.
        caller_state().restore()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if os.read(hold, 1):
            os.execvpe(command[0], command, caller_environment())
    except OSError as error:
        os.write(report_failure, (error.strerror or str(error)).encode())
    finally:
        os._exit(127)
