"""The tutorials, word for word: their files are written, their commands run, their output compared.

The environment of the tests stands for the one that a tutorial installs, unless `TUTORIAL_INSTALL`
is set. Then the commands run in a copy of the repository, with a new environment.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tutorials import ROOT, TUTORIALS, steps

from kueuelib.testing.processes import free_port

INSTALL = "TUTORIAL_INSTALL" in os.environ
DEADLINE = 300.0 if INSTALL else 180.0
_PORT = re.compile(r"\b194\d\d\b")
"""Ports of the pages: a test takes free ones instead, because others may run beside it."""
_INSTALLS = ("python3 -m venv ", ". .venv/", "pip install ")


class Shell:
    """One terminal: a shell, and all lines that it and its background programs print."""

    def __init__(self, folder: Path) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env={**kept, "PATH": os.environ["PATH"] if INSTALL else path, "COLUMNS": "200"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self.printed: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))

    def run(self, command: str, expected: list[str]) -> None:
        """Run a command until it has ended, or stays in the background, and has printed all."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\necho ended: $?\n")
        self._process.stdin.flush()
        missing = ["ended: 0", *expected]
        end = time.monotonic() + DEADLINE
        while missing:
            try:
                line = self._lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                seen = "\n".join(self.printed)
                raise AssertionError(f"{command}: {missing[-1]!r} is missing in\n{seen}") from None
            self.printed.append(line)
            assert not re.fullmatch(r"ended: [1-9]\d*", line), "\n".join(self.printed)
            if line == "ended: 0":
                missing.remove(line)
            else:
                rest = [each for each in missing if each != "ended: 0"]
                if rest and matches(rest[0], line):
                    missing.remove(rest[0])

    def close(self) -> None:
        """End the shell and what it started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        self._reader.join(30)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def matches(pattern: str, line: str) -> bool:
    """Whether a printed line is one of the page, where `...` stands for anything."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("..."))), line) is not None


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a block, each with the lines it prints; a line `...` stands for any lines."""
    first, *parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert not first
    for part in parts:
        command, *printed = part.splitlines()
        yield command, [line for line in printed if line != "..."]


@pytest.mark.slow
@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_does_what_it_says(name: str, tmp_path: Path) -> None:
    page = (ROOT / f"docs/{name}.md").read_text()
    for port in set(_PORT.findall(page)):
        page = page.replace(port, str(free_port()))
    checkout = tmp_path / "checkout"
    if INSTALL:
        shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(".*"))
    else:
        checkout.mkdir()
    shell, folder = Shell(checkout), checkout
    ran = written = 0
    try:
        for language, text, file in steps(page):
            if language != "console":
                assert file, f"no file is named for\n{text}"
                (folder / file).write_text(text)
                written += 1
                continue
            for command, expected in commands(text):
                if INSTALL or not command.startswith(_INSTALLS):
                    shell.run(command, expected)
                    ran += 1
                if (made := re.match(r"mkdir (\S+) && cd", command)) is not None:
                    folder = checkout / made[1]
    finally:
        shell.close()
    assert ran >= 6
    assert written >= 3


def test_other_output_than_on_the_page_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "DEADLINE", 2.0)
    shell = Shell(tmp_path)
    try:
        shell.run("echo one; echo two", ["one", "t..."])
        with pytest.raises(AssertionError, match="'three' is missing"):
            shell.run("echo two", ["three"])
        with pytest.raises(AssertionError, match="ended: 1"):
            shell.run("false", [])
    finally:
        shell.close()
