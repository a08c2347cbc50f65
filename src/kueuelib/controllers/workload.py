"""The workload reconciler: executes the decisions of `kueuelib.workload.next_step`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import attrs

from kueuelib.api.answers import expect_change
from kueuelib.api.kueue import CHECK_RETRY
from kueuelib.api.meta import Obj, ObjectKey, find_condition, key_of
from kueuelib.api.names import (
    ACTIVE,
    FINISHED,
    JOB_MANAGER_PREFIX,
)
from kueuelib.controllers.finalizers import CONFLICT_PAUSE, drop_finalizer
from kueuelib.controllers.metrics import SchedulerMetrics
from kueuelib.controllers.queue_metrics import counted
from kueuelib.controllers.workload_metrics import count_late_admission
from kueuelib.errors import Conflict, NotFound
from kueuelib.machinery.store import Delta, DeltaKind
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Controller, MapFunction, Result
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.predicates import Predicate
from kueuelib.runtime.queries import PatchType
from kueuelib.workload import states
from kueuelib.workload.checks import named_checks
from kueuelib.workload.job_events import job_uid
from kueuelib.workload.life import LifeSettings
from kueuelib.workload.next_step import (
    NOTHING,
    Judgements,
    Step,
    lost_its_job,
    next_step,
    workload_context,
)
from kueuelib.workload.writer import StatusWriter, refuse_lost_status

if TYPE_CHECKING:
    from kueuelib.runtime.events import EventRecorder
    from kueuelib.scheduler.engine import Settled

COMPONENT = "kueue-workload-controller"

BY_QUEUE = "workloads by queue"
BY_RESERVATION = "workloads by reserving ClusterQueue"
BY_CLUSTER_QUEUE = "LocalQueues by ClusterQueue"
BY_RETRY = "workloads by check that has to be tried again"


class Activities(Judgements, Protocol):
    """What the decision engine knows about ClusterQueues and reservations."""

    def advance(self, now: float) -> None:
        """Advances its time, in seconds since the epoch."""
        ...

    def make_room(self, key: ObjectKey) -> Settled:
        """The victims of a reservation that are not evicted yet."""
        ...


@attrs.frozen
class Informers:
    """The informers that the controllers share, all at one version of the queueing API."""

    workloads: Informer
    local_queues: Informer
    cluster_queues: Informer
    flavors: Informer
    checks: Informer

    def local_queue(self, key: ObjectKey) -> Obj | None:
        """A LocalQueue."""
        return self.local_queues.store.get(key)

    def cluster_queue_of(self, key: ObjectKey) -> str:
        """The ClusterQueue of a LocalQueue; empty if there is no such LocalQueue."""
        queue = self.local_queue(key)
        return "" if queue is None else queue["spec"].get("clusterQueue") or ""

    def cluster_queue(self, name: str) -> Obj | None:
        """A ClusterQueue."""
        return self.cluster_queues.store.get(ObjectKey("", name))

    def check(self, name: str) -> Obj | None:
        """An AdmissionCheck."""
        return self.checks.store.get(ObjectKey("", name))

    def index(self) -> None:
        """Adds the indexes that the controllers use."""
        self.workloads.add_index(BY_QUEUE, _queue_of)
        self.workloads.add_index(BY_RESERVATION, _reserving_queue_of)
        self.workloads.add_index(BY_RETRY, _retried_checks_of)
        self.local_queues.add_index(BY_CLUSTER_QUEUE, _cluster_queue_of)


class WorkloadReconciler:
    """Takes the next step of one Workload.

    Args:
        client: writes.
        informers: the informers of the queueing objects.
        activities: whether ClusterQueues can admit.
        preempt: evicts the victims of `Activities.make_room`; must return at once.
        recorder: for events about Workloads.
        metrics: admissions and evictions.
        life: the settings for times; they may be replaced at any time.
        clock: stamps transitions.
        exists: whether an object with a UID is known in a namespace.
    """

    def __init__(
        self,
        client: Client,
        informers: Informers,
        activities: Activities,
        recorder: EventRecorder,
        metrics: SchedulerMetrics,
        *,
        preempt: Callable[[Settled], None],
        life: LifeSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        exists: Callable[[str, str], bool] = lambda _uid, _namespace: False,
    ) -> None:
        self._exists = exists
        self.life = life or LifeSettings()
        self._client = client
        self._informers = informers
        self._writer = StatusWriter(client, informers.workloads)
        self._activities = activities
        self._preempt = preempt
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock

    async def reconcile(self, key: ObjectKey) -> Result:
        """One step with at most one write; the delta of the write triggers the next step."""
        wl = self._informers.workloads.store.get(key)
        if wl is None:
            return DONE
        now = self._clock.now()
        self._activities.advance(now)
        step = self._next_step(wl, now)
        if step.make_room:
            self._preempt(self._activities.make_room(key))
        try:
            await self._take(wl, step)
        except Conflict:
            return Result(requeue_after=CONFLICT_PAUSE)
        except NotFound:
            return DONE
        for note in step.notes:
            for regarding in (wl, *(owners_of(wl) if note.on_owners else ())):
                self._recorder.event(
                    regarding, note.type, note.reason, note.message, component=COMPONENT
                )
        if step.workload is not None:
            self._count(wl, step.workload, now)
        if step.look_again is None:
            return DONE
        return Result(requeue_after=max(step.look_again - now, 0.001))

    def _next_step(self, wl: Obj, now: float) -> Step:
        around = workload_context(wl, self._informers, self._activities, self.life)
        step = next_step(wl, around, now)
        job = "" if step.workload is None else lost_its_job(wl)
        if job and self._exists(job, key_of(wl).namespace):
            return next_step(wl, attrs.evolve(around, has_job=True), now)
        return step

    def has_step(self, delta: Delta[Obj]) -> bool:
        """Whether a change of a Workload leads to a step, now or at a later time.

        Most changes do not. An initial one always counts, because it may come before those of the
        objects around it.
        """
        if delta.initial or delta.new is None:
            return delta.initial
        try:
            return self._next_step(delta.new, self._clock.now()) != NOTHING
        except Exception:  # noqa: BLE001 - the reconciliation will report it
            return True

    async def _take(self, wl: Obj, step: Step) -> None:
        workloads = self._informers.workloads
        resource = workloads.resource
        if step.drop_finalizer:
            await drop_finalizer(self._client, workloads, wl)
        elif step.delete:
            uid = wl["metadata"]["uid"]
            answer = await self._client.delete(
                resource, key_of(wl), uid=uid, propagation="Background"
            )
            workloads.learn_deleted(wl, answer)
        elif step.deactivate:
            meta = wl["metadata"]
            identity = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
            body = {"metadata": identity, "spec": {"active": False}}
            try:
                answer = await self._client.patch(resource, key_of(wl), body, PatchType.MERGE)
            except Conflict:
                await workloads.refresh(key_of(wl))
                raise
            workloads.learn(answer, shared=True)
            expect_change(wl, {"spec": {**wl["spec"], "active": False}}, answer)
        elif step.workload is not None and states.is_finished(step.workload):
            await self._finish(wl, step.workload)
        elif step.workload is not None:
            await self._writer.store(wl, step.workload)

    async def _finish(self, wl: Obj, finished: Obj) -> None:
        """Write Finished as the reconciler of its job would, and touch no fields of others."""
        workloads, meta = self._informers.workloads, wl["metadata"]
        body = {
            "apiVersion": workloads.resource.api_version,
            "kind": workloads.resource.kind,
            "metadata": {field: meta[field] for field in ("name", "namespace", "uid")},
            "status": {"conditions": [dict(states.condition(finished, FINISHED))]},
        }
        try:
            answer = await self._client.patch(
                workloads.resource,
                key_of(wl),
                body,
                PatchType.APPLY,
                subresource="status",
                field_manager=f"{JOB_MANAGER_PREFIX}{FINISHED}",
                force=True,
            )
        except NotFound as error:
            refuse_lost_status(error, wl, await workloads.refresh(key_of(wl)))
            raise
        workloads.learn(answer, shared=True)
        expect_change(wl, body, answer)

    def _count(self, old: Obj, new: Obj, now: float) -> None:
        if states.is_evicted(new) and not states.is_evicted(old):
            first = states.is_first_eviction(new)
            self._metrics.evicted(counted(new), *states.eviction_cause(new), first=first)
        if states.is_admitted(new) and not states.is_admitted(old):
            count_late_admission(self._metrics, new, now)


def owners_of(wl: Obj) -> Iterator[Obj]:
    """References to the jobs of a Workload, as events want them."""
    for ref in wl["metadata"].get("ownerReferences") or ():
        yield {
            "apiVersion": ref["apiVersion"],
            "kind": ref["kind"],
            "namespace": key_of(wl).namespace,
            "name": ref["name"],
            "uid": ref["uid"],
        }


def job_of(wl: Obj) -> Obj | None:
    """A reference to the object that gets the Events about the job; None without owners."""
    uid = job_uid(wl)
    return next((each for each in owners_of(wl) if each["uid"] == uid), None)


def watch(controller: Controller, informers: Informers, has_step: Predicate) -> Controller:
    """Makes a controller reconcile Workloads when they, their queues or their checks change.

    Args:
        controller: of a `WorkloadReconciler`.
        informers: the informers that it listens to.
        has_step: whether a change of a Workload leads to a step.
    """
    return (
        controller.for_(informers.workloads, has_step)
        .watches(informers.local_queues, _of_local_queue(informers), queue_matters)
        .watches(informers.cluster_queues, _of_cluster_queue(informers), queue_matters)
        .watches(
            informers.checks,
            lambda delta: informers.workloads.store.keys_by_index(BY_RETRY, delta.key.name),
            spec_changed,
        )
    )


def _of_local_queue(informers: Informers) -> MapFunction:
    def keys(delta: Delta[Obj]) -> tuple[ObjectKey, ...]:
        return informers.workloads.store.keys_by_index(BY_QUEUE, delta.key)

    return keys


def _of_cluster_queue(informers: Informers) -> MapFunction:
    def keys(delta: Delta[Obj]) -> Iterator[ObjectKey]:
        name = delta.key.name
        workloads = informers.workloads.store
        yield from workloads.keys_by_index(BY_RESERVATION, name)
        for queue in informers.local_queues.store.keys_by_index(BY_CLUSTER_QUEUE, name):
            yield from workloads.keys_by_index(BY_QUEUE, queue)

    return keys


def queue_matters(delta: Delta[Obj]) -> bool:
    """Whether a change of a queue can affect the next step of its Workloads."""
    if delta.initial:
        return False
    if delta.kind is not DeltaKind.UPDATED:
        return True
    assert delta.old is not None
    assert delta.new is not None
    return _digest(delta.old) != _digest(delta.new)


def _digest(queue: Obj) -> tuple[object, ...]:
    spec = queue.get("spec") or {}
    active = find_condition((queue.get("status") or {}).get("conditions"), ACTIVE)
    return (
        spec.get("clusterQueue"),
        spec.get("stopPolicy"),
        spec.get("admissionChecksStrategy"),
        named_checks(queue),
        bool(queue["metadata"].get("deletionTimestamp")),
        active.get("status"),
        active.get("reason"),
    )


def spec_changed(delta: Delta[Obj]) -> bool:
    """Whether the spec of an object has changed."""
    if delta.initial or delta.old is None or delta.new is None:
        return not delta.initial
    return bool(delta.old.get("spec") != delta.new.get("spec"))


def _retried_checks_of(wl: Obj) -> Iterator[str]:
    yield from states.checks_in(wl, CHECK_RETRY)


def _queue_of(wl: Obj) -> Iterator[ObjectKey]:
    name = (wl.get("spec") or {}).get("queueName")
    if name:
        yield ObjectKey(wl["metadata"].get("namespace") or "", name)


def _reserving_queue_of(wl: Obj) -> Iterator[str]:
    name = (states.status_of(wl).get("admission") or {}).get("clusterQueue")
    if name and not states.is_finished(wl):
        yield name


def _cluster_queue_of(queue: Obj) -> Iterator[str]:
    name = (queue.get("spec") or {}).get("clusterQueue")
    if name:
        yield name
