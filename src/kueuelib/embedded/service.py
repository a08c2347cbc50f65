"""The API server without a transport: every verb on every kind.

Objects that are returned belong to the caller. Failures are `kueuelib.errors.ApiError`s. The HTTP
face uses `reads`, `writes`, `deletes` and `stream` directly, because it wants JSON bytes.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs
import orjson

from kueuelib.api.kinds import CRDS, MUTATING_WEBHOOKS, PODS, VALIDATING_WEBHOOKS
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.embedded import failures, subresources
from kueuelib.embedded.access.rbac import RoleAggregation
from kueuelib.embedded.access.tokens import Tokens
from kueuelib.embedded.admission.hook_rules import check_hooks
from kueuelib.embedded.admission.plugin import AdmissionPlugin, KindRules, Operation
from kueuelib.embedded.admission.webhooks import Chain, StoredObjects, WebhookChain
from kueuelib.embedded.builtins.core_rules import NamespaceLifecycle
from kueuelib.embedded.builtins.stored_rules import StoredRules
from kueuelib.embedded.committing import Commits
from kueuelib.embedded.conversion import Converter, HookCaller
from kueuelib.embedded.decoding import copy_json, decode, shorten_numbers
from kueuelib.embedded.definitions import Definitions
from kueuelib.embedded.deleting import Deletes
from kueuelib.embedded.managing import Managers
from kueuelib.embedded.patches import bad_patch, patched, restored_head, undeclared
from kueuelib.embedded.reading import ListPage, Reads, WatchFrames
from kueuelib.embedded.registry.builtin_kinds import Rules, builtin_kinds
from kueuelib.embedded.registry.crd_rules import CrdRules
from kueuelib.embedded.registry.kinds import Kind, KindVersion, Registry
from kueuelib.embedded.schema.node import ANYTHING
from kueuelib.embedded.storage import Storage
from kueuelib.embedded.verbs import (
    ALL,
    DELETE,
    FROM_NOW,
    DeleteOptions,
    FieldValidation,
    ListOptions,
    Propagation,
    WatchOptions,
    WriteOptions,
)
from kueuelib.embedded.write_checks import STATUS, Target
from kueuelib.embedded.writing import RequestWriter, Upserts
from kueuelib.errors import BadRequest, NotFound
from kueuelib.runtime.queries import ObjectList, PatchType

BINDING = "binding"


class ApiService:
    """One API server's objects and kinds.

    `resource` names the kind *and* the version in which objects are given and returned. For
    namespaced kinds, the namespace of a new object is its own, or else the `namespace` argument.

    Attributes:
        registry: the kinds that are served.
        storage: the objects.
        definitions: keeps the registry equal to the stored definitions.
        now: the time of the server, seconds since the epoch.
        tokens: of ServiceAccounts.
    """

    def __init__(
        self,
        rules: Rules,
        plugins: Sequence[AdmissionPlugin],
        hooks: HookCaller,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.now = now
        self.storage = Storage()
        definitions = CrdRules()
        own: dict[tuple[str, str], KindRules] = {
            CRDS.group_kind: definitions,
            MUTATING_WEBHOOKS.group_kind: StoredRules(check_hooks),
            VALIDATING_WEBHOOKS.group_kind: StoredRules(check_hooks),
        }
        self.registry = definitions.registry = Registry(builtin_kinds({**own, **rules}))
        self.reader = StoredObjects(self.storage)
        self.converter = Converter(hooks)
        self.reads = Reads(self.storage, self.converter)
        self.commits = Commits(self.storage)
        self.webhooks = WebhookChain(hooks, self.reader, self.converter, self.commits)
        chain = Chain((NamespaceLifecycle(), *plugins), self.reader, self.webhooks)
        self.managers = Managers(self.converter)
        self.writes = RequestWriter(self.commits, self.converter, chain, self.managers, now)
        self._upserts = Upserts(self.commits, self.writes, self.managers, now)
        self.deletes = Deletes(self.commits, self.converter, chain, now)
        self.tokens = Tokens(self.reader)
        self._aggregation = RoleAggregation(self.storage, self.registry, self.commits)
        self.definitions = Definitions(
            self.storage,
            self.registry,
            definitions,
            now,
            self.commits,
            self.deletes,
            self._withdrawn,
            self._renew,
        )
        self._streams: weakref.WeakSet[WatchFrames] = weakref.WeakSet()

    async def close(self) -> None:
        """Ends all watches and background tasks."""
        for stream in list(self._streams):
            stream.close()
        self._aggregation.close()
        await self.definitions.close()
        await self.storage.close()

    async def _renew(self, kind: Kind) -> None:
        await self.converter.renew(kind, list(self.storage.table(kind.table).entries()))

    def _withdrawn(self, kind: Kind) -> None:
        for stream in list(self._streams):
            if stream.is_of(kind):
                stream.close()

    # ---- reading

    async def get(self, resource: Resource, key: ObjectKey) -> Obj:
        """The object. Raises NotFound."""
        kind, version = self.registry.require(resource)
        return orjson.loads(await self.reads.get(kind, version.name, key))  # type: ignore[no-any-return]

    async def list(
        self, resource: Resource, namespace: str = "", options: ListOptions = ALL
    ) -> ObjectList:
        """The objects of one namespace, or of all."""
        kind, version = self.registry.require(resource)
        page = await self.reads.list(kind, version.name, namespace, options)
        return ObjectList(
            tuple(orjson.loads(raw) for raw in page.items),
            str(page.revision),
            page.continue_token,
            page.remaining,
        )

    def watch(
        self, resource: Resource, namespace: str = "", options: WatchOptions = FROM_NOW
    ) -> WatchFrames:
        """Changes from now on, or from a resource version on."""
        kind, version = self.registry.require(resource)
        return self.stream(kind, version, namespace, options)

    def stream(
        self, kind: Kind, version: KindVersion, namespace: str, options: WatchOptions
    ) -> WatchFrames:
        """`watch` for callers that have the `Kind`."""
        stream = WatchFrames(
            self.storage,
            self.registry,
            self.reads,
            self.converter,
            kind,
            version.name,
            namespace,
            options,
        )
        self._streams.add(stream)
        return stream

    # ---- writing

    async def create(
        self,
        resource: Resource,
        obj: Mapping[str, Any],
        *,
        namespace: str = "",
        options: WriteOptions | None = None,
    ) -> Obj:
        """Stores a new object. Raises AlreadyExists, Invalid, Forbidden."""
        kind, version = self.registry.require(resource)
        return await self.writes.create(kind, version, obj, namespace, options or WriteOptions())

    async def update(
        self,
        resource: Resource,
        obj: Mapping[str, Any],
        *,
        subresource: str = "",
        options: WriteOptions | None = None,
    ) -> Obj:
        """Replaces an object or its status; a `resourceVersion` in it must be the stored one."""
        kind, version = self.registry.require(resource)
        meta = obj.get("metadata") or {}
        key = ObjectKey(meta.get("namespace") or "", meta.get("name") or "")
        target = Target(kind, version, key, subresource)
        updated, _ = await self.replace(target, obj, options or WriteOptions())
        return updated

    async def replace(
        self, target: Target, given: Mapping[str, Any], options: WriteOptions
    ) -> tuple[Obj, bool]:
        """`update` for callers that have the `Kind`; also returns whether the object is new."""
        self._check_subresource(target)
        return await self._upserts.replace(target, given, options)

    async def update_status(
        self, resource: Resource, obj: Mapping[str, Any], *, options: WriteOptions | None = None
    ) -> Obj:
        """`update` of the subresource `status`."""
        return await self.update(resource, obj, subresource=STATUS, options=options)

    async def patch(
        self,
        resource: Resource,
        key: ObjectKey,
        body: Any,
        type: PatchType = PatchType.MERGE,
        *,
        subresource: str = "",
        options: WriteOptions | None = None,
    ) -> Obj:
        """Changes an object; an apply patch creates it if it does not exist."""
        kind, version = self.registry.require(resource)
        target = Target(kind, version, key, subresource, "Patch")
        obj, _ = await self.patch_target(target, body, type, options or WriteOptions())
        return obj

    async def patch_target(
        self, target: Target, body: Any, type_: PatchType, options: WriteOptions
    ) -> tuple[Obj, bool]:
        """`patch` for callers that have the `Kind`; also returns whether the object is new."""
        self._check_subresource(target)
        if type_ is PatchType.APPLY:
            return await self._upserts.apply(target, body, options)
        if type_ is PatchType.STRATEGIC and not target.kind.builtin:
            raise failures.unsupported_media_type(self.patch_types(target.kind))
        node = self.managers.node(target.kind, target.version.name)

        async def transform(old: Obj, *, settled: bool) -> Obj:
            strategic = type_ is PatchType.STRATEGIC
            given = copy_json(body) if strategic else body
            checked = options.field_validation is not FieldValidation.IGNORE
            wanted = patched(old, given, type_, node, checked=checked)
            known = old if settled else None
            unversioned = target.kind.builtin and wanted.get("apiVersion", "") in (None, "")
            strict = options.field_validation is FieldValidation.STRICT
            if unversioned and not strategic and not strict:
                raise failures.unnamed(target.key)
            try:
                if strategic:
                    wanted |= restored_head(old, given or {})
                    shorten_numbers(wanted)
                elif unversioned:
                    raise undeclared(wanted)
                return decode(target.kind, target.version, wanted, options, known)
            except BadRequest as error:
                shown = given if strategic else wanted
                raise bad_patch(error, shown, as_text=not strategic) from error

        return await self.writes.change(target, transform, options), False

    async def bind(
        self, key: ObjectKey, node: str, *, uid: str = "", options: WriteOptions | None = None
    ) -> None:
        """Binds a pod to a node, like a scheduler. Raises Conflict if it cannot be bound."""
        binding: Obj = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid},
            "target": {"kind": "Node", "name": node},
        }
        await self.bind_pod(key, binding, options or WriteOptions())

    async def bind_pod(self, key: ObjectKey, binding: Obj, options: WriteOptions) -> None:
        """`pods/binding` with a whole Binding."""
        kind, version = self.registry.require(PODS)
        target = Target(kind, version, key, BINDING, admitted=True)
        binding = await self.writes.admit(Operation.CREATE, target, binding, options)
        subresources.check_binding(binding)

        async def transform(old: Obj, *, settled: bool) -> Obj:
            del settled
            return subresources.bind(kind, old, binding, self.now())

        await self.writes.change(target, transform, options)

    async def scale(
        self, target: Target, body: Any, type_: PatchType | None, options: WriteOptions
    ) -> Obj:
        """Sets the number of replicas by a whole `Scale`, or by a patch of one."""
        version = target.version
        plain = attrs.evolve(target, subresource=subresources.SCALE)
        if type_ is PatchType.APPLY:
            config = subresources.applied(target.kind, version, body)
            return (await self._upserts.apply(plain, config, options))[0]

        async def transform(old: Obj, *, settled: bool) -> Obj:
            del settled
            given = body
            if type_ is not None:
                scale = subresources.scale_of(version, old)
                given = patched(scale, body, type_, ANYTHING)
            if not isinstance(given, dict):
                raise BadRequest("a Scale is expected")
            try:
                return subresources.scaled(target.kind, version, old, given)
            except BadRequest as error:
                raise error if type_ is None else bad_patch(error, given, as_text=True) from error

        return await self.writes.change(plain, transform, options)

    def patch_types(self, kind: Kind) -> Sequence[str]:
        """The media types of patches that a kind accepts."""
        media_types = [PatchType.JSON, PatchType.MERGE]
        if kind.builtin:
            media_types.append(PatchType.STRATEGIC)
        return [*media_types, PatchType.APPLY]

    # ---- deleting

    @staticmethod
    def deletion_warnings(kind: Kind, options: DeleteOptions) -> Sequence[str]:
        """The warnings for a deletion."""
        if kind.propagation == Propagation.ORPHAN and options.propagation is None:
            text = (
                f"child pods are preserved by default when {kind.plural} are deleted; set "
                "propagationPolicy=Background to remove them or set propagationPolicy=Orphan to "
                "suppress this warning"
            )
            return [text]
        return []

    async def delete(
        self, resource: Resource, key: ObjectKey, options: DeleteOptions = DELETE
    ) -> Obj:
        """Deletes an object, or begins to; returns its last state, which may wait for
        finalizers.
        """
        kind, version = self.registry.require(resource)
        obj, _ = await self.deletes.delete(kind, version, key, options)
        return obj

    async def delete_collection(
        self,
        resource: Resource,
        namespace: str = "",
        selection: ListOptions = ALL,
        options: DeleteOptions = DELETE,
    ) -> ListPage:
        """Deletes every selected object, and returns their last states; a resource version without
        `resourceVersionMatch` selects what there was at it.
        """
        kind, version = self.registry.require(resource)
        selection = attrs.evolve(selection, limit=selection.limit or sys.maxsize)
        page = await self.reads.list(kind, version.name, namespace, selection)
        options = attrs.evolve(options, way="collection")
        deleted = []
        for key, raw in zip(page.keys, page.items, strict=True):
            with suppress(NotFound):
                await self.deletes.delete(kind, version, key, options)
                deleted.append(raw)
        return attrs.evolve(page, items=deleted)

    @staticmethod
    def _check_subresource(target: Target) -> None:
        name = target.subresource
        if not name or (name == STATUS and target.version.status):
            return
        if name not in target.kind.subresources:
            raise failures.unknown_resource()
