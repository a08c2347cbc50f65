"""Reads `samples.yaml`: CRDs with just the fields that are used, jobs, and what they go through."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import attrs
import yaml

from kueuelib.api.meta import Resource
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.jobs.contract.integration import REFERRED, Integration

Obj = dict[str, Any]
TIME = "2024-01-01T00:00:00Z"
POD: Obj = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
    },
}
_TEXTS = {"*": "string"}
_ANY = {"x-kubernetes-preserve-unknown-fields": True}
_NAMED: dict[str, Any] = {
    "PodTemplate": {
        "metadata": {"labels": _TEXTS, "annotations": _TEXTS},
        "spec": {
            "containers": [{"name": "string+", "image": "string", "resources": "any"}],
            "restartPolicy": "string",
            "priorityClassName": "string",
            "nodeSelector": _TEXTS,
            "tolerations": [
                {"key": "string", "operator": "string", "value": "string", "effect": "string"}
            ],
        },
    },
    "PodPatch": {
        "metadata": {"labels": _TEXTS, "annotations": _TEXTS},
        "spec": {
            "nodeSelector": _TEXTS,
            "tolerations": [
                {"key": "string", "operator": "string", "value": "string", "effect": "string"}
            ],
        },
    },
    "Conditions": [
        {
            "type": "string+",
            "status": "string+",
            "reason": "string+",
            "message": "string+",
            "lastTransitionTime": "string+",
        }
    ],
}


@attrs.frozen
class Sample:
    """One kind.

    Attributes:
        integration: what is tested.
        content: its part of the file.
    """

    integration: Integration
    content: Obj

    @property
    def resource(self) -> Resource:
        return self.integration.resource

    def job(self, **meta: Any) -> Obj:
        """A job as its user creates it."""
        head = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        return {**head, "metadata": {"name": "j", **meta}, "spec": _with_pods(self.content["spec"])}

    def status(self, state: str) -> Obj:
        """What its controller writes in a state."""
        content = copy.deepcopy(self.content[state])
        if "conditions" in content:
            content["conditions"] = [_condition(type_) for type_ in content["conditions"]]
        return content

    @property
    def referred(self) -> Obj | None:
        """What the job refers to."""
        given = self.content.get("referred")
        if given is None:
            return None
        head = {"apiVersion": self.resource.api_version, "kind": given["kind"]}
        name = self.content["spec"]["runtimeRef"]["name"]
        return {**head, "metadata": {"name": name}, "spec": _with_pods(given["spec"])}

    def complete(self, obj: Obj) -> Obj:
        """A job with what it refers to."""
        return obj if self.referred is None else {**obj, REFERRED: self.referred}

    @property
    def crds(self) -> list[Obj]:
        """Definitions with the fields that are used."""
        parts = _renamed(self.content["schema"], self.content.get("replicas", ""))
        crds = [self._crd(self.resource.kind, "Namespaced", parts)]
        given = self.content.get("referred")
        return [*crds, self._crd(given["kind"], "Cluster", given["schema"])] if given else crds

    def _crd(self, kind: str, scope: str, parts: Obj) -> Obj:
        return definition(self.resource, kind, scope, parts)


def definition(resource: Resource, kind: str, scope: str, parts: Obj) -> Obj:
    """A CRD of a kind in the group and version of `resource`, with fields in short form."""
    group, plural = resource.group, f"{kind.lower()}s"
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": _schema(parts)},
    }
    names = {"plural": plural, "kind": kind, "singular": kind.lower()}
    spec = {"group": group, "names": names, "scope": scope, "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    approval = {"api-approved.kubernetes.io": "unapproved, a sample"}  # groups in k8s.io need it
    return {
        **head,
        "metadata": {"name": f"{plural}.{group}", "annotations": approval},
        "spec": spec,
    }


def _condition(type_: str) -> Obj:
    text = f"It is {type_}"
    parts = {"reason": type_, "message": text, "lastTransitionTime": TIME}
    return {"type": type_, "status": "True", **parts}


def _with_pods(part: Any) -> Any:
    if part == "POD":
        return copy.deepcopy(POD)
    if isinstance(part, dict):
        return {key: _with_pods(value) for key, value in part.items()}
    return [_with_pods(item) for item in part] if isinstance(part, list) else part


def _renamed(schema: Obj, replicas: str) -> Obj:
    spec = {replicas if key == "REPLICAS" else key: each for key, each in schema["spec"].items()}
    return {**schema, "spec": spec}


def _schema(short: Any) -> Obj:
    if isinstance(short, list):
        return {"type": "array", "items": _schema(short[0])}
    if isinstance(short, dict):
        if "*" in short:
            return {"type": "object", "additionalProperties": _schema(short["*"])}
        required = [key for key, each in short.items() if isinstance(each, str) and each[-1] == "+"]
        schema: Obj = {"type": "object", "properties": {k: _schema(v) for k, v in short.items()}}
        return {**schema, "required": required} if required else schema
    if short in _NAMED:
        return _schema(_NAMED[short])
    if short == "any":
        return {"type": "object", **_ANY}
    type_, equals, default = short.rstrip("+").partition("=")
    more = {"default": int(default) if type_ == "integer" else default} if equals else {}
    return {"type": type_, **more}


def samples() -> dict[str, Sample]:
    """All of them, by the name of the integration."""
    known = {integration.name: integration for integration in builtin_registry().integrations}
    text = Path(__file__).with_suffix(".yaml").read_text()
    return {
        name: Sample(known[name], each) for name, each in yaml.load(text, yaml.CSafeLoader).items()
    }
