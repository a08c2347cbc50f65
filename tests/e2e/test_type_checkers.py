"""Examples, and projects of `kueuelib new`, pass strict type checkers."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kueuelib.cli.new.project import KINDS, run

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything in one place, where nothing of this repository is in reach."""
    place = tmp_path_factory.mktemp("user")
    shutil.copytree(EXAMPLES, place / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for kind in KINDS:
        run(kind, f"a-{kind}", place)
    return place


def folders(written: Path) -> list[Path]:
    """Each folder with programs, as a project of its own; inner ones first."""
    return sorted({path.parent for path in written.rglob("*.py")}, reverse=True)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("basedpyright") is None,
    reason="basedpyright is not installed; it comes with the extra `pyright`",
)
def test_pyright_finds_nothing_in_strict_mode(written: Path) -> None:
    settings = {"typeCheckingMode": "strict", "include": [str(path) for path in folders(written)]}
    settings["executionEnvironments"] = [{"root": str(path)} for path in folders(written)]
    (written / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson"],
        cwd=written,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len([*written.rglob("*.py")])
    found = [
        f"{each['file']}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in report["generalDiagnostics"]
    ]
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_mypy_finds_nothing_in_strict_mode(written: Path) -> None:
    for folder in folders(written):
        programs = sorted(path.name for path in folder.glob("*.py"))
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={written}/cache", *programs],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
