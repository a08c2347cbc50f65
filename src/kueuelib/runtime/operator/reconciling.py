"""Reconciles one object: finalizer, function, status, teardown."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from kueuelib.api.forms import typed_of
from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of
from kueuelib.errors import Conflict, InvalidObject, TerminalError
from kueuelib.machinery.ownership import (
    MANAGED_BY,
    OWNER_INDEX,
    Applied,
    OfOwner,
    finalizers_with,
    finalizers_without,
    owners_of,
)
from kueuelib.machinery.store import Delta
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.cluster import Cluster
from kueuelib.runtime.controller import DONE, Controller, Result, checked
from kueuelib.runtime.events import EventSink
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.operator.callbacks import Callback, predicate_of
from kueuelib.runtime.operator.context import Context
from kueuelib.runtime.operator.declaration import Operator
from kueuelib.runtime.operator.reconciled import OtherKind, Reconciled, Watched
from kueuelib.runtime.operator.repeats import OFTEN, Repeats
from kueuelib.runtime.operator.surroundings import Surroundings, index_name
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.steps import contained
from kueuelib.runtime.telemetry import Telemetry


class KindReconciler:
    """Calls an author's function for the objects of one kind; a `Reconciler`."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._declared = around.declared
        self._log = get_logger(f"operator.{around.operator}")

    async def reconcile(self, key: ObjectKey) -> Result:
        """Look at one object, see `Operator.reconciles`.

        A `Conflict` means that the cache was stale: the object is read again and reconciled soon.

        Raises:
            TerminalError: the object does not fit its class; it waits for the next change.
        """
        declared = self._declared
        obj = self._around.informers[declared.resource].store.get(key)
        if obj is None:
            self._around.repeats.note(key, wrote=False)
            return DONE
        try:
            if "deletionTimestamp" in obj["metadata"]:
                return await self._tear_down(obj)
            if declared.finalizer and (with_ours := finalizers_with(obj, declared.finalizer)):
                obj = await self._write_finalizers(obj, with_ours)
            return await self._call(declared.function, Context(self._around, obj))
        except Conflict:
            await self._around.cache.refresh(declared.resource, key)
            return Result(rate_limited=True)

    async def _tear_down(self, obj: Obj) -> Result:
        without = finalizers_without(obj, self._declared.finalizer)
        if self._declared.teardown_function is None or without is None:
            return DONE
        context = Context(self._around, obj)
        result = await self._call(self._declared.teardown_function, context)
        if result.requeue_after or result.rate_limited:
            return result
        await self._write_finalizers(context.obj, without)
        return DONE

    async def _call(self, function: Any, context: Context) -> Result:
        try:
            answer = await contained(function(self._value(context.obj), context))
            result = checked(answer, function)
        except Exception:
            await context.write_status(failed=True)  # what was set before it failed
            raise
        await context.write_status()
        result = attrs.evolve(result, settled=False)  # what came while the status was written
        if self._around.repeats.note(key_of(context.obj), wrote=context.wrote):
            self._log.warning(
                "reconciles an object again and again, and writes something each time",
                times=OFTEN,
                fix="write what depends on the object only, and not for example the time",
            )
        return result

    def _value(self, obj: Obj) -> Any:
        kind = self._declared.kind
        if isinstance(kind, Resource):
            return obj
        try:
            return typed_of(kind, obj)
        except InvalidObject as error:
            raise TerminalError(str(error)) from error

    async def _write_finalizers(self, obj: Obj, names: list[str]) -> Obj:
        version = obj["metadata"]["resourceVersion"]
        answer = await self._around.client.patch(
            self._declared.resource,
            key_of(obj),
            {"metadata": {"finalizers": names, "resourceVersion": version}},
            PatchType.MERGE,
        )
        self._around.cache.learn(answer)
        return answer


def controller_for(
    operator: Operator,
    declared: Reconciled[Any],
    client: Client,
    cache: Cache,
    recorder: EventSink,
    *,
    clusters: Mapping[str, Cluster] = MappingProxyType({}),
    clock: Clock = SYSTEM_CLOCK,
    telemetry: Telemetry | None = None,
) -> Controller:
    """The controller of one kind of an operator; the caller runs it and the cache.

    Args:
        operator: the declaration.
        declared: one of its kinds.
        client: writes, as the leader only.
        cache: makes the informers.
        recorder: writes events.
        clusters: the other clusters, by name; the caller runs them.
        clock: time.
        telemetry: where to report.
    """
    space, applied = operator.namespace, Applied(declared.metadata_only)
    resource = declared.resource

    def informer_of(kind: Watched, label_selector: str = "") -> Informer:
        watched_resource = kind.resource if isinstance(kind, OtherKind) else kind
        held_by = clusters[kind.cluster].cache if isinstance(kind, OtherKind) else cache
        return held_by.informer(
            watched_resource,
            namespace=space if watched_resource.namespaced else "",
            label_selector=label_selector,
            metadata_only=kind in declared.metadata_only,
        )

    informers = {kind: informer_of(kind) for kind in declared.watches}
    informers[resource] = informer_of(resource)
    for kind in declared.owns:
        informers[kind] = informer_of(kind, f"{MANAGED_BY}={operator.name}")
        informers[kind].add_index(OWNER_INDEX, owners_of)
        informers[kind].add_handler(_forgetting(applied, kind))
    for indexed, indexes in declared.indexes.items():
        for name, function in indexes.items():
            called = Callback(resource.kind, f"indexes= of {indexed.kind}", function).values
            index = OfOwner(called) if indexed in declared.owns else called
            informers[indexed].add_index(index_name(declared, name), index)
    around = Surroundings(
        operator=operator.name,
        declared=declared,
        client=client,
        cache=cache,
        recorder=recorder,
        informers=informers,
        clusters=clusters,
        applied=applied,
        clock=clock,
        repeats=Repeats(clock.monotonic),
    )
    controller = Controller(
        f"{operator.name}-{resource.plural}",
        KindReconciler(around),
        workers=declared.workers,
        timeout=declared.timeout,
        clock=clock,
        telemetry=telemetry,
    )
    controller.for_(informers[resource], predicate_of(resource.kind, declared.predicate))
    for kind in declared.owns:
        controller.owns(informers[kind], resource)
    for watched, keys in declared.watches.items():
        mapped = Callback(resource.kind, f"watches= of {watched.kind}", keys)
        controller.watches(informers[watched], mapped.keys)
    return controller


def _forgetting(applied: Applied, kind: Resource) -> Any:
    def handler(delta: Delta[Obj]) -> None:
        if delta.new is None:
            applied.forget(kind, delta.key)

    return handler
