"""The parts of every CustomResourceDefinition, ours and those of users."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

import orjson

from kueuelib.api.meta import Obj, Resource
from kueuelib.api.struct import frozen

CONVERSION_PATH: Final = "/convert"
"""Where conversion webhooks are served, unless an operator has several kinds with versions."""
_STEP: Final = re.compile(
    r"\.(?P<field>[A-Za-z_][\w-]*)|\['(?P<quoted>[^'\\]+)'\]|(?P<inner>\[[^\]]*\])"
)
"""A step of a JSON path: a field, or the items of a list."""
_TEXT: Final = re.compile(
    r"""r?(\"{3}.*?\"{3}|'{3}.*?'{3}|"(\\.|[^"\\])*"|'(\\.|[^'\\])*')""", re.DOTALL
)
"""A text in CEL."""
_CHAIN: Final = re.compile(r"(?<![\w.])(?:self|oldSelf)((?:\s*\.\s*[A-Za-z_]\w*)+)(?P<call>\s*\()?")
"""The fields of an object in CEL; if a call follows, its last name is that of the function."""


@frozen
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


@frozen
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


def unknown_field(schema: Mapping[str, Any], path: str) -> str:
    """What is wrong with a JSON path such as `.spec.size`; empty if nothing can be said.

    Args:
        schema: of the object.
        path: where its steps are not fields of the schema, or items, the rest is not checked.
    """
    if path[:1] not in (".", "[", "{", "$"):
        return f"{path} does not begin with a dot: write .{path}"
    place, at = schema, 0
    while step := _STEP.match(path, at):
        if step["inner"]:
            place = place.get("items") or place.get("additionalProperties") or {}
        elif problem := _no_property(place, step["field"] or step["quoted"], path[:at]):
            return problem
        else:
            place = place.get("properties", {}).get(step["field"] or step["quoted"], {})
        if not isinstance(place, Mapping):
            break
        at = step.end()
    return ""


def unknown_names(schema: Mapping[str, Any], cel: str) -> Iterator[str]:
    """What is wrong with the fields that an expression in CEL names.

    Args:
        schema: at the place of the rule.
        cel: whether it can be parsed is not checked.
    """
    for chain in _CHAIN.finditer(_TEXT.sub('""', cel)):
        *names, last = re.findall(r"\w+", chain[1])
        place, path = schema, "self"
        for name in names if chain["call"] else [*names, last]:
            if "__" in name:  # escaped, such as `__namespace__`
                break
            if problem := _no_property(place, name, path):
                yield problem
                break
            path = f"{path}.{name}"
            place = place.get("properties", {}).get(name, {})


def _no_property(schema: Mapping[str, Any], name: str, path: str) -> str:
    """Why a schema has no such property; empty if it has, or lists none."""
    properties = schema.get("properties")
    if not properties or name in properties or schema.get("x-kubernetes-preserve-unknown-fields"):
        return ""
    near = get_close_matches(name, properties, 1) or sorted(properties)
    words = "did you mean" if len(near) == 1 else "the fields are"
    return f"{path}.{name} is not a field; {words} {', '.join(near)}{'?' * (len(near) == 1)}"
