"""What `kueuelib run` and `kueuelib manifests` are given; mistakes are named in one line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kueuelib.app.programs import load
from kueuelib.cli import manifests
from kueuelib.errors import ConfigError
from kueuelib.jobs import GenericJob, Integration
from kueuelib.runtime import Operator

EXAMPLES = Path(__file__).parents[3] / "examples"
EXAMPLE = EXAMPLES / "custom_job"

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


OPERATOR = "from kueuelib.runtime import Operator\napp = Operator('mine')\n"
CHECK = """
from kueuelib.checks import Ready, check

@check("example.com/{name}")
async def {name}(workload, parameters):
    return Ready()
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with two integrations."""
    (tmp_path / "plugin_of_a_test.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "plugin_of_a_test", raising=False)


def printed(capsys: pytest.CaptureFixture[str], *references: str, **options: Any) -> list[Any]:
    """The objects that `kueuelib manifests` prints."""
    given = {"namespace": None, "image": "mine:1", "webhook_url": None, "plugin": False, **options}
    manifests.run(references, **given)
    return [*yaml.load_all(capsys.readouterr().out, yaml.CSafeLoader)]


@pytest.mark.usefixtures("package")
def test_one_process_gets_what_all_its_kinds_need(capsys: pytest.CaptureFixture[str]) -> None:
    """It has the names of the first, and the command of its image."""
    both = ("plugin_of_a_test:first", "plugin_of_a_test:second")
    objects = printed(capsys, *both)
    named = {obj["kind"]: obj for obj in objects}
    assert {obj["metadata"]["name"].removesuffix("-owners") for obj in objects} == {
        "kueuelib-firsts-g-example-com"
    }
    hooks = named["MutatingWebhookConfiguration"]["webhooks"]
    assert {rule["resources"][0] for hook in hooks for rule in hook["rules"]} == {
        "firsts",
        "seconds",
    }
    role = next(obj for obj in objects if obj["kind"] == "ClusterRole")
    watched = {name for rule in role["rules"] for name in rule["resources"]}
    assert {"firsts", "seconds", "firsts/status", "seconds/status"} <= watched
    (definitions,) = (r for r in role["rules"] if r["resources"] == ["customresourcedefinitions"])
    assert definitions["resourceNames"] == ["firsts.g.example.com", "seconds.g.example.com"]
    (container,) = named["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "mine:1"
    assert not {"command", "args", "livenessProbe", "readinessProbe"} & {*container}
    (alone,) = (o for o in printed(capsys, both[0]) if o["kind"] == "Deployment")
    (container,) = alone["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["kueuelib", "run", both[0]]
    names = [obj["metadata"]["name"] for obj in printed(capsys, *both, plugin=True)]
    assert names == [
        *["kueuelib-firsts-g-example-com-plugin"] * 2,
        *["kueuelib-seconds-g-example-com-plugin"] * 2,
    ]


@pytest.mark.usefixtures("package")
def test_only_kinds_of_jobs_are_named_together(tmp_path: Path) -> None:
    (tmp_path / "operator_of_a_test.py").write_text(OPERATOR)
    operator = str(tmp_path / "operator_of_a_test.py")
    with pytest.raises(ConfigError, match="is not a kind of jobs"):
        manifests.run(["plugin_of_a_test:first", operator], None, "i", None, plugin=False)


@pytest.mark.parametrize("name", ["training.py", "training_declared.py", "training.py:Training"])
def test_a_file_holds_one_integration(name: str) -> None:
    found = load(str(EXAMPLE / name))
    assert isinstance(found, Integration)
    assert found.name == "ml.example.com/training"
    assert issubclass(found.job_type, GenericJob)


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("plugin_of_a_test", "holds 2 integrations.*first, second"),
        (
            "plugin_of_a_test:nothing",
            r"nothing is neither an operator nor .* offers first \(job kind\), second \(job kind\)",
        ),
        ("plugin_of_a_test:absent", "plugin_of_a_test has no absent; .* offers first"),
        ("absent_module_of_a_test", "cannot be imported"),
        ("absent.py", "No such file"),
        ("plugin_of_a_test.second", "is not a package; write plugin_of_a_test:second$"),
        ("plugin_of_a_test.absent", "is not a package; correct it"),
        ("", "MODULE: no module is named"),
        (":name", "no module is named"),
        (".relative", "is not the name of a module"),
        ("plugin_of_a_test:", "no name follows the colon; plugin_of_a_test offers first"),
    ],
)
@pytest.mark.usefixtures("package")
def test_a_bad_reference_is_named(reference: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){problem}"):
        load(reference)


@pytest.mark.usefixtures("package")
def test_one_of_several_is_chosen_by_name() -> None:
    found = load("plugin_of_a_test:second")
    assert isinstance(found, Integration)
    assert found.name == "g.example.com/second"


@pytest.mark.parametrize("reference", ["05_operator.py", "05_operator.py:app"])
def test_a_file_holds_an_operator(reference: str) -> None:
    found = load(str(EXAMPLES / reference))
    assert isinstance(found, Operator)
    assert found.name == "sites"


def test_all_checks_of_a_file_run_together_and_one_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "checks_of_a_test.py"
    path.write_text(CHECK.format(name="one") + CHECK.format(name="two"))
    both, two = load(str(path)), load(f"{path}:two")
    assert isinstance(both, tuple)
    assert isinstance(two, tuple)
    assert [check.controller_name for check in both] == ["example.com/one", "example.com/two"]
    assert [check.controller_name for check in two] == ["example.com/two"]


@pytest.mark.parametrize(
    ("source", "name", "problem"),
    [
        ("", "", "holds nothing to run; make an Operator, declare a job kind, or"),
        ("x = 1\n", ":x", "x is neither an operator .* offers nothing"),
        (OPERATOR, ":foo", r"has no foo; .* offers app \(operator\)"),
        (OPERATOR, ":app.x", r"has no app.x; .* offers app \(operator\)"),
        (OPERATOR + CHECK.format(name="one"), ":foo", r"app \(operator\), one \(check\)"),
        (OPERATOR + CHECK.format(name="one"), "", r"more than one program; .* one \(check\)"),
        (OPERATOR + OPERATOR.replace("app =", "other ="), "", r"app \(operator\), other \(op"),
    ],
)
def test_what_a_file_offers_is_said_if_nothing_fits(
    tmp_path: Path, source: str, name: str, problem: str
) -> None:
    path = tmp_path / "offers_of_a_test.py"
    path.write_text(source)
    with pytest.raises(ConfigError, match=problem) as caught:
        load(f"{path}{name}")
    assert "\n" not in str(caught.value)


def test_a_file_is_executed_once(tmp_path: Path) -> None:
    path = tmp_path / "counting_of_a_test.py"
    count = tmp_path / "count"
    path.write_text(f"{OPERATOR}\n\nwith open({str(count)!r}, 'a') as file:\n    file.write('x')\n")
    load(str(path))
    assert count.read_text() == "x"


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
        load(str(path) if as_file else path.stem)
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
        load(str(path))
    assert str(caught.value).startswith(
        f"{path}: cannot be imported: {path}, line 2: Integration.of"
    )
    assert str(caught.value).endswith("dict is not a class; write Integration.of(dict)")


KIND = """
from kueuelib.api.meta import Resource
from kueuelib.jobs.batch import BatchJob

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
        load(str(path))
