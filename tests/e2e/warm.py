"""`kueuelib` commands as copies of a process that has imported what they need.

They are processes like others, with signals, exit codes and files of their own; only the second
that a fresh interpreter takes for its imports is spared. `kueuelib.testing.processes` starts fresh
ones: the demo and `test_fresh.py` do, and commands that run code of users.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

from kueuelib.cli import main
from kueuelib.testing import processes

COMMANDS = ("apiserver", "install", "manager")
"""What is started as a copy; other commands run code of users, or end in ways of their own."""
WRITE = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        *(f"kueuelib.cli.{command}" for command in COMMANDS),
        *(f"kueuelib.cli.{command}.command" for command in ("doctor", "explain", "pending")),
        "kueuelib.cli.syntax",
        "kueuelib.cli.install",
        "kueuelib.embedded.cluster.simulation",
        "kueuelib.embedded.loading",
    ]
)


def _command(
    args: tuple[str, ...], folder: Path, env: Mapping[str, str], files: tuple[Path, Path, Path]
) -> None:
    """What a copy does; it ends with the exit code of the command."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    more = env.get("PYTHONPATH", "").split(os.pathsep)  # a test may have added a plug-in
    sys.path[:0] = [path for path in more if path and path not in sys.path]
    for number, (file, mode) in enumerate(zip(files, (os.O_RDONLY, WRITE, WRITE), strict=True)):
        opened = os.open(file, mode, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "w", closefd=False), write_through=True)
        for number in (1, 2)
    )
    sys.argv = ["kueuelib", *args]
    main()


class Copy:
    """A command under way, with what the tests use of `subprocess.Popen`."""

    def __init__(
        self, args: tuple[str, ...], folder: Path, stdin: Path, stdout: Path, stderr: Path
    ) -> None:
        self._args = args
        self._process: BaseProcess = _CONTEXT.Process(
            target=_command,
            args=(args, folder, dict(os.environ), (stdin, stdout, stderr)),
            daemon=True,
        )
        self._process.start()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self._args, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Processes(processes.Processes):
    """Commands in the background; `COMMANDS` are copies."""

    def start(self, name: str, *args: str) -> subprocess.Popen[bytes] | Copy:
        if args[0] not in COMMANDS:
            return super().start(name, *args)
        log = self.folder / f"{name}.log"
        log.touch()
        process = Copy(args, self.folder, Path(os.devnull), log, log)
        self._running.append((name, process))
        return process


def kueuelib(
    *args: object, stdin: str = "", seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    """A command that ran to its end.

    Raises:
        subprocess.TimeoutExpired: it did not end in time.
    """
    return together(args, stdin=stdin, seconds=seconds)[0]


def together(
    *commands: Iterable[object], stdin: str = "", seconds: float = 300
) -> list[subprocess.CompletedProcess[str]]:
    """Commands that ran to their ends at the same time.

    Raises:
        subprocess.TimeoutExpired: one did not end in time.
    """
    with contextlib.ExitStack() as stack:
        begun = []
        for args in commands:
            words = tuple(map(str, args))
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            given, told, wrong = (Path(folder, name) for name in ("stdin", "stdout", "stderr"))
            given.write_text(stdin)
            process = Copy(words, Path.cwd(), given, told, wrong)
            stack.callback(process.kill)
            begun.append((words, process, told, wrong))
        return [
            subprocess.CompletedProcess(
                words, process.wait(seconds), told.read_text(), wrong.read_text()
            )
            for words, process, told, wrong in begun
        ]
