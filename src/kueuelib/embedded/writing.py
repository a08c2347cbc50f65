"""create, and every change of an object: the common path of update, patch and subresources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from kueuelib.api.kinds import CRDS
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.embedded import failures, identity
from kueuelib.embedded.admission.chain import Chain
from kueuelib.embedded.admission.plugin import AdmissionRequest, Operation
from kueuelib.embedded.builtins.fields import IMMUTABLE, invalid, section
from kueuelib.embedded.builtins.metadata import (
    validate_finalizers,
    validate_metadata,
    validate_metadata_update,
)
from kueuelib.embedded.committing import Commits
from kueuelib.embedded.conversion import Converter
from kueuelib.embedded.decoding import check_metadata, copy_json, decode, redefine
from kueuelib.embedded.managing import Managers
from kueuelib.embedded.registry.kind import Kind, Version
from kueuelib.embedded.storage import Entry, StaleWrite
from kueuelib.embedded.verbs import WriteOptions
from kueuelib.errors import FieldError

ATTEMPTS = 5
NAME_ATTEMPTS = 8
STATUS = "status"
_ANY_FINALIZER = (CRDS.kind, "Event", "RuntimeClass")
LAST_REVISION = 2**64 - 1


class Transform(Protocol):
    """Makes the wanted object."""

    def __call__(self, old: Obj, /, *, settled: bool) -> Awaitable[Obj]:
        """The wanted object; it may share parts with the old one.

        Args:
            old: the stored object at the version of the request; not to be changed.
            settled: whether it is pruned and defaulted by the present schema.
        """


@attrs.frozen
class Target:
    """What is being written.

    Attributes:
        kind: the kind.
        version: the version of the request.
        key: namespace and name.
        subresource: empty for the object itself.
        verb: the options kind that webhooks are told of: `Update` or `Patch`.
        applied: whether the owners of fields are known already, from an apply.
    """

    kind: Kind
    version: Version
    key: ObjectKey
    subresource: str = ""
    verb: str = "Update"
    applied: bool = False


class Writes:
    """Turns requests into stored states."""

    def __init__(
        self,
        commits: Commits,
        converter: Converter,
        chain: Chain,
        managers: Managers,
        now: Callable[[], float],
    ) -> None:
        self._now = now
        self._commits = commits
        self._managers = managers
        self._converter = converter
        self._chain = chain

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
        obj = decode(kind, version, given, options)
        place(kind, obj, namespace)
        meta = obj["metadata"]
        if meta.get("resourceVersion"):
            raise failures.unexplained("resourceVersion should not be set on objects to be created")
        prefix = "" if meta.get("name") else meta.get("generateName", "")
        key = ObjectKey(meta.get("namespace", ""), meta.get("name", ""))
        request = self._request(
            Operation.CREATE,
            Target(kind, version, key, "", "Patch" if applied else "Create"),
            obj,
            None,
            options,
        )
        if not applied:
            await self._managers.track(kind, version, None, obj, "", options, request.now)
        await self._mutate(kind, version, request)
        new = _object_of(request)
        self._check_placed(kind, new, key)
        identity.begin(kind, new, request.now)
        if version.status and not kind.builtin:
            new.pop("status", None)
        for attempt in range(NAME_ATTEMPTS):
            if prefix:
                new["metadata"]["name"] = identity.generate_name(prefix)
            name = new["metadata"].get("name", "")
            request.key = final = ObjectKey(key.namespace, name)
            kind.rules.prepare_create(new, request)
            if attempt == 0:
                self._refuse_broken(kind, name, self._rules(kind, version, new, None, ""))
                options.warnings.extend(kind.rules.warnings(new, None))
                await self._chain.validate(kind, request)
            if options.dry_run:
                if self._commits.present(kind, final):
                    raise failures.already_exists(kind, name)
                return new
            stored = await self._converter.to_stored(kind, new)
            forms = await self._converter.ahead(kind, stored)
            try:
                entry = self._commits.put(kind, final, stored, None)
            except StaleWrite as error:
                if not prefix or attempt == NAME_ATTEMPTS - 1:
                    raise failures.already_exists(kind, name) from error
                continue
            self._converter.keep(kind, entry, forms)
            new["metadata"]["resourceVersion"] = str(entry.revision)
            return new
        raise AssertionError("unreachable")

    # ---- change

    async def change(
        self,
        target: Target,
        transform: Transform,
        options: WriteOptions,
        *,
        given_version: str = "",
    ) -> Obj:
        """Stores what `transform` makes of the present state; tries again when it is overtaken.

        Args:
            target: what is written.
            transform: makes the wanted object.
            options: of the request.
            given_version: the resource version that the client insists on; empty: any.

        Raises:
            NotFound: there is no such object.
            Conflict: its resource version or UID is another one.
        """
        kind, version = target.kind, target.version
        for _ in range(ATTEMPTS):
            entry = self._commits.present(kind, target.key)
            if entry is None:
                raise failures.not_found(kind, target.key.name)
            old = await self._converter.convert_one(kind, entry.obj(), version.name)
            wanted = await transform(old, settled=_is_settled(kind, version, entry))
            insisted = given_version or _insisted(wanted, old)
            fixed = self._check_preconditions(target, wanted, old, insisted)
            new = await self._prepare(target, wanted, old, fixed, options)
            if identity.same_content(new, old):
                return old
            if options.dry_run:
                return new
            stored = await self._converter.to_stored(kind, new)
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
    ) -> Obj:
        kind, version, subresource = target.kind, target.version, target.subresource
        check_metadata(kind, version, wanted)
        request = self._request(Operation.UPDATE, target, wanted, old, options)
        self._keep_other_half(target, wanted, old)
        if not target.applied:
            await self._managers.track(
                kind, version, old, wanted, subresource, options, request.now
            )
        mutated = await self._mutate(kind, version, request)
        new = _object_of(request)
        if mutated or kind.builtin:
            self._keep_other_half(target, new, old)
        identity.carry_over(new, old)
        kind.rules.prepare_update(new, old, request)
        identity.count_generation(kind, version, new, old)
        errors = self._rules(kind, version, new, old, subresource, fixed)
        self._refuse_broken(kind, target.key.name, errors)
        options.warnings.extend(kind.rules.warnings(new, old))
        await self._chain.validate(kind, request)
        return new

    @staticmethod
    def _keep_other_half(target: Target, new: Obj, old: Obj) -> None:
        """A write of the object leaves its status alone, and the other way round."""
        if not target.version.status:
            return
        if not target.subresource:
            if "status" in old:
                new["status"] = copy_json(old["status"])
            else:
                new.pop("status", None)
        elif target.subresource == STATUS:
            for key in new.keys() - old.keys() - {"status", "metadata"}:
                del new[key]
            for key, value in old.items():
                if key not in ("status", "metadata") and new.get(key) is not value:
                    new[key] = copy_json(value)
            meta = new["metadata"]
            given: tuple[str, ...] = ("managedFields",)
            if target.kind.builtin:
                given = ("managedFields", "labels", "annotations")
            kept = {key: value for key, value in old["metadata"].items() if key not in given}
            kept = copy_json(kept)
            for key in given:
                if key in meta:
                    kept[key] = meta[key]
            new["metadata"] = kept

    def _check_preconditions(
        self, target: Target, wanted: Obj, old: Obj, insisted: str
    ) -> Sequence[FieldError]:
        """Refuses what is about another object; gives what else of the metadata has to stay."""
        kind, name = target.kind, target.key.name
        meta = wanted.get("metadata")
        if not isinstance(meta, dict):
            raise failures.bad_request("metadata must be an object")
        if not meta.get("name"):
            raise failures.unnamed(target.key)
        if meta["name"] != name:
            raise failures.mismatch(target.key, str(meta["name"]))
        if kind.namespaced and (meta.get("namespace") or target.key.namespace) != (
            target.key.namespace
        ):
            raise failures.bad_request(
                f"the namespace of the object ({meta['namespace']}) does not match the "
                f"namespace on the request ({target.key.namespace})"
            )
        uid = meta.get("uid")
        fixed = ["deletionTimestamp", "deletionGracePeriodSeconds"]
        if target.verb == "Patch":
            fixed.insert(0, "uid")
        elif uid and uid != old["metadata"]["uid"]:
            raise failures.other_uid(kind, name, uid, old["metadata"]["uid"])
        check_revision(insisted)
        if insisted and insisted != old["metadata"]["resourceVersion"]:
            raise failures.conflict(kind, name)
        return [
            invalid(f"metadata.{key}", meta[key], IMMUTABLE)
            for key in fixed
            if meta.get(key) not in (None, "", old["metadata"].get(key))
        ]

    # ---- shared steps

    async def _mutate(self, kind: Kind, version: Version, request: AdmissionRequest) -> bool:
        """Whether a webhook changed the object."""
        changed = await self._chain.mutate(kind, request)
        if changed:
            check_metadata(kind, version, _object_of(request))
            redefine(kind, version, _object_of(request))
        return changed

    def _request(
        self,
        operation: Operation,
        target: Target,
        obj: Obj,
        old: Obj | None,
        options: WriteOptions,
    ) -> AdmissionRequest:
        described: dict[str, Any] = {
            "kind": f"{target.verb}Options",
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
            options=described,
            warnings=options.warnings,
        )

    @staticmethod
    def _check_placed(kind: Kind, obj: Obj, key: ObjectKey) -> None:
        meta = obj["metadata"]
        if meta.get("namespace", "") != key.namespace or (
            key.name and meta.get("name", "") != key.name
        ):
            raise failures.bad_request(
                f"a mutating webhook changed the name or namespace of {kind.kind} {key}"
            )

    @staticmethod
    def _rules(
        kind: Kind,
        version: Version,
        new: Obj,
        old: Obj | None,
        subresource: str,
        fixed: Sequence[FieldError] = (),
    ) -> list[FieldError]:
        errors: list[FieldError] = []
        if subresource != STATUS:
            errors += validate_metadata(new, kind.group, namespaced=kind.namespaced)
        errors += fixed
        if old is not None:
            errors += validate_metadata_update(new, old)
        if subresource != STATUS and kind.builtin and kind.kind not in _ANY_FINALIZER:
            errors += validate_finalizers(new["metadata"])
        if version.schema is not None:
            errors += version.schema.validate(new, old)
        if old is None:
            errors += kind.rules.validate_create(new)
        else:
            errors += kind.rules.validate_update(new, old, subresource)
        return errors

    @staticmethod
    def _refuse_broken(kind: Kind, name: str, errors: list[FieldError]) -> None:
        if errors:
            raise failures.invalid(kind, name, errors)


def _is_settled(kind: Kind, version: Version, entry: Entry) -> bool:
    """Whether a stored object, read at a version, is as the schema of the version wants it."""
    if kind.builtin:
        return False
    return entry.version != version.name or entry.revision >= kind.since


def _object_of(request: AdmissionRequest) -> Obj:
    assert request.obj is not None
    return request.obj


def _insisted(wanted: Obj, old: Obj) -> str:
    """The resource version in a patched object, when the patch has set one."""
    meta = wanted.get("metadata")
    found = meta.get("resourceVersion") if isinstance(meta, dict) else None
    if not isinstance(found, str) or found in ("0", old["metadata"]["resourceVersion"]):
        return ""
    return found


def check_revision(text: str) -> None:
    """A resource version that a client insists on is a number.

    Raises:
        ApiError: it is none; an empty one insists on nothing.
    """
    if text and not (text.isascii() and text.isdigit()):
        raise failures.unexplained(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    if text and int(text) > LAST_REVISION:
        raise failures.unexplained(f'strconv.ParseUint: parsing "{text}": value out of range')


def place(kind: Kind, obj: Obj, namespace: str) -> None:
    """Puts an object into the namespace of the request.

    Raises:
        BadRequest: it names another one, or none is named at all.
    """
    meta = obj["metadata"]
    found = meta.get("namespace", "")
    if not kind.namespaced:
        if namespace:
            raise failures.unknown_resource()
        return
    if not namespace:
        if not found:
            raise failures.bad_request("an empty namespace may not be set during creation")
        return
    if found and found != namespace:
        raise failures.bad_request(
            f"the namespace of the provided object does not match the namespace sent on the "
            f"request (provided: {found}, request: {namespace})"
        )
    meta["namespace"] = namespace
