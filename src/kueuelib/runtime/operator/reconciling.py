"""Reconciles one object: finalizer, function, status, teardown."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import attrs

from kueuelib.api.forms import typed_of
from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of
from kueuelib.errors import (
    ConfigError,
    Conflict,
    Forbidden,
    InvalidObject,
    KueuelibError,
    LeadershipLost,
    NotFound,
    TerminalError,
    TransportError,
)
from kueuelib.machinery.backoff import ReconcilerBackoff
from kueuelib.machinery.ownership import (
    MANAGED_BY,
    OWNER_INDEX,
    Applied,
    OfOwner,
    controller_key,
    has_finalizer,
    hold,
    holder_of,
    holders,
    owners_of,
)
from kueuelib.machinery.recurrence import Recent
from kueuelib.machinery.store import Delta
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.cluster import Cluster
from kueuelib.runtime.controller import DONE, Controller, Result, checked
from kueuelib.runtime.events import EventSink
from kueuelib.runtime.failures import is_denied, is_terminal
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.operator.context import Context
from kueuelib.runtime.operator.declaration import Operator
from kueuelib.runtime.operator.environment import (
    Callback,
    ReconcilerEnvironment,
    index_name,
    predicate_of,
)
from kueuelib.runtime.operator.reconciled import OtherKind, Reconciled, Watched
from kueuelib.runtime.operator.repeats import LISTENER, ObservedChange, Repeats, Round
from kueuelib.runtime.queries import PatchType
from kueuelib.runtime.steps import contained
from kueuelib.runtime.telemetry import Telemetry

FAILED = "ReconcileFailed"
"""The reason of the event about a failed call."""
_NOT_ABOUT_IT = (LeadershipLost, TransportError)
_PERMIT = (
    "run `kueuelib manifests FILE --image IMAGE --namespace NAMESPACE | kubectl apply -f -` again, "
    "and name what context.client calls in Operator(rules=)"
)


class KindReconciler:
    """Calls an author's function for the objects of one kind; a `Reconciler`."""

    def __init__(
        self, around: ReconcilerEnvironment, backoff: ReconcilerBackoff[ObjectKey]
    ) -> None:
        self._around = around
        self._backoff = backoff
        self._declared = around.declared
        self._reported = Recent()  # by UID and class of errors
        self._holds: dict[ObjectKey, tuple[str, bool]] = {}  # UID, and whether it is still held
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
            self._holds.pop(key, None)
            self._ended(key, Round())
            return DONE
        deleted = "deletionTimestamp" in obj["metadata"]
        if deleted and not self._is_awaited(key, obj):
            self._ended(key, Round())
            return DONE
        context = Context(self._around, obj)
        try:
            if declared.finalizer:
                context = Context(self._around, await self._hold(key, obj))
            result = await (self._tear_down if deleted else self._run)(context)
        except Conflict as error:
            newest = await self._around.cache.refresh(declared.resource, key)
            changed = newest is not None and newest["metadata"] != obj["metadata"]
            secret = declared.resource.kind == "Secret"
            others = ObservedChange("", obj, newest, hidden=secret) if changed else None
            self._ended(key, Round(context.writes.changes, str(error), others))
            self._backoff.conflict(key)
            return Result(rate_limited=True)
        self._ended(key, Round(context.writes.changes, requeue_after=result.requeue_after))
        return result

    def failed(self, key: ObjectKey, error: Exception, problem: str) -> None:
        """Report a failure by an event of the object: one a minute for each class of errors."""
        if isinstance(error, Forbidden) and not is_denied(error):
            self._log.warning("lacks a permission", error=problem, fix=_PERMIT)
        obj = self._around.informers[self._declared.resource].store.get(key)
        if obj is None or isinstance(error, _NOT_ABOUT_IT):
            return
        cause = obj["metadata"]["uid"], type(error).__name__
        if self._reported.is_new(cause, "", self._around.clock.monotonic()):
            later = "; it is not tried again until something changes" * is_terminal(error)
            text = problem if isinstance(error, KueuelibError) else f"{cause[1]}: {problem}"
            self._around.recorder.event(obj, "Warning", FAILED, f"{text}{later}")

    def _ended(self, key: ObjectKey, done: Round) -> None:
        repeats, kind = self._around.repeats, self._declared.resource
        repeated = repeats.note(key, done)
        if repeated is not None:
            self._log.warning(
                "reconciles an object again and again",
                object_kind=kind.kind,
                times=repeated.times,
                seconds=repeated.seconds,
                changed=list(repeated.changed),
                fix=repeated.cause.value,
            )
        if (listener := LISTENER.get()) is not None and (repeated or not repeats.warned(key)):
            listener(kind, key, repeated.text(kind.kind, key) if repeated else "")

    def _is_awaited(self, key: ObjectKey, obj: Obj) -> bool:
        """Whether a deleted object waits for the teardown function."""
        released = self._holds.get(key) == (obj["metadata"]["uid"], False)
        return has_finalizer(obj, self._declared.finalizer) and not released

    async def _run(self, context: Context) -> Result:
        return await self._call(self._declared.function, context)

    async def _tear_down(self, context: Context) -> Result:
        result = await self._call(self._declared.teardown_function, context)
        if result.requeue_after or result.rate_limited:
            return result
        await self._release(context.obj)
        return DONE

    async def _hold(self, key: ObjectKey, obj: Obj) -> Obj:
        """Return the object, held by the finalizer: one request per object and process."""
        finalizer, holding = self._declared.finalizer, (obj["metadata"]["uid"], True)
        if self._holds.get(key) == holding and has_finalizer(obj, finalizer):
            return obj
        held = await self._apply(hold(self._declared.resource, obj, finalizer))
        self._holds[key] = holding
        return held

    async def _release(self, obj: Obj) -> None:
        """Give an object up: remove its finalizer, unless another operator holds the object.

        A finalizer that came with the object is removed as well.
        """
        kind, finalizer = self._declared.resource, self._declared.finalizer
        answer = await self._apply(hold(kind, obj))
        if not has_finalizer(answer, finalizer):
            return
        key, meta = key_of(answer), answer["metadata"]
        others = [each for each in holders(answer, finalizer) if each not in self._declared.adopt]
        self._holds[key] = meta["uid"], False
        if others:
            self._log.warning(
                "other operators hold the finalizer",
                object_kind=kind.kind,
                finalizer=finalizer,
                operators=others,
                fix="the object stays until they have finished, too; give each its own finalizer",
            )
            return
        rest = [each for each in meta["finalizers"] if each != finalizer]
        patch = {"metadata": {"finalizers": rest, "resourceVersion": meta["resourceVersion"]}}
        with suppress(NotFound):
            client = self._around.client
            self._around.cache.learn(await client.patch(kind, key, patch, PatchType.MERGE))

    async def _apply(self, body: Obj) -> Obj:
        by = holder_of(self._around.operator)
        answer = await self._around.client.patch(
            self._declared.resource, key_of(body), body, PatchType.APPLY, field_manager=by
        )
        self._around.cache.learn(answer)
        return answer

    async def _call(self, function: Any, context: Context) -> Result:
        try:
            answer = await contained(function(self._value(context.obj), context))
            result = checked(answer, function)
            _check_not_negative(result, function)
        except Exception:
            await context.write_status(failed=True)  # what was set before it failed
            raise
        await context.write_status()
        return attrs.evolve(result, settled=False)  # what came while the status was written

    def _value(self, obj: Obj) -> Any:
        kind = self._declared.kind
        if isinstance(kind, Resource):
            return obj
        try:
            return typed_of(kind, obj)
        except InvalidObject as error:
            raise TerminalError(str(error)) from error


def controller_for(
    operator: Operator,
    declared: Reconciled[Any, Any],
    client: Client,
    cache: Cache,
    recorder: EventSink,
    *,
    clusters: Mapping[str, Cluster] = MappingProxyType({}),
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

    repeats = Repeats(SYSTEM_CLOCK.monotonic)
    informers = {kind: informer_of(kind) for kind in declared.watches}
    informers[resource] = informer_of(resource)
    for kind in declared.owns:
        if kind not in declared.watches:
            informers[kind] = informer_of(kind, f"{MANAGED_BY}={operator.name}")
        informers[kind].add_index(OWNER_INDEX, owners_of)
        informers[kind].add_handler(_forgetting(applied, kind))
    for indexed, indexes in declared.indexes.items():
        for name, function in indexes.items():
            called = Callback(resource.kind, f"indexes= of {indexed.kind}", function).values
            if indexed in declared.owns:
                of_children = index_name(declared, name, owned=True)
                informers[indexed].add_index(of_children, OfOwner(called))
            if indexed not in declared.owns or indexed in declared.watches:
                informers[indexed].add_index(index_name(declared, name, owned=False), called)
    around = ReconcilerEnvironment(
        operator=operator.name,
        declared=declared,
        client=client,
        cache=cache,
        recorder=recorder,
        informers=informers,
        clusters=clusters,
        applied=applied,
        clock=SYSTEM_CLOCK,
        repeats=repeats,
    )
    backoff: ReconcilerBackoff[ObjectKey] = ReconcilerBackoff(*declared.backoff)
    reconciler = KindReconciler(around, backoff)
    controller = Controller(
        f"{operator.name}-{resource.plural}",
        reconciler,
        workers=declared.workers,
        timeout=declared.timeout,
        limiter=backoff,
        clock=SYSTEM_CLOCK,
        telemetry=telemetry,
        failed=reconciler.failed,
    )
    controller.for_(informers[resource], predicate_of(resource.kind, declared.predicate))
    informers[resource].add_handler(lambda delta: repeats.heard(delta, (delta.key,)))
    for kind in declared.owns:
        controller.owns(informers[kind], resource)
        informers[kind].add_handler(_hearing(repeats, resource))
    for watched, keys in declared.watches.items():
        mapped = Callback(resource.kind, f"watches= of {watched.kind}", keys)
        controller.watches(informers[watched], partial(_heard, repeats, mapped))
    return controller


def _check_not_negative(result: Result, function: Any) -> None:
    if result.requeue_after is not None and result.requeue_after < 0:
        name = getattr(function, "__name__", "reconciler")
        problem = f"returned Result(requeue_after={result.requeue_after!r})"
        raise ConfigError(name, problem, "return 0 or more, in seconds")


def _forgetting(applied: Applied, kind: Resource) -> Any:
    def handler(delta: Delta[Obj]) -> None:
        if delta.new is None:
            applied.forget(kind, delta.key)

    return handler


def _hearing(repeats: Repeats, owner: Resource) -> Any:
    def handler(delta: Delta[Obj]) -> None:
        key = None if delta.new is None else controller_key(delta.new, owner)
        if key is not None:
            repeats.heard(delta, (key,))

    return handler


def _heard(repeats: Repeats, mapped: Callback, delta: Delta[Obj]) -> tuple[ObjectKey, ...]:
    keys = mapped.keys(delta)
    repeats.heard(delta, keys)
    return keys
