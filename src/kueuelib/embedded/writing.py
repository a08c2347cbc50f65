"""create, and the common path of update, patch and subresources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded import failures, identity
from kueuelib.embedded.admission.chain import Chain
from kueuelib.embedded.admission.plugin import AdmissionRequest, Operation
from kueuelib.embedded.builtins.fields import IMMUTABLE, invalid
from kueuelib.embedded.builtins.raw import section
from kueuelib.embedded.committing import Commits
from kueuelib.embedded.conversion import Converter
from kueuelib.embedded.decoding import check_metadata, decode, redefine, settle
from kueuelib.embedded.large import Large
from kueuelib.embedded.managing import Managers
from kueuelib.embedded.registry.kind import Kind, Version
from kueuelib.embedded.storage import Entry, StaleWrite
from kueuelib.embedded.subresources import SCALE, scale_of, scaled
from kueuelib.embedded.verbs import WriteOptions
from kueuelib.embedded.write_checks import (
    Target,
    broken_rules,
    check_preconditions,
    insisted_on,
    keep_other_half,
    place,
)
from kueuelib.errors import AlreadyExists, FieldError

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
class Writes:
    """Turns requests into stored states."""

    _commits: Commits
    _converter: Converter
    _chain: Chain
    _managers: Managers
    _large: Large
    _now: Callable[[], float]

    # ---- create

    async def create(
        self,
        kind: Kind,
        version: Version,
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
        obj = await self._large.work(options.size, decode, kind, version, given, options)
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
        identity.begin(kind, new, request.now)
        if kind.kind == "LimitRange" and not (meta.get("name") or prefix):
            new["metadata"]["name"] = new["metadata"]["uid"]
        if version.status and not kind.builtin:
            new.pop("status", None)
        for attempt in range(NAME_ATTEMPTS):
            if prefix:
                new["metadata"]["name"] = identity.generate_name(prefix)
            name = new["metadata"].get("name", "")
            request.key = final = ObjectKey(key.namespace, name)
            kind.rules.prepare_create(new, request)
            if attempt == 0:
                await self._large.work(
                    options.size, _judge, kind, version, name, new, None, "", (), options
                )
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
            options.size = max(options.size, len(entry.raw))
            present = await self._large.work(options.size, entry.obj)
            old = await self._converter.convert_one(kind, present, version.name)
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

        def begin() -> None:
            check_metadata(kind, version, wanted)
            keep_other_half(target, wanted, old)

        await self._large.work(options.size, begin)
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

        def finish() -> bool:
            if mutated or kind.builtin:
                keep_other_half(target, new, old)
            identity.carry_over(new, old)
            kind.rules.prepare_update(new, old, request)
            identity.count_generation(kind, version, new, old)
            _judge(kind, version, name, new, old, subresource, fixed, options)
            return identity.same_content(new, old)

        same = await self._large.work(options.size, finish)
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

    async def _mutate(self, kind: Kind, version: Version, request: AdmissionRequest) -> bool:
        """Calls mutating webhooks; returns whether one changed the object."""
        changed = await self._chain.mutate(kind, request)
        if changed and not request.foreign:
            check_metadata(kind, version, request.new)
            redefine(kind, version, request.new)
        return changed

    def _request(
        self, operation: Operation, target: Target, obj: Obj, old: Obj | None, options: WriteOptions
    ) -> AdmissionRequest:
        described: dict[str, Any] = {
            "kind": f"{operation.title()}Options",
            "apiVersion": "meta.k8s.io/v1",
        }
        if options.dry_run:
            described["dryRun"] = ["All"]
        if options.field_manager:
            described["fieldManager"] = options.field_manager
        return AdmissionRequest(
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
    version: Version,
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


def _is_settled(kind: Kind, version: Version, entry: Entry) -> bool:
    """Whether a stored object, read at a version, matches the schema of that version."""
    if kind.builtin:
        return False
    return entry.version != version.name or entry.revision >= kind.since
