"""Replacements and applies: writes that change an object, or may create it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any

import attrs

from kueuelib.api.meta import Obj
from kueuelib.embedded import failures
from kueuelib.embedded.builtins.fields import invalid
from kueuelib.embedded.committing import Commits
from kueuelib.embedded.decoding import copy_json, decode
from kueuelib.embedded.large import Large
from kueuelib.embedded.managing import Managers, configuration, unconvertible
from kueuelib.embedded.verbs import WriteOptions
from kueuelib.embedded.write_checks import Target, check_revision, place
from kueuelib.embedded.writing import Writes
from kueuelib.errors import AlreadyExists, BadRequest

_MUST_BE_SPECIFIED = invalid("metadata.resourceVersion", 0, "must be specified for an update")


@attrs.frozen(eq=False)
class Upserts:
    """Each method returns the object, and whether it is new.

    Args:
        commits: the present objects.
        writes: creates and changes them.
        managers: the owners of fields.
        large: works on large objects.
        now: the time of the server, seconds since the epoch.
    """

    _commits: Commits
    _writes: Writes
    _managers: Managers
    _large: Large
    _now: Callable[[], float]

    async def replace(
        self, target: Target, given: Mapping[str, Any], options: WriteOptions
    ) -> tuple[Obj, bool]:
        """Replace an object or its status."""
        kind, version = target.kind, target.version

        async def read() -> Obj:
            return await self._large.work(options.size, decode, kind, version, given, options)

        wanted = await read()
        meta = wanted["metadata"]
        if not meta.get("name"):
            raise failures.unnamed(target.key)
        if kind.namespaced:
            meta.setdefault("namespace", target.key.namespace)
        if meta["name"] != target.key.name:
            raise failures.mismatch(target.key, meta["name"])
        if kind.namespaced and meta["namespace"] != target.key.namespace:
            raise failures.other_namespace()
        revision = meta.get("resourceVersion", "")
        if revision == "0":
            revision = meta["resourceVersion"] = ""
        attempts = count()

        async def transform(old: Obj, *, settled: bool) -> Obj:
            del settled
            conditional = not (kind.builtin and kind.unconditional)
            same = meta.get("uid") in (None, "", old["metadata"]["uid"])
            if conditional and same and not revision:
                errors = [_MUST_BE_SPECIFIED]
                raise failures.invalid_named(kind.plural, kind.group, target.key.name, errors)
            again = next(attempts)
            return {**await read(), "metadata": copy_json(meta)} if again else wanted

        async def create() -> Obj:
            if meta.get("uid"):
                raise failures.other_uid(kind, target.key.name, meta["uid"], "")
            check_revision(revision)
            new = {**wanted, "metadata": {**meta, "resourceVersion": ""}}
            return await self._writes.create(kind, version, new, target.key.namespace, options)

        async def change() -> Obj:
            return await self._writes.change(target, transform, options, given_version=revision)

        return await self._upsert(target, create if kind.upserts else None, change)

    async def apply(self, target: Target, body: Any, options: WriteOptions) -> tuple[Obj, bool]:
        """Apply an object server-side."""
        kind, version, key = target.kind, target.version, target.key
        if target.subresource and not self._commits.has(kind, key):
            raise failures.not_found(kind, key.name)
        node = self._managers.node(kind, version.name)
        config = await self._large.work(
            options.size, configuration, kind, version, node, body, options
        )
        meta = config["metadata"]
        named = "name" in meta
        if not meta.setdefault("name", key.name):
            raise failures.unnamed(key)
        if meta["name"] != key.name:
            raise failures.mismatch(key, meta["name"])
        if kind.namespaced:
            place(kind, config, key.namespace)
        insisted = meta.pop("resourceVersion", "")
        target = attrs.evolve(target, applied=True)

        async def applied(live: Obj | None, *, settled: bool) -> Obj:
            merged = await self._managers.apply(
                kind, version, live, config, body, target.subresource, options, self._now()
            )
            if live is None:
                return merged  # a new object is decoded when it is created
            known = live if settled else None
            return await self._large.work(
                options.size, decode, kind, version, merged, options, known
            )

        async def create() -> Obj:
            if not named:
                raise failures.unnamed(key)
            if uid := meta.get("uid"):
                text = f"the provided object specified uid {uid}, and no existing object was found"
                raise failures.conflict(kind, key.name, f"uid mismatch: {text}")
            check_revision(insisted)
            new = await applied(None, settled=False)
            return await self._writes.create(
                kind, version, new, key.namespace, options, applied=True
            )

        async def change() -> Obj:
            return await self._writes.change(target, applied, options, given_version=insisted)

        try:
            return await self._upsert(target, create, change)
        except BadRequest as error:
            raise unconvertible(kind, body, error) from error

    async def _upsert(
        self,
        target: Target,
        create: Callable[[], Awaitable[Obj]] | None,
        change: Callable[[], Awaitable[Obj]],
    ) -> tuple[Obj, bool]:
        for _ in range(2):
            if create and not target.subresource and not self._commits.has(target.kind, target.key):
                try:
                    return await create(), True
                except AlreadyExists:
                    continue
            return await change(), False
        raise failures.conflict(target.kind, target.key.name)
