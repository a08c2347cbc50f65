"""No output is lost because of the encoding of a stream."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from kueuelib.cli import main
sys.modules["kueuelib.cli.syntax"] = stand_in = type(sys)("root")
stand_in.app = lambda **_: sys.stdout.write("wartet \\u2026 \\u4e2d \\udce9\\n") and 0
main()
"""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "ascii:strict"])
def test_whatever_is_said_can_be_written(encoding: str) -> None:
    """A file is UTF-8, as pages say of themselves; what is no character is escaped."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "a-command"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.decode() == "wartet \u2026 \u4e2d \\udce9\n"


def test_a_terminal_gets_escapes_for_what_it_cannot_show() -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    subprocess.run(
        [sys.executable, "-c", PROGRAM, "a-command"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        stdout=theirs,
        timeout=300,
        check=True,
    )
    assert os.read(ours, 1000).decode() == "wartet \\u2026 \\u4e2d \\udce9\r\n"
    os.close(ours)
    os.close(theirs)
