"""The wheel, which the image is made of, depends on the tree and on nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "src")


def built(folder: Path, **environment: str) -> Path:
    """The wheel of a copy of the tree, whose files are as old as the copy."""
    tree, wheels = folder / "tree", folder / "wheels"
    tree.mkdir(parents=True)
    for name in PARTS:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, tree / name, ignore=ignored, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(source, tree / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(
        command,
        cwd=tree,
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        timeout=300,
    )
    (wheel,) = wheels.iterdir()
    return wheel


@pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling is not installed")
def test_two_builds_of_the_same_tree_are_the_same_bytes(tmp_path: Path) -> None:
    moment = {"SOURCE_DATE_EPOCH": "1767225600"}
    one = built(tmp_path / "one", **moment, TZ="UTC")
    other = built(tmp_path / "elsewhere" / "other", **moment, TZ="Pacific/Auckland", LC_ALL="C")
    assert one.name == other.name
    assert one.name.endswith("-py3-none-any.whl")
    assert one.read_bytes() == other.read_bytes()
    with zipfile.ZipFile(one) as found:
        names = found.namelist()
        assert {entry.date_time for entry in found.infolist()} == {(2026, 1, 1, 0, 0, 0)}
    files = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files <= {*names}
