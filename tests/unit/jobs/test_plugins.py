"""Integrations of others: modules, files, installed packages; mistakes are named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kueuelib.errors import ConfigError
from kueuelib.jobs import plugins
from kueuelib.jobs.generic_job import GenericJob

EXAMPLE = Path(__file__).parents[3] / "examples" / "custom_job"

SOURCE = """
from kueuelib.api.meta import Resource
from kueuelib.jobs.declarative import Pods, declare

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


@pytest.mark.parametrize("name", ["training.py", "training_declared.py", "training.py:Training"])
def test_a_file_holds_one_integration(name: str) -> None:
    found = plugins.load(str(EXAMPLE / name))
    assert found.name == "ml.example.com/training"
    assert issubclass(found.job_type, GenericJob)


def test_the_example_takes_at_most_forty_lines() -> None:
    for name in ("training.py", "training_declared.py"):
        lines = (EXAMPLE / name).read_text().splitlines()
        assert len([line for line in lines if line.strip()]) <= 40


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
        ("g.example.com/broken", "cannot be loaded"),
        ("g.example.com/nothing", "no Integration"),
    ],
)
def test_a_bad_package_is_named(package: Path, name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        plugins.registry_for([name])


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("plugin_of_a_test", "holds 2 integrations.*first, second"),
        ("plugin_of_a_test:nothing", "name one of: first, second"),
        ("plugin_of_a_test:absent", "no Integration"),
        ("absent_module_of_a_test", "cannot be imported"),
        ("absent.py", "No such file"),
    ],
)
def test_a_bad_reference_is_named(package: Path, reference: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){problem}"):
        plugins.load(reference)


def test_one_of_several_is_chosen_by_name(package: Path) -> None:
    assert plugins.load("plugin_of_a_test:second").name == "g.example.com/second"


@pytest.mark.parametrize("text", ["def", "raise ValueError('wrong')", "1 / 0", "import missing_x"])
def test_a_module_that_cannot_be_imported_is_one_clear_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken_module.py"
    path.write_text(text)
    with pytest.raises(ConfigError, match="cannot be imported"):
        plugins.load(str(path))


def test_no_module_at_all_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match="cannot be imported"):
        plugins.load("")
