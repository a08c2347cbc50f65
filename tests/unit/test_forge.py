"""What the forge runs exists here, and tries every version of Python that the classifiers name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import kueuelib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SESSION = re.compile(r"^@nox\.session(?:\(.*?name=\"(.+?)\")?.*\ndef (\w+)", re.MULTILINE)
SESSIONS = SESSION.findall((ROOT / "noxfile.py").read_text())
PINS = (ROOT / "requirements-dev.txt").read_text()


def workflow(name: str) -> Any:
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())


def test_the_suite_runs_on_every_supported_python() -> None:
    label = "Programming Language :: Python :: 3."
    supported = [one[len(label) - 2 :] for one in PROJECT["classifiers"] if label in one]
    assert workflow("tests.yml")["jobs"]["suite"]["strategy"]["matrix"]["python"] == supported


def test_a_release_finds_one_version_everywhere_and_its_entry_in_the_changelog() -> None:
    assert kueuelib.__version__ == PROJECT["version"]
    _, entry, *_ = (ROOT / "CHANGELOG.md").read_text().split(f"\n## {PROJECT['version']}")
    assert entry.partition("\n## ")[0].strip()


@pytest.mark.parametrize("name", ["tests.yml", "release.yml"])
def test_sessions_that_workflows_run_exist(name: str) -> None:
    steps = [step for job in workflow(name)["jobs"].values() for step in job.get("steps", ())]
    runs = [found for step in steps for found in re.findall(r"nox -s (\S+)", step.get("run", ""))]
    assert set(runs) <= {own or function for own, function in SESSIONS}


def test_every_direct_dependency_is_pinned_with_hashes_and_without_addresses() -> None:
    pinned = set(re.findall(r"^([\w.-]+)==", PINS, re.MULTILINE))
    extras = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *extras["dev"], *extras["docs"], *extras["fast"]]
    names = {re.match(r"[\w.-]+", one)[0].lower() for one in asked}
    assert names <= pinned
    assert all("--hash=sha256:" in one for one in re.split(r"(?m)^(?=[\w.-]+==)", PINS)[1:])
    assert "://" not in PINS
