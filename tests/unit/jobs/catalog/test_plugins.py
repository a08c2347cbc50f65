"""Integrations of others: modules, files, installed packages; mistakes are named."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from kueuelib.errors import ConfigError
from kueuelib.jobs.catalog import plugins
from kueuelib.jobs.contract.generic_job import GenericJob

EXAMPLE = Path(__file__).parents[4] / "examples" / "custom_job"

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
        ("g.example.com/broken", "cannot be imported: AttributeError: .*third"),
        ("g.example.com/nothing", "neither an Integration"),
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
        ("plugin_of_a_test:absent", "neither an Integration"),
        ("absent_module_of_a_test", "cannot be imported"),
        ("absent.py", "No such file"),
        ("", "MODULE: no module is named"),
        (":name", "no module is named"),
        (".relative", "is not the name of a module"),
        ("plugin_of_a_test:", "nothing is neither an Integration.*name one of: first, second"),
    ],
)
def test_a_bad_reference_is_named(package: Path, reference: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){problem}"):
        plugins.load(reference)


def test_one_of_several_is_chosen_by_name(package: Path) -> None:
    assert plugins.load("plugin_of_a_test:second").name == "g.example.com/second"


@pytest.mark.parametrize(
    ("source", "line", "problem"),
    [
        ("x = 1\ndef f(:\n", 2, "SyntaxError: invalid syntax"),
        ("\nx = 1 / 0\n", 2, "ZeroDivisionError: division by zero"),
        ("import absent_module_of_a_test\n", 1, "ModuleNotFoundError: No module named"),
        ("\nraise ValueError('one\\ntwo')\n", 2, "ValueError: one two"),
        ("import json\njson.loads('{')\n", 2, "JSONDecodeError: "),
        ("import sys\n\nsys.exit(3)\n", 3, "it ends the process with 3"),
        (SOURCE.replace("pods=[Pods()]", "pods=[]"), 7, "ValueError: First: pods is empty"),
        (SOURCE.replace("Pods()", 'Pods("a", "b..c")'), 7, "template='b..c' is not a path"),
    ],
)
@pytest.mark.parametrize("as_file", [True, False])
def test_whatever_a_module_raises_is_told_in_one_line_with_its_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    line: int,
    problem: str,
    as_file: bool,
) -> None:
    path = tmp_path / "broken_plugin_of_a_test.py"
    path.write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    with pytest.raises(ConfigError) as caught:
        plugins.load(str(path) if as_file else path.stem)
    told = str(caught.value)
    assert f"{path}, line {line}: " in told
    assert problem in told
    assert "correct it" in told
    assert "\n" not in told
    assert path.stem not in sys.modules


def test_the_fix_of_an_error_with_one_is_what_is_said(tmp_path: Path) -> None:
    path = tmp_path / "wrong_plugin_of_a_test.py"
    path.write_text("from kueuelib.jobs import Integration\nintegration = Integration.of({})\n")
    with pytest.raises(ConfigError) as caught:
        plugins.load(str(path))
    assert str(caught.value).startswith(
        f"{path}: cannot be imported: {path}, line 2: Integration.of"
    )
    assert str(caught.value).endswith("dict is not a class; write Integration.of(dict)")


def test_an_installed_package_that_raises_is_told_with_its_place(package: Path) -> None:
    source = package / "plugin_of_a_test.py"
    source.write_text("\n1 / 0\n")
    with pytest.raises(ConfigError, match=f"{source}, line 2: ZeroDivisionError.*uninstall it"):
        plugins.registry_for(["g.example.com/first"])


KIND = """
from kueuelib.api.meta import Resource
from kueuelib.jobs.batch.job import BatchJob

class Mine(BatchJob):
    resource = Resource({group!r}, "v1", "jobs", {kind!r}, namespaced={namespaced})
"""


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (("batch", "Job", True), r"the manager queues jobs of kind Job \(batch/v1\) itself"),
        (("g.example.com", "Job", False), "namespaced=False.*correct Mine.resource"),
        (("g.example.com", "job", True), "kind='job' is not a kind.*correct Mine.resource"),
    ],
)
def test_a_kind_that_is_taken_or_cannot_be_queued_is_refused(
    tmp_path: Path, kind: tuple[str, str, bool], problem: str
) -> None:
    path = tmp_path / "kind_of_a_test.py"
    path.write_text(KIND.format(**dict(zip(("group", "kind", "namespaced"), kind, strict=True))))
    with pytest.raises(ConfigError, match=problem):
        plugins.load(str(path))
