"""Puts the queueing controllers together and hands them to a manager."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import attrs

from kueuelib.api import kinds
from kueuelib.api.crd import converted_crds
from kueuelib.api.definitions import CONVERSION_PATH
from kueuelib.api.kinds import V1BETA2, WORKLOADS
from kueuelib.api.meta import ObjectKey, Resource
from kueuelib.api.names import known_version
from kueuelib.controllers import feed as sources
from kueuelib.controllers import workload as workloads
from kueuelib.controllers.admission import AdmissionLoop
from kueuelib.controllers.applier import WAIT_PRIORITY, Applier, OrderWriter, PendingReasonWriter
from kueuelib.controllers.auditor import Auditor
from kueuelib.controllers.feed import Feed
from kueuelib.controllers.finalizers import InUseReconciler, checks_of, flavors_of
from kueuelib.controllers.foreign_reservations import ForeignReservations
from kueuelib.controllers.job_events import CachedPlaces, JobEventReconciler
from kueuelib.controllers.manifests import (
    WEBHOOK_SECRET,
    WEBHOOK_SERVICE,
    manager_user,
    server_names,
)
from kueuelib.controllers.metrics import SchedulerMetrics, report_build
from kueuelib.controllers.node_failures import NodeFailureReconciler, node_failures
from kueuelib.controllers.nodes import feed_nodes, topologies_of, users_of
from kueuelib.controllers.queue_metrics import (
    CohortMetrics,
    LocalQueueMetrics,
    OwnedSeries,
    QueueGauges,
    queue_states,
    report_queues,
)
from kueuelib.controllers.queues import (
    ClusterQueueReconciler,
    CohortReconciler,
    LocalQueueReconciler,
    TreeWatch,
    above,
)
from kueuelib.controllers.series_labels import (
    CLUSTER_QUEUE,
    COHORT,
    DEFAULT_METRICS,
    LOCAL_QUEUE,
    ByWorkload,
    MetricSettings,
    SeriesLabels,
    role_of,
)
from kueuelib.controllers.ungater import UngaterReconciler, pods_to_start, ungater
from kueuelib.controllers.webhooks import MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION, serve
from kueuelib.controllers.workload import (
    BY_CLUSTER_QUEUE,
    Informers,
    WorkloadReconciler,
    queue_matters,
)
from kueuelib.controllers.workload_metrics import WorkloadMetrics
from kueuelib.machinery.backoff import ItemExponential
from kueuelib.machinery.selectors import Selector
from kueuelib.runtime.addresses import own_namespace
from kueuelib.runtime.cache import Cache, OptionalInformer
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import Controller, Reconciler
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.predicates import generation_changed
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.webhook.server import Webhooks, add_webhook_server
from kueuelib.runtime.webhook.trust import Trusting
from kueuelib.scheduler.engine import Engine, Settled
from kueuelib.scheduler.events import Effects
from kueuelib.workload.life import LifeSettings
from kueuelib.workload.writer import StatusWriter

# ---- the manager's settings for the queueing controllers -----------------------------------------

WORKERS = 5
"""How many Workloads are reconciled at a time."""


@attrs.frozen
class ControllerSettings:
    """The manager's settings for the queueing controllers.

    Attributes:
        version: the version of the queueing API to use; the API server must serve it.
        workers: how many objects are reconciled at a time, by `Kind.group`; by
            default `WORKERS` Workloads, and one object of any other kind.
        appliers: how many Workload statuses are written at a time.
        metrics: which series there are.
        life: time limits in the life of a Workload.
        reason_events: whether jobs get Events that say why their Workloads wait
            (`integrations.reasonEvents`).
    """

    version: str = attrs.field(default=V1BETA2, converter=known_version)
    workers: Mapping[str, int] = attrs.field(factory=dict)
    appliers: int = 16
    metrics: MetricSettings = DEFAULT_METRICS
    life: LifeSettings = attrs.field(factory=LifeSettings)
    reason_events: bool = True

    def workers_of(self, resource: Resource) -> int:
        """How many objects of a kind are reconciled at a time."""
        default = WORKERS if resource.kind == WORKLOADS.kind else 1
        return self.workers.get(f"{resource.kind}.{resource.group}", default)


# ---- the webhook server of a program that runs the whole queue -----------------------------------


def queue_webhooks(
    manager: Manager,
    client: Client,
    address: str = ":9443",
    *,
    namespace: str = "",
    telemetry: Telemetry | None = None,
) -> Webhooks:
    """Adds a webhook server for the queueing objects, and for jobs in the same program.

    It replaces the server of the bundled manager: `kueuelib install` writes the CRDs and the
    webhook configurations that point to it.

    Args:
        manager: runs the server.
        client: reads and writes the certificate and the webhook configurations.
        address: the `host:port` to listen on.
        namespace: the namespace of Secret and Service; if empty, that of the pod, or `kueue-system`
            outside a cluster.
        telemetry: where the server reports.

    Raises:
        ConfigError: the address is malformed.
    """
    space = namespace or own_namespace(kinds.MANAGER_NAMESPACE)
    names = (MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION)
    trusting = [
        Trusting(kinds.MUTATING_WEBHOOKS, names[0]),
        Trusting(kinds.VALIDATING_WEBHOOKS, names[1]),
        *(Trusting(kinds.CRDS, name, path=CONVERSION_PATH) for name in converted_crds()),
    ]
    server = add_webhook_server(
        manager,
        client,
        address,
        server_names(WEBHOOK_SERVICE, space),
        ObjectKey(space, WEBHOOK_SECRET),
        trusting,
        telemetry=telemetry,
    )
    return Webhooks(server, *names, manager_user(space))


# --------------------------------------------------------------------------------------------------

STATUS_DELAY = 0.02
"""Seconds within which several changes of a queue lead to one reconciliation, at least."""


@attrs.frozen
class Controllers:
    """The result of `setup`.

    Attributes:
        informers: of the queueing objects, indexed.
        feed: the only writer of the engine; `subscribe` to be called with the effects of changes.
        loop: the admission loop.
        metrics: admissions and evictions.
        use_life: takes over the settings for times of a new configuration.
        report: takes over the selection of LocalQueues with metrics.
    """

    informers: Informers
    feed: Feed
    loop: AdmissionLoop
    metrics: SchedulerMetrics
    use_life: Callable[[LifeSettings], None]
    report: Callable[[Selector], None]


def setup(
    manager: Manager,
    cache: Cache,
    client: Client,
    recorder: EventRecorder,
    engine: Engine,
    *,
    webhooks: Webhooks | None = None,
    settings: ControllerSettings | None = None,
    telemetry: Telemetry | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Controllers:
    """Adds the admission loop and the controllers of all queueing objects to a manager.

    The engine follows the cache in every replica; the loop and the reconcilers run on the leader
    only.

    Args:
        manager: runs the parts. Add the cache and the recorder to it yourself.
        cache: the cache whose informers all parts share; it must not have cached another version.
        client: sends the writes.
        recorder: records events about Workloads.
        engine: a new, empty scheduler. From now on only these controllers may change it.
        webhooks: the result of `queue_webhooks`; None if another process serves the webhooks of
            queueing objects.
        settings: the settings for the controllers.
        telemetry: for the `kueue_` metrics.
        clock: for decisions, transition times and pauses.

    Raises:
        ConfigError: the manager has these controllers already.
    """
    manager.once("controllers.setup", "call it once")
    settings, telemetry = settings or ControllerSettings(), telemetry or Telemetry()
    client = client.guarded(manager.require_leadership)  # a paused leader may wake up too late
    if webhooks is not None:
        serve(webhooks.server)
    informers = _informers(cache, settings.version)
    informers.index()
    by_workload = ByWorkload(
        settings.metrics.custom_labels,
        informers.workloads.store.get,
        engine.waiting,
        engine.admitted,
    )
    local_queue_metrics = LocalQueueMetrics(
        telemetry,
        informers.local_queues.store.get,
        settings.metrics,
        inadmissible=engine.inadmissible_in,
        by_workload=by_workload,
    )
    series = OwnedSeries()
    report_build(telemetry)
    metrics = SchedulerMetrics(telemetry, engine.cohorts, local_queue_metrics, series)
    feed = Feed(engine, recorder, clock=clock)
    strangers = ForeignReservations(
        telemetry,
        recorder,
        lambda key: engine.cache.holder(key) is not None,
        decides=lambda: manager.leading is None and workload.listening,
        monotonic=clock.monotonic,
    )
    informers.workloads.add_handler(strangers.seen)
    nodes = None
    if engine.places_pods:
        topologies = cache.informer(kinds.TOPOLOGIES.at(settings.version))
        nodes = feed_nodes(manager, cache, feed, topologies, informers.flavors)
        users = partial(users_of, informers.flavors)
        topology = Controller(
            "topology", InUseReconciler(client, topologies, users), clock=clock, telemetry=telemetry
        )
        topology.for_(topologies).watches(informers.flavors, topologies_of)
        manager.add(Group.ELECTED, topology, "topology controller")
    cohorts = feed_from(manager, cache, client, feed, settings.version, clock=clock)
    telemetry.more_labels = SeriesLabels(
        lambda: role_of(manager.leading),
        settings.metrics.custom_labels,
        {
            COHORT: lambda key: cohorts.store.get(key),  # noqa: PLW0108 - another store later
            CLUSTER_QUEUE: informers.cluster_queues.store.get,
            LOCAL_QUEUE: informers.local_queues.store.get,
        },
    )

    writer = StatusWriter(client, informers.workloads)
    orders = OrderWriter(writer, recorder, metrics, feed.observe, clock, strangers.reserved)
    applier = Applier(orders, engine.cache.holder)
    applying = Controller(
        "admission",
        applier,
        settings.appliers,
        limiter=ItemExponential(0.05, 10.0),
        clock=clock,
        telemetry=telemetry,
    )
    busy = applying.queue.core.is_busy
    recorder.give_way(busy)
    pending_reasons = PendingReasonWriter(
        lambda keys: applying.enqueue(*keys, priority=WAIT_PRIORITY), clock=clock
    )

    def submit(settled: Settled) -> None:
        applier.submit(settled, applying, pending_reasons)

    loop = AdmissionLoop(engine, submit, feed.spread, metrics, clock=clock)

    def controller(resource: Resource, reconciler: Reconciler) -> Controller:
        name = resource.kind.lower()
        workers = settings.workers_of(resource)
        return Controller(name, reconciler, workers, clock=clock, telemetry=telemetry)

    workload_reconciler = WorkloadReconciler(
        client,
        informers,
        engine,
        recorder,
        metrics,
        preempt=submit,
        life=settings.life,
        clock=clock,
        exists=cache.exists,
    )
    workload = workloads.watch(
        controller(kinds.WORKLOADS, workload_reconciler), informers, workload_reconciler.has_step
    )
    pods = pods_to_start(cache, informers.flavors)
    manager.add(Group.CACHES, pods, "pods with a topology")
    starter = UngaterReconciler(client, informers.workloads, pods, cache, telemetry, clock=clock)
    manager.add(
        Group.ELECTED,
        ungater(starter, informers.workloads, pods, clock=clock, telemetry=telemetry),
        "topology ungater",
    )
    if nodes is not None and engine.node_failures.replaces:
        looks = NodeFailureReconciler(
            client,
            informers.workloads,
            informers.flavors,
            nodes,
            pods,
            cache,
            recorder,
            metrics,
            rules=engine.node_failures,
            clock=clock,
        )
        failures = node_failures(
            looks, informers.workloads, nodes, pods, clock=clock, telemetry=telemetry
        )
        manager.add(Group.ELECTED, failures, "node failures")
    if settings.reason_events:
        repeater = JobEventReconciler(informers, recorder, CachedPlaces(engine), clock=clock)
        repeating = Controller("job events", repeater, clock=clock, telemetry=telemetry)
        repeating.for_(informers.workloads, repeater.is_news)
        manager.add(Group.ELECTED, repeating, "job events")
    follower = WorkloadMetrics(
        telemetry,
        metrics,
        local_queue_metrics,
        informers.cluster_queue_of,
        leading=lambda: workload.listening,
        now=clock.now,
    )
    informers.workloads.add_handler(follower.seen)
    cluster_queue_reconciler = ClusterQueueReconciler(
        client, informers.cluster_queues, engine, series, clock=clock, busy=busy
    )
    cluster_queue = controller(kinds.CLUSTER_QUEUES, cluster_queue_reconciler).for_(
        informers.cluster_queues
    )

    def states() -> Iterable[QueueGauges]:
        queues = informers.cluster_queues.store.items() if cluster_queue.listening else ()
        return queue_states(queues, engine)

    report_queues(
        telemetry,
        states,
        settings=settings.metrics,
        pending=engine.pending_requests,
        shapes=engine.pending_shapes,
        by_workload=by_workload,
    )
    cohort = (
        controller(
            kinds.COHORTS,
            CohortReconciler(
                client, cohorts, engine, CohortMetrics(telemetry), recorder, clock=clock, busy=busy
            ),
        )
        .watches(cohorts, partial(above, engine))
        .watches(informers.cluster_queues, partial(above, engine), generation_changed)
    )
    trees = TreeWatch(engine, cohort, cluster_queue)
    informers.cluster_queues.add_handler(trees.quota_changed)
    cohorts.add_handler(trees.quota_changed)
    local_queue_reconciler = LocalQueueReconciler(
        client,
        informers.local_queues,
        informers.cluster_queues,
        engine,
        local_queue_metrics,
        clock=clock,
        busy=busy,
    )
    local_queue = (
        controller(kinds.LOCAL_QUEUES, local_queue_reconciler)
        .for_(informers.local_queues)
        .watches(
            informers.cluster_queues,
            lambda delta: informers.local_queues.store.keys_by_index(
                BY_CLUSTER_QUEUE, delta.key.name
            ),
            queue_matters,
        )
    )
    flavor = (
        controller(
            kinds.RESOURCE_FLAVORS,
            InUseReconciler(client, informers.flavors, engine.cache.users_of_flavor),
        )
        .for_(informers.flavors)
        .watches(informers.cluster_queues, flavors_of, generation_changed)
    )
    check = (
        controller(
            kinds.ADMISSION_CHECKS,
            InUseReconciler(client, informers.checks, engine.cache.users_of_check),
        )
        .for_(informers.checks)
        .watches(informers.cluster_queues, checks_of, generation_changed)
    )

    def affected(effects: Effects) -> None:
        # Those that do not listen yet will look at everything when they begin.
        if effects.cluster_queues and cluster_queue.listening:
            keys = (ObjectKey("", name) for name in effects.cluster_queues)
            cluster_queue.queue.add_later(keys, STATUS_DELAY, cluster_queue_reconciler.not_before)
        trees.usage_changed(effects.cluster_queues)
        if effects.local_queues and local_queue.listening:
            local_queue.queue.add_later(
                effects.local_queues, STATUS_DELAY, local_queue_reconciler.not_before
            )
        if effects.workloads and workload.listening:
            workload.enqueue(*effects.workloads)
        loop.wake()

    feed.subscribe(affected)
    for part, name in (
        (applying, "admission applier"),
        (workload, "workload controller"),
        (cluster_queue, "clusterqueue controller"),
        (cohort, "cohort controller"),
        (local_queue, "localqueue controller"),
        (flavor, "resourceflavor controller"),
        (check, "admissioncheck controller"),
    ):
        manager.add(Group.ELECTED, part, name)
    manager.add(Group.ELECTED, loop, "admission loop")
    manager.add(Group.ELECTED, pending_reasons, "pending reasons")
    manager.add(Group.ELECTED, Auditor(engine, applier.book, orders), "auditor")

    def use_life(life: LifeSettings) -> None:
        workload_reconciler.life = life
        if workload.listening:
            workload.enqueue(*informers.workloads.store.keys())

    def report(selector: Selector) -> None:
        local_queue_metrics.select(selector)
        if local_queue.listening:
            local_queue.enqueue(*informers.local_queues.store.keys())

    return Controllers(informers, feed, loop, metrics, use_life, report)


def feed_from(
    manager: Manager,
    cache: Cache,
    client: Client,
    feed: Feed,
    version: str,
    *,
    clock: Clock = SYSTEM_CLOCK,
) -> OptionalInformer:
    """Feeds an engine from a cache, before any controller receives a delta.

    Args:
        manager: runs the informer of Cohorts; the cache has to be added by the caller.
        cache: shares informers.
        client: reads whether there are Cohorts.
        feed: of the engine.
        version: of the queueing API on the wire.
        clock: for pauses.

    Returns:
        The informer of Cohorts.
    """
    cohorts = OptionalInformer(client, cache, kinds.COHORTS.at(version), clock=clock)
    manager.add(Group.CACHES, cohorts, "cohorts")
    feed.attach(cohorts, sources.COHORTS)
    _attach(feed, _informers(cache, version), cache)
    return cohorts


def _informers(cache: Cache, version: str) -> Informers:
    return Informers(
        workloads=cache.informer(kinds.WORKLOADS.at(version)),
        local_queues=cache.informer(kinds.LOCAL_QUEUES.at(version)),
        cluster_queues=cache.informer(kinds.CLUSTER_QUEUES.at(version)),
        flavors=cache.informer(kinds.RESOURCE_FLAVORS.at(version)),
        checks=cache.informer(kinds.ADMISSION_CHECKS.at(version)),
    )


def _attach(feed: Feed, informers: Informers, cache: Cache) -> None:
    feed.attach(informers.flavors, sources.FLAVORS)
    feed.attach(informers.checks, sources.CHECKS)
    feed.attach(informers.cluster_queues, sources.CLUSTER_QUEUES)
    feed.attach(informers.local_queues, sources.LOCAL_QUEUES)
    feed.attach(informers.workloads, sources.WORKLOADS)
    feed.attach(cache.informer(kinds.NAMESPACES), sources.NAMESPACES)
    feed.attach(cache.informer(kinds.LIMIT_RANGES), sources.LIMIT_RANGES)
    feed.attach(cache.informer(kinds.RUNTIME_CLASSES), sources.RUNTIME_CLASSES)
