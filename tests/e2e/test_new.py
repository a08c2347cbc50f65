"""`kueuelib new` writes projects whose tests pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from warm import kueuelib

from kueuelib.cli.new import KINDS, run
from kueuelib.errors import ConfigError


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_tests_of_a_new_project_pass(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kueuelib", "new", kind, "my-thing"]
    made = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True
    )
    assert "my-thing/test_my_thing.py" in made.stdout
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "my-thing",
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_project_says_how_it_gets_into_a_cluster(kind: str, tmp_path: Path) -> None:
    run(kind, "my-thing", tmp_path)
    folder = tmp_path / "my-thing"
    assert "COPY my_thing.py .\n" in (folder / "Dockerfile").read_text()
    readme = (folder / "README.md").read_text()
    assert "docker build --tag registry.example/my-thing:1" in readme
    assert "kueuelib manifests my_thing.py --image registry.example/my-thing:1" in readme
    done = kueuelib("manifests", folder / "my_thing.py", "--image", "my-thing:1")
    printed = [*yaml.safe_load_all(done.stdout)]
    (pod,) = (each["spec"]["template"]["spec"] for each in printed if each["kind"] == "Deployment")
    assert pod["containers"][0]["image"] == "my-thing:1"
    refused = kueuelib("manifests", folder / "my_thing.py", "--image", "My:1")
    assert refused.returncode == 2
    assert "--image 'My:1': is not the name of an image" in refused.stderr
    if kind == "check":  # it has a release function, for which the library patches Workloads
        rules = [rule for each in printed for rule in each.get("rules", ())]
        (verbs,) = (rule["verbs"] for rule in rules if rule["resources"] == ["workloads"])
        assert "patch" in verbs


@pytest.mark.parametrize("name", ["a-thing", "my-thing"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_project_is_formatted_and_sorted(kind: str, name: str, tmp_path: Path) -> None:
    run(kind, name, tmp_path)
    for words in (("check", "--select", "E,F,I,UP,B"), ("format", "--check")):
        command = [sys.executable, "-m", "ruff", *words, "--isolated", "."]
        done = subprocess.run(
            command, cwd=tmp_path / name, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_project_can_be_built(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("setuptools", reason="needs setuptools, as the project does")
    run(kind, "my-thing", tmp_path)
    subprocess.run(
        [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "egg_info"],
        cwd=tmp_path / "my-thing",
        timeout=300,
        check=True,
    )
    modules = tmp_path / "my-thing" / "my_thing.egg-info" / "top_level.txt"
    assert modules.read_text() == "my_thing\n"


def test_names_and_folders_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="My: is not a valid name; use lower-case letters"):
        run("check", "My", tmp_path)
    with pytest.raises(ConfigError, match="json: would hide Python's module json"):
        run("check", "json", tmp_path)
    run("check", "mine", tmp_path)
    with pytest.raises(ConfigError, match="mine: exists; choose another name"):
        run("check", "mine", tmp_path)
