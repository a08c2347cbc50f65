"""A Helm chart and a kustomize base, made of the objects that `kueuelib install` writes.

The templates of the chart only put values into places: `{{ toJson .Values.image }}`, the namespace
also into longer texts, and conditions around the objects that an option adds or changes. Braces of
an object itself are written as they are.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, cast

import attrs

from kueuelib.api.meta import Obj
from kueuelib.api.yaml_text import to_yaml
from kueuelib.app.deployment import Deployed
from kueuelib.app.installation import Installation

_KEEP: Final = {"helm.sh/resource-policy": "keep"}
_PLACE: Final = re.compile(r"'@(\w+)@'")
_BRACES: Final = '{{ "{{" }}'
_FILES: Final[Mapping[str, str]] = {
    "Namespace": "namespace",
    "CustomResourceDefinition": "crds",
    "MutatingWebhookConfiguration": "webhooks",
    "ValidatingWebhookConfiguration": "webhooks",
    "ConfigMap": "manager",
    "Service": "manager",
    "NetworkPolicy": "manager",
    "PodDisruptionBudget": "manager",
    "Deployment": "manager",
    "ServiceMonitor": "manager",
    "APIService": "visibility",
}
"""The file of each kind; all other kinds are permissions."""
_VALUES: Final[Mapping[str, Obj]] = {
    "image": {"type": "string", "minLength": 1, "description": "It must contain kueuelib."},
    "replicas": {
        "type": "integer",
        "minimum": 1,
        "description": "Pods: one decides, the others stand by.",
    },
    "config": {
        "type": "string",
        "minLength": 1,
        "description": "The configuration file (config.kueue.x-k8s.io), without ports.",
    },
    "resources": {"type": "object", "description": "Requests and limits of a pod."},
    "serviceMonitor": {
        "type": "boolean",
        "description": "Whether to write a ServiceMonitor for the Prometheus operator.",
    },
    "dashboards": {
        "type": "boolean",
        "description": "Whether to write a ConfigMap with the dashboard for Grafana.",
    },
    "visibilityPort": {
        "type": "integer",
        "minimum": 0,
        "maximum": 65535,
        "description": "visibilityServer.bindPort of config, 8082 by default; 0 without this key.",
    },
}


def write_chart(folder: Path, installation: Installation) -> list[Path]:
    """Writes a Helm chart.

    Args:
        folder: of the chart; it is created if it is missing.
        installation: its pods have the defaults of the values, of which certificates from
            elsewhere are none; the namespace is that of a release.

    Returns:
        The files.
    """
    files = {f"templates/{name}.yaml": text for name, text in _templates(installation).items()}
    release = version("kueuelib")
    chart = {
        "apiVersion": "v2",
        "name": "kueuelib",
        "description": "Queues Jobs and Pods until there is quota for them.",
        "type": "application",
        "version": release,
        "appVersion": release,
    }
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": False,
        "required": [*_VALUES],
        "properties": _VALUES,
    }
    files["Chart.yaml"] = to_yaml(chart)
    files["values.yaml"] = to_yaml(values_of(_deployed(installation)))
    files["values.schema.json"] = json.dumps(schema, indent=2) + "\n"
    return _write(folder, files)


def write_kustomize(folder: Path, installation: Installation) -> list[Path]:
    """Writes a kustomize base, and returns its files."""
    files = {
        f"{name}.yaml": _documents(objects) for name, objects in _by_file(installation).items()
    }
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    files["kustomization.yaml"] = to_yaml({**head, "resources": [*files]})
    return _write(folder, files)


def values_of(deployed: Deployed) -> Obj:
    """The values of the chart that produce these pods."""
    return {
        "image": deployed.image,
        "replicas": deployed.replicas,
        "config": deployed.config,
        "resources": deployed.resources,
        "serviceMonitor": deployed.service_monitor,
        "dashboards": deployed.dashboards,
        "visibilityPort": deployed.visibility_port or 0,
    }


def _deployed(installation: Installation) -> Deployed:
    assert installation.deployed is not None  # a package is for pods
    return installation.deployed


def _templates(installation: Installation) -> dict[str, str]:
    certificates = _deployed(installation).certificates
    plain = Deployed(image="@image@", config="@config@", certificates=certificates)
    port = cast("int", "@visibilityPort@")
    options = {
        "serviceMonitor": attrs.evolve(plain, service_monitor=True),
        "dashboards": attrs.evolve(plain, dashboards=True),
        "visibilityPort": attrs.evolve(plain, visibility_port=port),
    }
    without = _marked_objects(installation, plain)
    texts: dict[tuple[str, str], str] = {key: _document(obj) for key, obj in without.items()}
    for option, with_it in options.items():
        for key, obj in _marked_objects(installation, with_it).items():
            if obj == without.get(key):
                continue
            otherwise = f"{{{{- else }}}}\n{texts[key]}" if key in texts else ""
            texts[key] = (
                f"{{{{- if .Values.{option} }}}}\n{_document(obj)}{otherwise}{{{{- end }}}}\n"
            )
    templates: dict[str, str] = {}
    for (kind, _), text in texts.items():
        if kind == "Namespace":
            continue  # helm makes it: --create-namespace
        name = _file_of(kind)
        templates[name] = templates.get(name, "") + text
    return templates


def _marked_objects(installation: Installation, deployed: Deployed) -> dict[tuple[str, str], Obj]:
    installation = attrs.evolve(installation, namespace="@namespace@", deployed=deployed)
    return {
        (obj["kind"], obj["metadata"]["name"]): _marked(obj) for obj in installation.manifests()
    }


def _document(obj: Obj) -> str:
    """One object of a template, with expressions for its marks."""
    literal = to_yaml(obj).replace("{{", _BRACES)  # a dashboard has templates of its own
    text = _PLACE.sub(_value, f"---\n{literal}")
    return text.replace("@namespace@", "{{ .Release.Namespace }}")  # inside an expression


def _value(place: re.Match[str]) -> str:
    path = ".Release.Namespace" if place[1] == "namespace" else f".Values.{place[1]}"
    return f"{{{{ toJson {path} }}}}"


def _marked(obj: Obj) -> Obj:
    """The object with marks for values that are not text; some objects outlive the release."""
    obj = copy.deepcopy(obj)
    if obj["kind"] == "Deployment":
        obj["spec"]["replicas"] = "@replicas@"
        obj["spec"]["template"]["spec"]["containers"][0]["resources"] = "@resources@"
    # Helm deletes all roles at once, and a cluster makes one that collects deleted ones again.
    if obj["kind"] == "CustomResourceDefinition" or "aggregationRule" in obj:
        obj["metadata"]["annotations"] = dict(_KEEP)
    return obj


def _by_file(installation: Installation) -> dict[str, list[Obj]]:
    by_file: dict[str, list[Obj]] = {}
    for obj in installation.manifests():
        by_file.setdefault(_file_of(obj["kind"]), []).append(obj)
    return by_file


def _file_of(kind: str) -> str:
    return _FILES.get(kind, "permissions")


def _documents(objects: Iterable[Any]) -> str:
    return "---\n".join(to_yaml(obj) for obj in objects)


def _write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    written = []
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
