"""Which event loop a program runs on."""

from __future__ import annotations

import asyncio
import sys
import types

import pytest

from kueuelib.runtime.entry import run_program


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
