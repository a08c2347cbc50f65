"""Integrations of others: modules, files, installed packages; mistakes are named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kueuelib.errors import ConfigError
from kueuelib.jobs import plugins
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.pods.integration import POD

EXAMPLE = Path(__file__).parents[3] / "examples" / "custom_job"

SOURCE = """
from kueuelib.api.meta import Resource
from kueuelib.jobs.declared.declarative import Pods, declare

def make(kind):
    resource = Resource("g.example.com", "v1", kind.lower() + "s", kind, namespaced=True)
    return declare(resource, pods=[Pods()], active="a", ready="r", succeeded="s", failed="f")

first = make("First")
second = make("Second")
nothing = 3
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with an entry point."""
    (tmp_path / "plugin_of_a_test.py").write_text(SOURCE)
    meta = tmp_path / "plugin_of_a_test-1.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-of-a-test\nVersion: 1\n")
    (meta / "entry_points.txt").write_text(
        "[kueuelib.jobs]\n"
        "g.example.com/first = plugin_of_a_test:first\n"
        "g.example.com/renamed = plugin_of_a_test:second\n"
        "g.example.com/broken = plugin_of_a_test:third\n"
        "g.example.com/nothing = plugin_of_a_test:nothing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "plugin_of_a_test", raising=False)
    return tmp_path


def test_the_example_takes_at_most_forty_lines() -> None:
    for name in ("training.py", "training_declared.py"):
        lines = (EXAMPLE / name).read_text().splitlines()
        assert len([line for line in lines if line.strip()]) <= 40


@pytest.mark.parametrize("names", [["batch/job"], ["pod"], ["pod", "batch/job", "pod"], []])
def test_jobs_and_pods_have_a_registry_of_their_own(names: list[str]) -> None:
    every = builtin_registry().enabled({*names})
    assert plugins.registry_for(names).enabled({*names}) == every
    assert POD.name == plugins.POD_FRAMEWORK


def test_packages_are_found_by_name_and_not_imported_before(package: Path) -> None:
    assert "g.example.com/first" in plugins.installed()
    assert "plugin_of_a_test" not in sys.modules
    registry = plugins.registry_for(["batch/job", "g.example.com/first"])
    found = registry.enabled(["g.example.com/first"])[0]
    assert found.resource.kind == "First"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("g.example.com/other", "unknown name"),
        ("g.example.com/renamed", "calls itself g.example.com/second"),
        ("g.example.com/broken", "cannot be imported: AttributeError: .*third"),
        ("g.example.com/nothing", "neither an Integration"),
    ],
)
def test_a_bad_package_is_named(package: Path, name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        plugins.registry_for([name])


def test_an_installed_package_that_raises_is_told_with_its_place(package: Path) -> None:
    source = package / "plugin_of_a_test.py"
    source.write_text("\n1 / 0\n")
    with pytest.raises(ConfigError, match=f"{source}, line 2: ZeroDivisionError.*uninstall it"):
        plugins.registry_for(["g.example.com/first"])
