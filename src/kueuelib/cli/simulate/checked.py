"""Checks objects as the API server and the webhooks would: the same schemas, the same rules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from typing import Any

from kueuelib.api.conversion import convert
from kueuelib.api.crd import crd
from kueuelib.api.kinds import KUEUE, V1BETA2
from kueuelib.api.meta import Obj, key_of
from kueuelib.api.validation import RULES
from kueuelib.embedded.decoding import copy_json
from kueuelib.embedded.schema.structural import StructuralSchema
from kueuelib.embedded.schema.typed import TypedSchema
from kueuelib.errors import BadRequest, ConfigError, InvalidObject
from kueuelib.simulator.cluster import KINDS

_INDEX = re.compile(r"\[\d+\]")


def check(objects: Iterable[Obj], file: str) -> None:
    """Refuses objects that a cluster would refuse. Their status is not checked.

    Args:
        objects: raw objects; kinds that a simulation does not read are skipped.
        file: where they are from.

    Raises:
        ConfigError: an object has an unknown field or breaks a rule; the message names the first
            one.
    """
    for obj in objects:
        resource = KINDS.get(obj["kind"])
        if resource is None:
            continue
        try:
            problem, fix = _wrong(obj) if resource.group == KUEUE else _mistyped(obj)
        except (InvalidObject, BadRequest) as error:
            problem, fix = str(error), "correct the object"
        if problem:
            raise ConfigError(f"{file}: {obj['kind']} {key_of(obj)}", problem, fix)


def _wrong(given: Obj) -> tuple[str, str]:
    """What is wrong with a queueing object, and the fix; empty if it is valid."""
    convert(given, V1BETA2)
    obj = copy_json({key: value for key, value in given.items() if key != "status"})
    kind, version = obj["kind"], obj["apiVersion"].rpartition("/")[2]
    openapi = _openapi(kind, version)
    schema = _schema(kind, version)
    unknown = schema.prune(obj)
    if unknown:
        return f'unknown field "{unknown[0]}"', _meant(openapi, unknown[0])
    schema.default(obj)
    obj = RULES[kind].default(obj)
    errors = schema.validate(obj) or RULES[kind].validate(obj, None)
    return "; ".join(map(str, errors)), "correct the field" if len(errors) == 1 else "correct them"


def _mistyped(given: Obj) -> tuple[str, str]:
    """The same for a built-in kind of Kubernetes."""
    resource = KINDS[given["kind"]]
    schema = TypedSchema.of(resource.group, resource.kind)
    obj = copy_json({key: value for key, value in given.items() if key != "status"})
    unknown = schema.prune(obj) if schema is not None else []
    return (f'unknown field "{unknown[0]}"', "remove it") if unknown else ("", "")


@cache
def _openapi(kind: str, version: str) -> Obj:
    versions = crd(kind)["spec"]["versions"]
    entry: Obj = next(one for one in versions if one["name"] == version)
    schema: Obj = entry["schema"]["openAPIV3Schema"]
    return schema


@cache
def _schema(kind: str, version: str) -> StructuralSchema:
    return StructuralSchema.of(_openapi(kind, version))


def _meant(openapi: Obj, path: str) -> str:
    """A known field whose name is similar to an unknown one."""
    *parents, name = _INDEX.sub(".[]", path).split(".")
    node: Any = openapi
    for part in parents:
        node = node["items"] if part == "[]" else node["properties"][part]
    close = get_close_matches(name, node.get("properties", ()), 1)
    return f"did you mean {close[0]}?" if close else "remove it"
