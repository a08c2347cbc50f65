"""Makes the parts of enabled integrations: a controller each, and the rules of their webhooks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import attrs

from kueuelib.api.kinds import (
    LOCAL_QUEUES,
    NAMESPACES,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    V1BETA2,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    spoken,
)
from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of
from kueuelib.jobs.catalog.registry import Registry
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.kinds.abandoned import AbandonedWorkloads
from kueuelib.jobs.kinds.follower import KindFollower
from kueuelib.jobs.kinds.presence import is_lasting
from kueuelib.jobs.kinds.standing import KindMetrics, Turn
from kueuelib.jobs.kinds.turns import KindController
from kueuelib.jobs.lookups.default_queues import DefaultQueues
from kueuelib.jobs.lookups.foreign import ForeignOwners
from kueuelib.jobs.lookups.owners import Owners
from kueuelib.jobs.lookups.referred import Referred
from kueuelib.jobs.lookups.stores import (
    ABOVE_UID,
    OWNER_NAME,
    OWNER_UID,
    PREBUILT_NAME,
    JobStores,
    owner_names,
    owner_uids,
    prebuilt_name,
)
from kueuelib.jobs.reconcile.executor import Executor
from kueuelib.jobs.reconcile.metrics import JobMetrics
from kueuelib.jobs.reconcile.reconciler import JobReconciler
from kueuelib.jobs.reconcile.self_wired import Parts, SelfWired, Webhook
from kueuelib.jobs.webhooks.serving import JobWebhook
from kueuelib.machinery.store import Delta, Store
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import Controller, Reconciler
from kueuelib.runtime.events import EventSink
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.optional import OptionalInformer
from kueuelib.runtime.telemetry import Telemetry


@attrs.frozen
class Jobs:
    """The parts that the application has to run.

    Attributes:
        controllers: for the leader.
        followers: one for each kind that a CRD defines; they run on every replica.
        webhooks: one per enabled kind, even if the API server does not serve it yet.
        default_queues: knows the namespaces whose jobs get a queue name.
        informers: of kinds that may be missing.
    """

    controllers: tuple[Controller | KindController, ...]
    followers: tuple[KindFollower, ...]
    webhooks: tuple[Webhook, ...]
    default_queues: DefaultQueues
    informers: tuple[OptionalInformer, ...] = ()


def wire(
    client: Client,
    cache: Cache,
    recorder: EventSink,
    settings: JobSettings,
    *,
    version: str = V1BETA2,
    registry: Registry | None = None,
    clock: Clock = SYSTEM_CLOCK,
    telemetry: Telemetry | None = None,
) -> Jobs:
    """Build controllers and webhooks; nothing runs yet.

    Args:
        client: writes, and finds out which kinds are served.
        cache: makes informers.
        recorder: reports events.
        settings: the configuration.
        version: of `kueue.x-k8s.io` that the API server serves and the cache holds.
        registry: the known integrations, by default those that come with kueuelib.
        clock: the time.
        telemetry: where controllers report.

    Raises:
        ConfigError: the configuration names an integration that is not known.
    """
    if registry is None:
        from kueuelib.jobs.catalog.builtin import builtin_registry

        registry = builtin_registry()
    enabled = registry.enabled(settings.frameworks)
    lasting = [
        integration for integration in enabled if is_lasting(integration) and integration.watches
    ]
    informers = {
        integration.name: cache.informer(
            integration.resource,
            label_selector=integration.watched,
            transform=integration.transform,
        )
        for integration in lasting
    }
    for informer in informers.values():
        informer.add_index(PREBUILT_NAME, prebuilt_name)

    def queueing(resource: Resource) -> Informer:
        return cache.informer(spoken(resource, version))

    workloads = queueing(WORKLOADS)
    workloads.add_index(OWNER_UID, owner_uids)
    workloads.add_index(OWNER_NAME, owner_names)
    others = [
        queueing(resource)
        for resource in (RESOURCE_FLAVORS, WORKLOAD_PRIORITY_CLASSES, PRIORITY_CLASSES)
    ]
    others.append(queueing(NAMESPACES))
    flavors, workload_classes, pod_classes, namespaces = (informer.store for informer in others)
    objects = {name: informer.store for name, informer in informers.items()}
    default_queues = DefaultQueues(queueing(LOCAL_QUEUES))
    stores = JobStores(
        objects,
        workloads.store,
        flavors,
        workload_classes,
        pod_classes,
        namespaces,
    )
    parents = tuple(integration for integration in enabled if integration.makes_pods)
    foreign = ForeignOwners(client, clock)
    workloads.add_handler(foreign.heard)
    owners = Owners(enabled, stores, settings, foreign, default_queues)
    referred = Referred(client, clock)
    metrics = JobMetrics(telemetry)
    kind_metrics = KindMetrics(telemetry)
    below: dict[str, tuple[Controller, Store[tuple[str, ...]]]] = {}

    def wake_below(delta: Delta[Obj]) -> Iterable[ObjectKey]:
        """Look at the jobs of all kinds below an owner, which is not one of them."""
        for uid in {each["metadata"]["uid"] for each in (delta.old, delta.new) if each}:
            for controller, above in below.values():
                controller.enqueue(*above.keys_by_index(ABOVE_UID, uid))
        return ()

    def controller_of(turn: Turn) -> Controller:
        integration = turn.integration
        component = integration.component
        executor = Executor(client, cache, recorder, component, version, metrics.count, clock)
        reconciler: Reconciler
        above: Store[tuple[str, ...]] = Store({ABOVE_UID: tuple})
        if turn.informer is None:
            reconciler = AbandonedWorkloads(integration, stores, executor)
        else:
            own = attrs.evolve(stores, jobs={integration.name: turn.store})
            reconciler = JobReconciler(
                integration, own, owners, executor, settings, clock, referred
            )
            above = reconciler.above
        made = Controller(
            integration.name,
            reconciler,
            settings.workers_of(integration.resource),
            clock=clock,
            telemetry=telemetry,
        )
        if turn.informer is not None:
            made.for_(turn.informer, first=_may_wait(integration))
            made.watches(turn.informer, wake_below, _moves_those_below)
        below[integration.name] = (made, above)
        made.watches(workloads, _interested(integration, turn.store, above))
        for informer in others:
            made.watches(informer, lambda _: ())
        return made

    controllers: list[Controller | KindController] = []
    followers: list[KindFollower] = []
    hooks: list[Webhook] = []
    optional: list[OptionalInformer] = []
    for enabled_kind in enabled:
        if isinstance(enabled_kind, SelfWired):
            parts = Parts(
                enabled_kind,
                parents,
                client,
                cache,
                recorder,
                settings,
                version,
                stores,
                owners,
                workloads,
                queueing(NAMESPACES),
                (*others, *(informers[each.name] for each in lasting if each.makes_pods)),
                clock,
                telemetry,
            )
            wired = enabled_kind.wire(parts)
            hooks.append(wired.webhook)
            controllers += wired.controllers
            optional += wired.informers
        elif enabled_kind in lasting:
            hooks.append(JobWebhook(enabled_kind, settings, stores, owners, kind_metrics))
            jobs = informers[enabled_kind.name]
            controllers.append(controller_of(Turn(enabled_kind, jobs.store, jobs)))
        else:
            follower = KindFollower(enabled_kind, client, cache, objects, kind_metrics, clock)
            hooks.append(JobWebhook(enabled_kind, settings, stores, owners, kind_metrics, follower))
            followers.append(follower)
            controllers.append(KindController(follower, controller_of, recorder))
    return Jobs(tuple(controllers), tuple(followers), tuple(hooks), default_queues, tuple(optional))


def _may_wait(integration: Integration) -> Callable[[Delta[Obj]], bool]:
    """Whether the job of a delta may wait for its Workload; one that runs needs nothing."""

    def waits(delta: Delta[Obj]) -> bool:
        with contextlib.suppress(Exception):  # a malformed object is reported later
            return integration.job_type(delta.last).is_suspended()
        return False

    return waits


def _moves_those_below(delta: Delta[Obj]) -> bool:
    """Whether a search upwards that passes an object may end elsewhere; not with its status."""
    if delta.old is None or delta.new is None:
        return True
    before, after = delta.old["metadata"], delta.new["metadata"]
    fields = ("uid", "generation", "labels", "annotations", "ownerReferences")
    return any(before.get(field) != after.get(field) for field in fields)


def _interested(
    integration: Integration, jobs: Store[Obj], above: Store[tuple[str, ...]]
) -> Callable[[Delta[Obj]], Iterable[ObjectKey]]:
    """The jobs that a change of a Workload affects: owners, all jobs below them, and jobs that name
    it.
    """

    def keys(delta: Delta[Obj]) -> Iterable[ObjectKey]:
        job_keys: list[ObjectKey] = []
        for workload in (delta.old, delta.new):
            if workload is None:
                continue
            namespace = workload["metadata"].get("namespace") or ""
            refs = workload["metadata"].get("ownerReferences") or ()
            job_keys += [
                ObjectKey(namespace, ref["name"]) for ref in refs if integration.is_owner(ref)
            ]
            for ref in refs:
                job_keys += above.keys_by_index(ABOVE_UID, ref["uid"])
            job_keys += jobs.keys_by_index(PREBUILT_NAME, key_of(workload))
        return job_keys

    return keys
