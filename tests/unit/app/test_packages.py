"""The chart and the kustomize base say what `kueuelib install` writes.

Helm need not be there: the templates are simple enough to be rendered here. Where it is, and where
kubectl can build a kustomize base, they are asked too.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kueuelib.api.meta import Obj
from kueuelib.app.deployment import NAME, Deployed
from kueuelib.app.installation import Installation
from kueuelib.app.packages import values_of, write_chart, write_kustomize
from kueuelib.cli.syntax import app

CHANGED = Deployed(
    image="registry.example/k:2",
    replicas=3,
    config='apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n# "{{ x }}"\n',
    resources={"limits": {"memory": "1Gi"}},
    service_monitor=True,
    dashboards=True,
    visibility_port=8082,
)
ACTION = re.compile(r"\{\{ toJson \.(\w+)\.(\w+) \}\}")
NAMESPACE = "{{ .Release.Namespace }}"
BRACES = '{{ "{{" }}'
CONDITION = re.compile(
    r"\{\{- if \.Values\.(\w+) \}\}\n(.*?)(?:\{\{- else \}\}\n(.*?))?\{\{- end \}\}\n", re.DOTALL
)


def rendered(chart: Path, namespace: str, values: dict[str, Any]) -> list[Obj]:
    """What helm makes of a chart whose templates only put values into places."""
    found: list[Obj] = []
    known = {"Values": values, "Release": {"Namespace": namespace}}
    for path in sorted((chart / "templates").iterdir()):
        text = path.read_text()
        text = CONDITION.sub(lambda one: one[2] if values[one[1]] else one[3] or "", text)
        text = text.replace(NAMESPACE, namespace)
        parts = [*re.split(re.escape(BRACES), text)]
        assert all("{{" not in ACTION.sub("", part) for part in parts), path
        value = lambda one: json.dumps(known[one[1]][one[2]])  # noqa: E731
        text = "{{".join(ACTION.sub(value, part) for part in parts)
        found += [obj for obj in yaml.load_all(text, yaml.CSafeLoader) if obj]
    return found


def by_name(objects: list[Obj]) -> dict[tuple[str, str], Obj]:
    found = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}
    assert len(found) == len(objects)
    for obj in objects:
        for entry in obj.get("webhooks", ()):
            for one in (entry.get("namespaceSelector") or {}).get("matchExpressions", ()):
                if "values" in one:  # the usual name may come twice
                    one["values"] = [*dict.fromkeys(one["values"])]
    return found


def wanted(namespace: str, deployed: Deployed) -> dict[tuple[str, str], Obj]:
    """The objects of a release: those of the plan, without the namespace, CRDs that stay."""
    objects = by_name(Installation(namespace, deployed=deployed).manifests())
    del objects["Namespace", namespace]
    for obj in objects.values():
        if obj["kind"] == "CustomResourceDefinition" or "aggregationRule" in obj:
            obj["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    return objects


@pytest.mark.parametrize(
    ("namespace", "deployed"),
    [
        ("kueue-system", Deployed()),
        ("kueue-system", Deployed(visibility_port=9000)),
        ("123", CHANGED),
    ],
)
def test_the_chart_gives_what_is_installed(
    tmp_path: Path, namespace: str, deployed: Deployed
) -> None:
    write_chart(tmp_path, Installation("kueue-system", deployed=Deployed()))
    assert by_name(rendered(tmp_path, namespace, values_of(deployed))) == wanted(
        namespace, deployed
    )
    if helm := shutil.which("helm"):
        given = tmp_path / "given.yaml"
        given.write_text(yaml.safe_dump(values_of(deployed)))
        command = [helm, "template", "r", str(tmp_path), "-n", namespace, "-f", str(given)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        objects = [obj for obj in yaml.load_all(done.stdout, yaml.CSafeLoader) if obj]
        assert by_name(objects) == wanted(namespace, deployed)


def test_the_chart_registers_the_visibility_api_only_with_a_port(tmp_path: Path) -> None:
    write_chart(tmp_path, Installation("kueue-system", deployed=Deployed()))
    values = values_of(Deployed())
    for port, versions in ((0, 0), (8082, 3)):
        objects = by_name(rendered(tmp_path, "ns", {**values, "visibilityPort": port}))
        assert sum(kind == "APIService" for kind, _ in objects) == versions
        (container,) = objects["Deployment", NAME]["spec"]["template"]["spec"]["containers"]
        served = [one["containerPort"] for one in container["ports"] if one["name"] == "visibility"]
        assert served == [port] * bool(port)


def test_the_values_are_described_and_nothing_else_is_taken(tmp_path: Path) -> None:
    write_chart(tmp_path, Installation("kueue-system", deployed=Deployed()))
    schema = json.loads((tmp_path / "values.schema.json").read_text())
    values = yaml.load((tmp_path / "values.yaml").read_text(), yaml.CSafeLoader)
    used = {
        name
        for path in (tmp_path / "templates").iterdir()
        for name in re.findall(r"\.Values\.(\w+)", path.read_text())
    }
    assert used == {*values} == {*schema["properties"]} == {*schema["required"]}
    assert schema["additionalProperties"] is False
    types = {"string": str, "integer": int, "object": dict, "boolean": bool}
    for name, value in values.items():
        assert type(value) is types[schema["properties"][name]["type"]]
        assert schema["properties"][name]["description"]


def test_the_kustomize_base_gives_what_is_installed(tmp_path: Path) -> None:
    plan = Installation("queues", deployed=CHANGED)
    write_kustomize(tmp_path, plan)
    base = yaml.load((tmp_path / "kustomization.yaml").read_text(), yaml.CSafeLoader)
    objects = [
        obj
        for name in base["resources"]
        for obj in yaml.load_all((tmp_path / name).read_text(), yaml.CSafeLoader)
    ]
    assert by_name(objects) == by_name(plan.manifests())
    assert {path.name for path in tmp_path.iterdir()} == {*base["resources"], "kustomization.yaml"}
    if kubectl := shutil.which("kubectl"):
        command = [kubectl, "kustomize", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        assert by_name([*yaml.load_all(done.stdout, yaml.CSafeLoader)]) == by_name(plan.manifests())


def test_the_command_writes_both(tmp_path: Path) -> None:
    chart, base = tmp_path / "chart", tmp_path / "base"
    args = ["install", "--chart", str(chart), "--kustomize", str(base), "--image", "i:9"]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0, done.output
    assert f"{chart / 'values.schema.json'} written" in done.output
    assert yaml.load((chart / "values.yaml").read_text(), yaml.CSafeLoader)["image"] == "i:9"
    assert "i:9" in (base / "manager.yaml").read_text()
    assert yaml.load((chart / "Chart.yaml").read_text(), yaml.CSafeLoader)["apiVersion"] == "v2"
