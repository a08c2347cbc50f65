"""The parts of every CustomResourceDefinition, ours and those of users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import orjson

from kueuelib.api.meta import Obj, Resource

CONVERSION_PATH: Final = "/convert"
"""Where conversion webhooks are served, unless an operator has several kinds with versions."""


@attrs.frozen
class Column:
    """What `kubectl get` prints besides the name.

    Attributes:
        name: the heading.
        path: a JSON path, for example `.spec.size`.
        type: `string`, `integer`, `number`, `boolean` or `date`.
        priority: 0 is always shown; greater ones only with `-o wide`.
    """

    name: str
    path: str
    type: str = "string"
    priority: int = 0

    @property
    def raw(self) -> Obj:
        """The entry of `additionalPrinterColumns`."""
        entry: Obj = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**entry, "priority": self.priority} if self.priority else entry


@attrs.frozen
class Rule:
    """A rule in CEL (`x-kubernetes-validations`).

    Attributes:
        at: the place in the schema, for example `spec.podSets[]`; empty for the whole object.
        cel: what must hold.
        message: what is wrong, and what to do about it.
        field: the field below the place that is wrong, for example `.minCount`.
        reason: of the field error.
        version: the only version that has the rule; empty for all.
    """

    at: str
    cel: str
    message: str
    field: str = ""
    reason: str = "FieldValueInvalid"
    version: str = ""

    @property
    def raw(self) -> Obj:
        """The entry of `x-kubernetes-validations`."""
        entry = {"rule": self.cel, "message": self.message, "reason": self.reason}
        return {**entry, "fieldPath": self.field} if self.field else entry


def assembled(
    resource: Resource, names: Mapping[str, Any], conversion: Obj, versions: Sequence[Obj]
) -> Obj:
    """A whole CustomResourceDefinition.

    Args:
        resource: the kind.
        names: further entries of `spec.names`.
        conversion: `spec.conversion`.
        versions: the entries of `spec.versions`.
    """
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                **names,
            },
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "conversion": conversion,
            "versions": list(versions),
        },
    }
    copy: Obj = orjson.loads(orjson.dumps(crd))  # no parts in common with anything
    return copy


def webhook_conversion(client_config: Obj) -> Obj:
    """The `spec.conversion` that calls a webhook."""
    return {
        "strategy": "Webhook",
        "webhook": {"clientConfig": client_config, "conversionReviewVersions": ["v1"]},
    }


def version_entry(
    name: str,
    schema: Obj,
    *,
    stored: bool,
    served: bool = True,
    columns: Iterable[Column] = (),
    rules: Iterable[Rule] = (),
    selectable: Sequence[str] = (),
) -> Obj:
    """One entry of `spec.versions`; the rules are put into the schema."""
    for rule in rules:
        place = node(schema, rule.at)
        place.setdefault("x-kubernetes-validations", []).append(rule.raw)
    entry: Obj = {
        "name": name,
        "served": served,
        "storage": stored,
        "schema": {"openAPIV3Schema": schema},
    }
    if "status" in schema["properties"]:
        entry["subresources"] = {"status": {}}
    if printed := [column.raw for column in columns]:
        entry["additionalPrinterColumns"] = printed
    if selectable:
        entry["selectableFields"] = [{"jsonPath": path} for path in selectable]
    return entry


def node(schema: Obj, path: str) -> Obj:
    """The schema at a path; `[]` stands for the items of a list, `{}` for the values of a map.

    Raises:
        KeyError: there is no such place.
    """
    for step in path.replace("[]", ".[]").replace("{}", ".{}").split("."):
        if step == "[]":
            schema = schema["items"]
        elif step == "{}":
            schema = schema["additionalProperties"]
        elif step:
            schema = schema["properties"][step]
    return schema
