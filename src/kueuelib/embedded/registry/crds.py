"""Makes a `Kind` from a CustomResourceDefinition."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from kueuelib.api.meta import Obj
from kueuelib.embedded.registry.cells import since
from kueuelib.embedded.registry.columns import AGE
from kueuelib.embedded.registry.json_path import JsonPath
from kueuelib.embedded.registry.kind import ALL_VERBS, ENDING_VERBS, Column, Kind, Version
from kueuelib.embedded.registry.registry import version_rank
from kueuelib.embedded.schema.structural import StructuralSchema
from kueuelib.machinery.fields import field_of


def kind_of(crd: Obj, revision: int, previous: Kind | None) -> Kind:
    """The kind that a definition describes.

    Args:
        crd: the stored definition.
        revision: the resource version at which it was stored.
        previous: the kind before; None for a new definition.
    """
    spec, names = crd["spec"], crd["spec"]["names"]
    same = {} if previous is None else previous.versions
    versions = {}
    changed = False
    for given in sorted(
        spec["versions"], key=lambda each: version_rank(each["name"]), reverse=True
    ):
        schema: Obj = (given.get("schema") or {}).get("openAPIV3Schema") or {}
        old = same.get(given["name"])
        keep = old is not None and old.openapi == schema
        changed |= not keep
        compiled = old.schema if old is not None and keep else StructuralSchema.of(schema)
        versions[given["name"]] = _version(given, spec["group"], names["kind"], schema, compiled)
    stored = next(given["name"] for given in spec["versions"] if given.get("storage"))
    paths = tuple(dict.fromkeys(p for version in versions.values() for p in version.selectable))
    ending = bool(crd["metadata"].get("deletionTimestamp"))
    since_ = previous.since if previous is not None else 0
    return Kind(
        group=spec["group"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec["scope"] == "Namespaced",
        versions=versions,
        storage=stored,
        list_kind=names.get("listKind") or f"{names['kind']}List",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        builtin=False,
        fields=_describe(versions[stored].selectable),
        field_names=frozenset(paths),
        generation=True,
        conversion=spec.get("conversion"),
        origin=crd["metadata"]["uid"],
        since=revision if changed and previous is not None else since_,
        epoch=revision,
        terminating=ending,
        verbs=ENDING_VERBS if ending else ALL_VERBS,
        unconditional=False,
    )


def _version(given: Obj, group: str, kind: str, schema: Any, compiled: Any) -> Version:
    subresources = given.get("subresources") or {}
    columns = given.get("additionalPrinterColumns")
    deprecation = ""
    if given.get("deprecated"):
        deprecation = given.get("deprecationWarning") or (
            f"{group}/{given['name']} {kind} is deprecated"
        )
    return Version(
        name=given["name"],
        served=bool(given.get("served")),
        openapi=schema,
        schema=compiled,
        columns=tuple(_column(each) for each in columns) if columns else (AGE,),
        status="status" in subresources,
        scale=subresources.get("scale"),
        selectable=tuple(
            each["jsonPath"].removeprefix(".") for each in given.get("selectableFields") or ()
        ),
        deprecation=deprecation,
    )


def _describe(paths: tuple[str, ...]) -> Callable[[Obj], Mapping[str, str]]:
    return lambda obj: {path: value for path in paths if (value := field_of(obj, path))}


def _column(given: Obj) -> Column:
    return Column(
        given["name"],
        given["type"],
        _reader(JsonPath(given["jsonPath"]), given["type"]),
        format=given.get("format") or "",
        description=given.get("description") or "",
        priority=given.get("priority") or 0,
    )


def _reader(path: JsonPath, type_: str) -> Callable[[Obj, float], Any]:
    def read(obj: Obj, now: float) -> Any:
        values = path.find(obj)
        if not values:
            return None
        value = values[0]
        if type_ == "date":
            return since(value, now) if isinstance(value, str) else None
        if type_ == "string":
            return value if isinstance(value, str) else _text(value)
        return _number(value, type_)

    return read


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return json.dumps(value, separators=(",", ":"))


def _number(value: Any, type_: str) -> Any:
    if isinstance(value, bool):
        return value if type_ == "boolean" else None
    if type_ == "integer":
        return value if isinstance(value, int) else None
    return value if type_ == "number" and isinstance(value, int | float) else None
