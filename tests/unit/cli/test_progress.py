"""Progress: one line of a terminal that vanishes, and nothing in a file."""

from __future__ import annotations

import io

import pytest

from kueuelib.cli.progress import StepProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_the_present_step() -> None:
    file = Terminal()
    with StepProgress("searching", 2, file) as progress:
        progress.step("ns/a")
        assert file.getvalue() == "\r\x1b[Ksearching: 1 of 2, ns/a"
        progress.step("ns/b")
        assert file.getvalue().endswith("\r\x1b[Ksearching: 2 of 2, ns/b")
    assert file.getvalue().endswith("\r\x1b[K")


def test_a_line_that_would_wrap_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last line of a text that wraps could be overwritten."""
    monkeypatch.setenv("COLUMNS", "24")
    file = Terminal()
    with StepProgress("searching", 2, file) as progress:
        progress.step("a-long-namespace/a")
        assert file.getvalue() == "\r\x1b[Ksearching: 1 of 2, a-lo"


def test_the_line_vanishes_when_the_work_is_interrupted() -> None:
    file = Terminal()
    with pytest.raises(KeyboardInterrupt):
        _interrupted(StepProgress("searching", 2, file))
    assert file.getvalue().endswith("\r\x1b[K")


def _interrupted(progress: StepProgress) -> None:
    with progress:
        progress.step("ns/a")
        raise KeyboardInterrupt


def test_a_file_gets_nothing() -> None:
    file = io.StringIO()
    with StepProgress("searching", 1, file) as progress:
        progress.step("ns/a")
    assert file.getvalue() == ""
