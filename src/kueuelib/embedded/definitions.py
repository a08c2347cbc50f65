"""The life of CustomResourceDefinitions: their kinds are made, served, and removed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import attrs

from kueuelib.api.kinds import CRDS
from kueuelib.api.meta import Obj, ObjectKey, is_true
from kueuelib.embedded.committing import Commits
from kueuelib.embedded.deleting import Deletes
from kueuelib.embedded.registry.cells import AGE, JsonPath, since
from kueuelib.embedded.registry.crd_rules import CLEANUP, ESTABLISHED, CrdRules
from kueuelib.embedded.registry.kinds import (
    ALL_VERBS,
    ENDING_VERBS,
    Kind,
    KindVersion,
    PrinterColumn,
    Registry,
    version_rank,
)
from kueuelib.embedded.schema.structural import StructuralSchema
from kueuelib.embedded.storage import StaleWrite, Storage, StorageEvent
from kueuelib.embedded.verbs import DeleteOptions
from kueuelib.errors import ApiError
from kueuelib.machinery.selectors import field_of

# ---- makes a `Kind` from a CustomResourceDefinition ----------------------------------------------


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
        since=revision if changed and previous is not None else since_,
        epoch=revision,
        terminating=ending,
        verbs=ENDING_VERBS if ending else ALL_VERBS,
        unconditional=False,
    )


def _version(given: Obj, group: str, kind: str, schema: Any, compiled: Any) -> KindVersion:
    subresources = given.get("subresources") or {}
    columns = given.get("additionalPrinterColumns")
    deprecation = ""
    if given.get("deprecated"):
        deprecation = given.get("deprecationWarning") or (
            f"{group}/{given['name']} {kind} is deprecated"
        )
    return KindVersion(
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


def _column(given: Obj) -> PrinterColumn:
    return PrinterColumn(
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


# --------------------------------------------------------------------------------------------------

RETRY_SECONDS = 1.0


@attrs.define(eq=False)
class Definitions:
    """Keeps the registry equal to the stored definitions.

    Args:
        storage: of the objects.
        registry: of the served kinds.
        rules: decide whether names are free.
        now: the time, seconds since the epoch.
        commits: receives every change.
        deletes: removes the objects of a deleted definition.
        withdrawn: called for a kind that is no longer served.
        changed: called, in the background, for a kind whose definition has changed.
    """

    _storage: Storage
    _registry: Registry
    _rules: CrdRules
    _now: Callable[[], float]
    _commits: Commits
    _deletes: Deletes
    _withdrawn: Callable[[Kind], None]
    _changed: Callable[[Kind], Coroutine[Any, Any, None]]
    _cleaning: dict[str, asyncio.Task[None]] = attrs.field(init=False, factory=dict)
    _renewing: dict[str, asyncio.Task[None]] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self._commits.listen(self._notice)

    async def close(self) -> None:
        """Stops background tasks."""
        tasks = [*self._cleaning.values(), *self._renewing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def restore(self, crd: Obj, revision: int) -> None:
        """Serves a definition of an earlier process.

        Args:
            crd: the stored definition.
            revision: when it was stored; older objects may have another shape.
        """
        if not is_true(crd, ESTABLISHED):
            return
        self._registry.install(attrs.evolve(kind_of(crd, revision, None), since=revision))
        if crd["metadata"].get("deletionTimestamp"):
            self._begin_cleaning(crd)

    def _notice(self, kind: Kind, change: StorageEvent) -> None:
        if (kind.group, kind.kind) != CRDS.group_kind:
            return
        crd = change.after.obj()
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        if change.removed:
            known = self._registry.by_plural(group, plural)
            if known is not None and not known.builtin:
                self._registry.remove(group, plural)
                self._withdrawn(known)
                asyncio.get_running_loop().call_soon(self._reconsider, group)
            return
        if not is_true(crd, ESTABLISHED):
            if crd["metadata"].get("deletionTimestamp"):
                self._begin_cleaning(crd)
            return
        previous = self._registry.by_plural(group, plural)
        installed = kind_of(crd, change.revision, previous)
        self._registry.install(installed)
        if crd["metadata"].get("deletionTimestamp"):
            self._begin_cleaning(crd)
        elif previous is not None:
            self._begin_renewing(installed, crd["metadata"]["name"])
        if previous is not None and _names(previous) - _names(installed):
            asyncio.get_running_loop().call_soon(self._reconsider, group)

    def _reconsider(self, group: str) -> None:
        """Reconsiders definitions of the group that waited for freed names."""
        crds = self._crds()
        for entry in list(self._storage.table(crds.table).entries()):
            crd = entry.obj()
            if crd["spec"]["group"] != group or crd["metadata"].get("deletionTimestamp"):
                continue
            if self._rules.reconsider(crd, self._now()):
                self._commits.replace(crds, entry.key, crd, entry)

    def _crds(self) -> Kind:
        kind = self._registry.by_plural(CRDS.group, CRDS.plural)
        assert kind is not None
        return kind

    def _begin_renewing(self, kind: Kind, name: str) -> None:
        task = self._renewing.pop(name, None)
        if task is not None:
            task.cancel()
        task = asyncio.get_running_loop().create_task(self._changed(kind))
        self._renewing[name] = task

    def _begin_cleaning(self, crd: Obj) -> None:
        name = crd["metadata"]["name"]
        task = self._cleaning.get(name)
        if task is None or task.done():
            self._cleaning[name] = asyncio.get_running_loop().create_task(
                self._clean(crd["spec"]["group"], crd["spec"]["names"]["plural"], name)
            )

    async def _clean(self, group: str, plural: str, name: str) -> None:
        """Deletes all objects, waits until their finalizers are gone, then removes the
        definition.
        """
        while True:
            kind = self._registry.by_plural(group, plural)
            if kind is None or kind.builtin:
                break  # it was never served
            table = self._storage.table(kind.table)
            version = kind.versions[kind.storage]
            for entry in list(table.entries()):
                try:
                    await self._deletes.delete(kind, version, entry.key, DeleteOptions())
                except ApiError:
                    continue  # it is tried again below, for as long as the object is there
            if not len(table):
                break
            await table.changed(RETRY_SECONDS)
        self._release(name)

    def _release(self, name: str) -> None:
        crds = self._crds()
        key = ObjectKey("", name)
        entry = self._commits.present(crds, key)
        if entry is None:
            return
        obj = entry.obj()
        meta = obj["metadata"]
        meta["finalizers"] = [each for each in meta.get("finalizers") or () if each != CLEANUP]
        if not meta["finalizers"]:
            del meta["finalizers"]
        try:
            self._commits.replace(crds, key, obj, entry)
        except StaleWrite as error:
            raise AssertionError("nothing was awaited since the entry was read") from error


def _names(kind: Kind) -> frozenset[str]:
    return frozenset((kind.kind, kind.list_kind, kind.plural, kind.singular, *kind.short_names))
