"""create, replacements and applies, and the common path of all writes."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

import attrs

from kueuelib.api.meta import Obj, ObjectKey, format_time
from kueuelib.embedded import failures
from kueuelib.embedded.admission.plugin import AdmissionAttributes, Operation
from kueuelib.embedded.admission.webhooks import Chain
from kueuelib.embedded.builtins.fields import IMMUTABLE, invalid, keep, section
from kueuelib.embedded.committing import Commits
from kueuelib.embedded.conversion import Converter
from kueuelib.embedded.decoding import check_metadata, copy_json, decode, redefine, settle
from kueuelib.embedded.managing import Managers, configuration, unconvertible
from kueuelib.embedded.registry.kinds import Kind, KindVersion
from kueuelib.embedded.storage import StaleWrite, StoredState
from kueuelib.embedded.subresources import SCALE, scale_of, scaled
from kueuelib.embedded.verbs import WriteOptions
from kueuelib.embedded.write_checks import (
    Target,
    broken_rules,
    check_preconditions,
    check_revision,
    insisted_on,
    keep_other_half,
    place,
)
from kueuelib.errors import AlreadyExists, BadRequest, FieldError

# ---- the metadata that only the server writes: name, UID, times, generation ----------------------

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5
NAME_LIMIT = 63
SERVER_FIELDS = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
_NOT_WISH = frozenset(("apiVersion", "kind", "metadata", "status"))
_NOT_CONTENT = frozenset(("apiVersion", "kind", "metadata"))


def generate_name(prefix: str) -> str:
    """A name with a random suffix, at most as long as a label value."""
    prefix = prefix[: NAME_LIMIT - SUFFIX_LENGTH]
    return prefix + "".join(secrets.choice(SUFFIX_LETTERS) for _ in range(SUFFIX_LENGTH))


def begin(kind: Kind, obj: Obj, now: float) -> None:
    """Gives a new object its identity; values from the client are dropped."""
    meta = obj["metadata"]
    for key in (*SERVER_FIELDS, "resourceVersion", "selfLink"):
        meta.pop(key, None)
    meta["uid"] = str(uuid.uuid4())
    meta["creationTimestamp"] = format_time(now)
    if kind.generation or not kind.builtin:
        meta["generation"] = 1


def carry_over(new: Obj, old: Obj) -> None:
    """Keeps the identity of an object that is being changed."""
    meta, before = new["metadata"], old["metadata"]
    meta.pop("selfLink", None)
    keep(meta, before, *SERVER_FIELDS, "name", "namespace")
    meta["resourceVersion"] = before["resourceVersion"]


def count_generation(kind: Kind, version: KindVersion, new: Obj, old: Obj) -> None:
    """Increases the generation if the desired state (not metadata or status) has changed."""
    if kind.builtin and (not kind.generation or kind.kind == "PriorityClass"):
        return
    ignored = _NOT_WISH if version.status else _NOT_CONTENT
    keys = (new.keys() | old.keys()) - ignored
    relabelled = kind.kind == "EndpointSlice" and (
        new["metadata"].get("labels") != old["metadata"].get("labels")
    )
    if relabelled or any(new.get(key) != old.get(key) for key in keys):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def same_content(new: Obj, old: Obj) -> bool:
    """Whether a write would only change the author and time of fields."""
    if new.keys() != old.keys():
        return False
    for key, value in new.items():
        if key == "metadata":
            continue
        if value != old[key]:
            return False
    return _meta(new) == _meta(old)


def _meta(obj: Obj) -> Obj:
    meta = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    if "managedFields" in meta:
        meta["managedFields"] = [
            {key: value for key, value in entry.items() if key != "time"}
            for entry in meta["managedFields"]
        ]
    return meta


# --------------------------------------------------------------------------------------------------

ATTEMPTS = 5
NAME_ATTEMPTS = 8


class Transform(Protocol):
    """Makes the desired object."""

    def __call__(self, old: Obj, /, *, settled: bool) -> Awaitable[Obj]:
        """The desired object; it may share parts with the old one.

        Args:
            old: the stored object at the version of the request; do not change it.
            settled: whether it is pruned and defaulted by the present schema.
        """


@attrs.frozen(eq=False)
class RequestWriter:
    """Turns requests into stored states."""

    _commits: Commits
    _converter: Converter
    _chain: Chain
    _managers: Managers
    _now: Callable[[], float]

    # ---- create

    async def create(
        self,
        kind: Kind,
        version: KindVersion,
        given: Mapping[str, Any],
        namespace: str,
        options: WriteOptions,
        *,
        applied: bool = False,
    ) -> Obj:
        """Stores a new object and returns it at the version of the request."""
        if kind.terminating:
            named = section(given, "metadata").get("name") or ""
            why = "create not allowed while custom resource definition is terminating"
            raise failures.forbidden(kind, named, why)
        obj = decode(kind, version, given, options)
        place(kind, obj, namespace)
        meta = obj["metadata"]
        key = ObjectKey(meta.get("namespace", ""), meta.get("name", ""))
        request = self._request(Operation.CREATE, Target(kind, version, key), obj, None, options)
        if not applied:
            await self._managers.track(kind, version, None, obj, "", options, request.now)
        await self._mutate(kind, version, request)
        new, meta = request.new, request.new["metadata"]
        if meta.get("resourceVersion"):
            raise failures.unexplained("resourceVersion should not be set on objects to be created")
        if meta.get("namespace", "") != key.namespace:
            raise failures.other_namespace()
        prefix = "" if meta.get("name") else meta.get("generateName", "")
        begin(kind, new, request.now)
        if kind.kind == "LimitRange" and not (meta.get("name") or prefix):
            new["metadata"]["name"] = new["metadata"]["uid"]
        if version.status and not kind.builtin:
            new.pop("status", None)
        for attempt in range(NAME_ATTEMPTS):
            if prefix:
                new["metadata"]["name"] = generate_name(prefix)
            name = new["metadata"].get("name", "")
            request.key = final = ObjectKey(key.namespace, name)
            kind.rules.prepare_create(new, request)
            if attempt == 0:
                _judge(kind, version, name, new, None, "", (), options)
                await self._chain.validate(kind, request)
            if options.dry_run and self._commits.present(kind, final):
                raise self._taken(kind, final)
            stored = await self._converter.to_stored(kind, new)
            if options.dry_run:
                return new
            forms = await self._converter.ahead(kind, stored)
            try:
                entry = self._commits.put(kind, final, stored, None)
            except StaleWrite as error:
                if not prefix or attempt == NAME_ATTEMPTS - 1:
                    raise self._taken(kind, final) from error
                continue
            self._converter.keep(kind, entry, forms)
            new["metadata"]["resourceVersion"] = str(entry.revision)
            return new
        raise AssertionError("unreachable")

    def _taken(self, kind: Kind, key: ObjectKey) -> AlreadyExists:
        entry = self._commits.present(kind, key)
        ending = entry is not None and "deletionTimestamp" in entry.obj()["metadata"]
        return failures.already_exists(kind, key.name, ending=ending)

    # ---- change

    async def change(
        self,
        target: Target,
        transform: Transform,
        options: WriteOptions,
        *,
        given_version: str = "",
    ) -> Obj:
        """Stores the result of `transform` on the present state; repeats this after a conflict.

        Args:
            target: the target.
            transform: makes the desired object.
            options: of the request.
            given_version: the resource version that the client requires; empty: any.

        Raises:
            NotFound: there is no such object.
            Conflict: its resource version or UID differs.
        """
        kind, version = target.kind, target.version
        for _ in range(ATTEMPTS):
            entry = self._commits.present(kind, target.key)
            if entry is None:
                raise failures.not_found(kind, target.key.name)
            old = await self._converter.convert_one(kind, entry.obj(), version.name)
            settled = _is_settled(kind, version, entry)
            if not (settled or kind.builtin):
                settle(version, old)
            wanted = await transform(old, settled=settled)
            insisted = given_version or insisted_on(wanted, old)
            fixed = check_preconditions(target, wanted, old, insisted)
            new, same = await self._prepare(target, wanted, old, fixed, options)
            if same:
                return old
            stored = await self._converter.to_stored(kind, new)
            if options.dry_run:
                return new
            forms = await self._converter.ahead(kind, stored)
            try:
                latest = self._commits.replace(kind, target.key, stored, entry)
            except StaleWrite as error:
                if insisted:
                    raise failures.conflict(kind, target.key.name) from error
                continue
            self._converter.keep(kind, latest, forms)
            new["metadata"]["resourceVersion"] = str(latest.revision)
            return new
        raise failures.conflict(kind, target.key.name)

    async def _prepare(
        self,
        target: Target,
        wanted: Obj,
        old: Obj,
        fixed: Sequence[FieldError],
        options: WriteOptions,
    ) -> tuple[Obj, bool]:
        """The new state, and whether it is the old one."""
        kind, version, subresource = target.kind, target.version, target.subresource
        request = self._request(Operation.UPDATE, target, wanted, old, options)
        check_metadata(kind, version, wanted)
        keep_other_half(target, wanted, old)
        if not target.applied:
            await self._managers.track(
                kind, version, old, wanted, subresource, options, request.now
            )
        scaling = subresource == SCALE
        if scaling:
            request.obj, request.old = scale_of(version, wanted), scale_of(version, old)
        mutated = not target.admitted and await self._mutate(kind, version, request)
        new, name = wanted if scaling else request.new, target.key.name
        if mutated and scaling:
            new = scaled(kind, version, wanted, request.new)
        if (given := new["metadata"].get("name")) != name:
            fixed = [*fixed, invalid("metadata.name", given, IMMUTABLE)]
        if mutated or kind.builtin:
            keep_other_half(target, new, old)
        carry_over(new, old)
        kind.rules.prepare_update(new, old, request)
        count_generation(kind, version, new, old)
        _judge(kind, version, name, new, old, subresource, fixed, options)
        same = same_content(new, old)
        if not target.admitted:
            await self._chain.validate(kind, request)
        return new, same

    # ---- shared steps

    async def admit(self, how: Operation, target: Target, body: Obj, options: WriteOptions) -> Obj:
        """The body of an action that is not stored, as plug-ins and webhooks leave it."""
        request = self._request(how, target, body, None, options)
        await self._chain.mutate(target.kind, request)
        await self._chain.validate(target.kind, request)
        return request.new

    async def _mutate(self, kind: Kind, version: KindVersion, request: AdmissionAttributes) -> bool:
        """Calls mutating webhooks; returns whether one changed the object."""
        changed = await self._chain.mutate(kind, request)
        if changed and not request.foreign:
            check_metadata(kind, version, request.new)
            redefine(kind, version, request.new)
        return changed

    def _request(
        self, operation: Operation, target: Target, obj: Obj, old: Obj | None, options: WriteOptions
    ) -> AdmissionAttributes:
        described: dict[str, Any] = {
            "kind": f"{operation.title()}Options",
            "apiVersion": "meta.k8s.io/v1",
        }
        if options.dry_run:
            described["dryRun"] = ["All"]
        if options.field_manager:
            described["fieldManager"] = options.field_manager
        return AdmissionAttributes(
            operation=operation,
            resource=target.kind.resource(target.version.name),
            subresource=target.subresource,
            key=target.key,
            obj=obj,
            old=old,
            caller=options.caller,
            dry_run=options.dry_run,
            now=self._now(),
            options={} if operation is Operation.CONNECT else described,
            warnings=options.warnings,
        )


def _judge(
    kind: Kind,
    version: KindVersion,
    name: str,
    new: Obj,
    old: Obj | None,
    subresource: str,
    fixed: Sequence[FieldError],
    options: WriteOptions,
) -> None:
    """Refuses an object that breaks rules, and adds warnings."""
    if errors := broken_rules(kind, version, new, old, subresource, fixed):
        raise failures.invalid(kind, name, errors)
    options.warnings.extend(kind.rules.warnings(new, old))


def _is_settled(kind: Kind, version: KindVersion, entry: StoredState) -> bool:
    """Whether a stored object, read at a version, matches the schema of that version."""
    if kind.builtin:
        return False
    return entry.version != version.name or entry.revision >= kind.since


# ---- replacements and applies: writes that change an object, or may create it --------------------

_MUST_BE_SPECIFIED = invalid("metadata.resourceVersion", 0, "must be specified for an update")


@attrs.frozen(eq=False)
class Upserts:
    """Each method returns the object, and whether it is new.

    Args:
        commits: the present objects.
        writes: creates and changes them.
        managers: the owners of fields.
        now: the time of the server, seconds since the epoch.
    """

    _commits: Commits
    _writes: RequestWriter
    _managers: Managers
    _now: Callable[[], float]

    async def replace(
        self, target: Target, given: Mapping[str, Any], options: WriteOptions
    ) -> tuple[Obj, bool]:
        """Replace an object or its status."""
        kind, version = target.kind, target.version
        wanted = decode(kind, version, given, options)
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
            if not again:
                return wanted
            return {**decode(kind, version, given, options), "metadata": copy_json(meta)}

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
        config = configuration(kind, version, node, body, options)
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
            return decode(kind, version, merged, options, live if settled else None)

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
