"""Makes the controllers and webhooks of enabled kinds of jobs, and hands them to a manager."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import attrs

from kueuelib.api.kinds import (
    JOBS,
    LOCAL_QUEUES,
    MANAGER_NAMESPACE,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    V1BETA2,
    VALIDATING_WEBHOOKS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    spoken,
)
from kueuelib.api.meta import Obj, ObjectKey, Resource, key_of
from kueuelib.api.names import known_version
from kueuelib.controllers.manifests import manager_user
from kueuelib.controllers.webhooks import queueing_entries, sparing
from kueuelib.errors import ConfigError
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.integration import Integration, IntegrationRegistry
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.kinds.follower import InformerEpoch, KindFollower, KindMetrics, is_lasting
from kueuelib.jobs.kinds.kind_controller import AbandonedWorkloads, KindController
from kueuelib.jobs.lookups.owners import DefaultQueues, Owners
from kueuelib.jobs.lookups.remembered import ForeignOwners, Referred
from kueuelib.jobs.lookups.stores import (
    ABOVE_UID,
    OWNER_NAME,
    OWNER_UID,
    PREBUILT_NAME,
    JobStores,
    job_uids,
    owner_names,
    prebuilt_name,
)
from kueuelib.jobs.plugins import as_integration, registry_for
from kueuelib.jobs.reconcile.executor import Executor, JobMetrics
from kueuelib.jobs.reconcile.reconciler import JobReconciler
from kueuelib.jobs.reconcile.self_wired import IntegrationParts, KindWebhooks, SelfWired
from kueuelib.jobs.webhooks.entries import EntryKeeper
from kueuelib.jobs.webhooks.manifests import webhook_entries
from kueuelib.jobs.webhooks.serving import JobWebhook
from kueuelib.machinery.store import Delta, Store
from kueuelib.runtime.addresses import own_namespace
from kueuelib.runtime.cache import Cache, OptionalInformer
from kueuelib.runtime.certificates import service_names
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import Controller, Reconciler
from kueuelib.runtime.events import EventRecorder, EventSink
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.webhook.admission import WebhookEntry
from kueuelib.runtime.webhook.server import Webhooks, add_webhook_server
from kueuelib.runtime.webhook.trust import Trusting

# Makes the parts of enabled integrations: a controller each, and the rules of their webhooks.


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
    webhooks: tuple[KindWebhooks, ...]
    default_queues: DefaultQueues
    informers: tuple[OptionalInformer, ...] = ()


def wire(
    client: Client,
    cache: Cache,
    recorder: EventSink,
    settings: JobSettings,
    *,
    version: str = V1BETA2,
    registry: IntegrationRegistry | None = None,
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
        from kueuelib.jobs.builtin import builtin_registry

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
    workloads.add_index(OWNER_UID, job_uids)
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

    def controller_of(turn: InformerEpoch) -> Controller:
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
    hooks: list[KindWebhooks] = []
    optional: list[OptionalInformer] = []
    for enabled_kind in enabled:
        if isinstance(enabled_kind, SelfWired):
            parts = IntegrationParts(
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
            controllers.append(controller_of(InformerEpoch(enabled_kind, jobs.store, jobs)))
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


# --------------------------------------------------------------------------------------------------

Kind = str | Integration | type[GenericJob[Any]]
"""The name of a kind that comes with kueuelib or an installed package, or a kind of one's own."""
NAME_LIMIT = 57
"""The maximum length of the name; suffixes are added to it."""
BUNDLED_KINDS = frozenset({JOBS.group_kind, PODS.group_kind})
"""Kinds that another manager is expected to queue, so that their children get no Workload."""


def setup(
    manager: Manager,
    cache: Cache,
    client: Client,
    recorder: EventRecorder,
    kinds: Sequence[Kind],
    *,
    webhooks: Webhooks | None = None,
    settings: JobSettings | None = None,
    version: str = V1BETA2,
    telemetry: Telemetry | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Adds job kinds to a manager: their controllers run on the leader, their webhooks everywhere.

    Args:
        manager: runs the parts. Add the cache and the recorder to it yourself.
        cache: the cache whose informers all parts share.
        client: sends the writes.
        recorder: records events about jobs.
        kinds: the kinds to queue, each a subclass of `GenericJob`, an `Integration` or a name such
            as `batch/job`.
        webhooks: the result of `job_webhooks` or of `kueuelib.controllers.queue_webhooks`. With
            None, jobs that are not created suspended run until the controllers suspend them.
        settings: the settings for jobs; `kinds` replaces its `frameworks`.
        version: the version of the queueing API to use; the API server must serve it.
        telemetry: where the controllers report.
        clock: the time.

    Raises:
        ConfigError: a kind is not known, cannot be queued, or exists twice; the manager has job
            kinds already; there is no such version.
    """
    version = known_version(version)
    registry, names = registry_with(kinds)
    enabled = registry.enabled(names)
    queued = frozenset(each.resource.group_kind for each in enabled)
    settings = settings or JobSettings()
    settings = attrs.evolve(
        settings,
        frameworks=names,
        external_kinds=settings.external_kinds | (BUNDLED_KINDS - queued),
    )
    manager.once("jobs.setup", "call it once, with all kinds")
    leading = client.guarded(manager.require_leadership)  # a paused leader may wake up too late
    wired = wire(
        leading,
        cache,
        recorder,
        settings,
        version=version,
        registry=registry,
        clock=clock,
        telemetry=telemetry,
    )
    add_jobs(manager, wired, recorder)
    if webhooks is not None:
        add_webhooks(manager, client, webhooks, wired, enabled, settings)


def job_webhooks(
    manager: Manager,
    client: Client,
    kinds: Sequence[Kind],
    address: str = ":9443",
    *,
    namespace: str = "",
    telemetry: Telemetry | None = None,
) -> Webhooks:
    """Adds a webhook server for kinds that are queued beside another manager.

    Its webhook configurations, Service and Secret have the names that `kueuelib manifests` gives
    them for the first of the kinds.

    Args:
        manager: runs the server.
        client: reads and writes the certificate and the webhook configurations.
        kinds: the same kinds as for `setup`, in the same order.
        address: the `host:port` to listen on.
        namespace: the namespace of Secret and Service; if empty, that of the pod, or `kueue-system`
            outside a cluster.
        telemetry: where the server reports.

    Raises:
        ConfigError: there is no kind, one cannot be queued, or the address is malformed.
    """
    registry, names = registry_with(kinds)
    (first, *_) = (each for each in registry.integrations if each.name == names[0])
    name, space = process_name(first), namespace or own_namespace(MANAGER_NAMESPACE)
    server = add_webhook_server(
        manager,
        client,
        address,
        service_names(name, space),
        ObjectKey(space, certificate_name(first)),
        [Trusting(each, name) for each in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)],
        telemetry=telemetry,
    )
    return Webhooks(server, name, name, manager_user(space, name))


def _resources(integration: Integration) -> Iterator[Resource]:
    """The kind, and those of the classes that it derives from."""
    named = [vars(each).get("resource") for each in integration.job_type.__mro__]
    return (each for each in named if isinstance(each, Resource))


def registry_with(kinds: Sequence[Kind]) -> tuple[IntegrationRegistry, tuple[str, ...]]:
    """A registry with all of these kinds, and their names in the same order.

    A class of one's own for a kind that comes with kueuelib takes the place of the bundled one.

    Raises:
        ConfigError: there is none, one is not known, cannot be queued, or exists twice.
    """
    if not kinds:
        raise ConfigError("kinds", "no job kind is given", "pass at least one")
    named = [each for each in kinds if isinstance(each, str)]
    registry = registry_for(named)
    bundled = {each.job_type: each.name for each in registry.integrations}
    names: list[str] = []
    for kind in kinds:
        if isinstance(kind, str):
            names.append(kind)
        elif isinstance(kind, type) and kind in bundled:
            names.append(bundled[kind])
        else:
            integration = as_integration(kind, "kinds")
            if integration is None:
                shown = getattr(kind, "__name__", repr(kind))
                fix = "pass a GenericJob with all its methods, an Integration, or a name"
                raise ConfigError("kinds", f"{shown} is not a job kind", fix)
            if any(each.group_kind == PODS.group_kind for each in _resources(integration)):
                problem = "only the bundled kind can queue Pods"
                raise ConfigError("kinds", problem, 'pass "pod"')
            registry = registry.without(integration.resource, named + names)
            registry = registry.register(integration)
            names.append(integration.name)
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ConfigError("kinds", f"{twice} exists twice", "list each kind once")
    return registry, tuple(names)


def add_jobs(manager: Manager, wired: Jobs, recorder: EventRecorder) -> None:
    """Adds what `wire` made to a manager; reconciliations precede events."""
    for follower in wired.followers:
        manager.add(Group.OTHERS, follower, f"{follower.name} kind")
    for controller in wired.controllers:
        manager.add(Group.ELECTED, controller, f"{controller.name} controller")
        if isinstance(controller, Controller):
            recorder.give_way(controller.queue.core.is_busy)
    for informer in wired.informers:
        manager.add(Group.CACHES, informer, informer.resource.plural)


def add_webhooks(
    manager: Manager,
    client: Client,
    webhooks: Webhooks,
    wired: Jobs,
    integrations: Sequence[Integration],
    settings: JobSettings,
) -> None:
    """Serves the webhooks of kinds, and keeps their entries in the configurations.

    Args:
        manager: runs the keeper.
        client: reads and writes the configurations.
        webhooks: the server and the configurations.
        wired: the rules.
        integrations: the enabled kinds.
        settings: which objects are sent.
    """
    for webhook in wired.webhooks:
        webhook.register(webhooks.server)

    def entries(default_namespaces: Collection[str]) -> list[WebhookEntry]:
        served = webhooks.server.paths
        of_queueing = [entry for entry in queueing_entries() if entry.path in served]
        of_jobs = webhook_entries(integrations, settings, default_namespaces)
        return sparing([*of_queueing, *of_jobs], webhooks.user)

    keeper = EntryKeeper(
        client,
        webhooks.mutating,
        webhooks.validating,
        entries,
        lambda: webhooks.server.paths,
        wired.default_queues,
    )
    manager.add(Group.WEBHOOKS, keeper, "webhook entries")


def process_name(integration: Integration) -> str:
    """The name of all objects of a process in the cluster; a DNS label."""
    resource = integration.resource
    parts = ["kueuelib", resource.plural, *resource.group.split(".")]
    return "-".join(filter(None, parts))[:NAME_LIMIT].rstrip("-")


def certificate_name(integration: Integration) -> str:
    """The name of the Secret with the certificate of its webhook server."""
    return f"{process_name(integration)}-cert"
