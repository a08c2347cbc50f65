"""The process that makes the certificate of a node."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kueuelib.errors import ConfigError
from kueuelib.node.certificate import certificate_for


async def test_an_interpreter_that_the_user_cannot_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter = tmp_path / "python"
    interpreter.touch(mode=0o600)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    with pytest.raises(ConfigError, match=r"cannot run this interpreter: Permission denied; use "):
        await certificate_for("127.0.0.1")
