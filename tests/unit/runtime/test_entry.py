"""Which event loop a program runs on."""

from __future__ import annotations

import asyncio
import sys
import types

import pytest

from kueuelib.errors import ConfigError, TransportError
from kueuelib.runtime.entry import run_program, run_script


async def loop_and(answer: str) -> tuple[str, str]:
    return type(asyncio.get_running_loop()).__name__, answer


class OtherLoop(asyncio.SelectorEventLoop):
    """Stands for that of uvloop."""


def test_a_program_runs_on_uvloop_when_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = types.ModuleType("uvloop")
    installed.new_event_loop = OtherLoop  # type: ignore[attr-defined]
    installed.__spec__ = types.SimpleNamespace(name="uvloop")  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "uvloop", installed)
    assert run_program(loop_and, "x") == ("OtherLoop", "x")


def test_a_program_runs_on_the_loop_of_python_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kueuelib.runtime.entry.find_spec", lambda _: None)
    name, answer = run_program(loop_and, "x")
    assert (name.startswith("_Unix"), answer) == (True, "x")


async def fails_with(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("file", "is missing", "make it"), 2, "mine.py: file: is missing; make it\n"),
        (ExceptionGroup("x", [ConfigError("a", "b", "c")]), 2, "mine.py: a: b; c\n"),
        (TransportError("https://x", "reset"), 1, "try again\n"),
    ],
)
def test_a_script_ends_with_one_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    line: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["folder/mine.py"])
    with pytest.raises(SystemExit) as ended:
        run_script(fails_with, error)
    assert ended.value.code == code
    said = capsys.readouterr().err
    assert said.startswith("mine.py: ")
    assert said.endswith(line)
    assert said.count("\n") == 1


def test_what_is_not_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run_script(fails_with, ZeroDivisionError("x"))
