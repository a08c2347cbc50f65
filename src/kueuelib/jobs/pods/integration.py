"""The integration `pod`: its controllers, their reconciler, webhooks and permissions."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Sequence

import attrs

from kueuelib.api.kinds import (
    LEADER_WORKER_SETS,
    LIMIT_RANGES,
    PODS,
    RUNTIME_CLASSES,
    STATEFUL_SETS,
)
from kueuelib.api.meta import Obj, ObjectKey, Resource, controller_of
from kueuelib.api.names import (
    ADMISSION_GATE,
    GROUP_LABEL,
    GROUP_ROLE_LABEL,
    GROUP_SETS,
    GROUP_TOTAL_COUNT,
    MANAGED,
    QUEUE_LABEL,
    ROLE_HASH,
)
from kueuelib.api.patterns import SUBDOMAIN
from kueuelib.api.pods import PodSpec, PodStatus
from kueuelib.api.schema import struct_schema
from kueuelib.jobs.contract.commands import (
    LEFT_ALONE,
    MISSED,
    REPAIRED,
    WARNING,
    Change,
    Command,
    Count,
    Emit,
    RequeueAfter,
)
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.lookups.stores import ByName, JobStores, owner_uids
from kueuelib.jobs.pods.compose import waits_for_others
from kueuelib.jobs.pods.facts import GroupFacts, PodRequests, pod_requests_of, stands_for_group
from kueuelib.jobs.pods.group import PodGroup
from kueuelib.jobs.pods.marks import labelled, marked_as_ours
from kueuelib.jobs.pods.parents import (
    LEADER_WORKER_SET,
    NO_PARENTS,
    STATEFUL_SET,
    Parents,
    group_name,
    groups_of,
    parent_of,
    replica_group_name,
)
from kueuelib.jobs.pods.pod_plan import (
    REJECTED,
    UNGATED,
    plan_group,
    plan_pod,
    plan_until_pods_come,
    plan_without_pods,
    situation_of,
)
from kueuelib.jobs.pods.reading import (
    PodStage,
    group_key,
    group_of,
    group_of_key,
    has_finalizer,
    is_gated,
    is_selected,
    stage_of,
    trim,
    trim_missed,
    work_key,
)
from kueuelib.jobs.pods.reading import by_age as pods_by_age
from kueuelib.jobs.pods.single import PodJob
from kueuelib.jobs.pods.webhook import (
    PodWebhook,
    is_child,
    left_alone_because,
    namespace_labels,
    validate_pod,
)
from kueuelib.jobs.reconcile.executor import Executor, JobMetrics
from kueuelib.jobs.reconcile.job_snapshot import Again, JobSnapshot, Vanished
from kueuelib.jobs.reconcile.matching import by_age, controlled_by
from kueuelib.jobs.reconcile.plan import NAMESPACE_RETRY, plan
from kueuelib.jobs.reconcile.priority import PriorityClasses
from kueuelib.jobs.reconcile.self_wired import IntegrationParts, SelfWired, Wired
from kueuelib.jobs.reconcile.steps import Commands
from kueuelib.jobs.webhooks.manifests import JUDGED_METADATA, WATCH, unusual, webhook_path
from kueuelib.machinery.store import NAMESPACE_INDEX, Delta, DeltaKind, Store
from kueuelib.runtime.cache import OptionalInformer
from kueuelib.runtime.controller import DONE, SETTLED, Controller, Result
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.runtime.webhook.admission import (
    NEW,
    WebhookEntry,
    condition,
    failing_closed,
    new_or_changed,
    present,
    shape_with,
)

BY_GROUP = "pods/group"


def group_index(pod: Obj) -> tuple[ObjectKey, ...]:
    """Namespace and name of the group of a raw pod."""
    group = group_of(pod)
    return (ObjectKey(pod["metadata"].get("namespace") or "", group),) if group else ()


class PodReconciler:
    """Makes pods and groups wait, start and end with their Workloads.

    The key of a group has `group/` before its namespace, so that all its pods share one key and no
    pod is mistaken for a group.

    Args:
        parts: the caches and the configuration.
        executor: executes the plan.
        requests: returns what pods ask for, given their namespace.
        parents: finds the parents of groups.
    """

    def __init__(
        self,
        parts: IntegrationParts,
        executor: Executor,
        requests: Callable[[str], PodRequests],
        parents: Parents = NO_PARENTS,
    ) -> None:
        self._parts = parts
        self._parents = parents
        self._executor = executor
        self._requests = requests
        self._pods = parts.stores.jobs[parts.integration.name]
        self._vanished = Vanished()
        stores = parts.stores
        self._flavors = ByName(stores.flavors)
        self._classes = PriorityClasses(ByName(stores.workload_classes), ByName(stores.pod_classes))

    async def reconcile(self, key: ObjectKey) -> Result:
        """Look at one pod or group and act."""
        pod = self._pods.get(key)
        if pod is not None and work_key(pod) != key:
            return DONE
        for each, namespace in self._with_owners(key):
            await self._parts.owners.learn(each, namespace)
        commands = self.plan(key)
        if not commands:
            return DONE
        outcome = await self._executor.run(commands, pod or self._first_of(key))
        if outcome.wait is None and self._is_settled(key):
            return SETTLED
        return outcome.result

    def _is_settled(self, key: ObjectKey) -> bool:
        """Whether nothing is left to do, as far as that is known without reading anything."""
        if any(self._parts.owners.has_to_learn(*each) for each in self._with_owners(key)):
            return False
        return not self.plan(key)

    def _with_owners(self, key: ObjectKey) -> Iterable[tuple[Obj, str]]:
        """The pods whose owners matter, each with its namespace."""
        group, pod = group_of_key(key), self._pods.get(key)
        if group is None:
            return () if pod is None else ((pod, key.namespace),)
        pods = self._pods.by_index(BY_GROUP, group)
        return ((each, group.namespace) for each in pods if not has_finalizer(each))

    def _first_of(self, key: ObjectKey) -> Obj | None:
        """The oldest pod of a group, which gets the events about the group."""
        group = group_of_key(key)
        pods = () if group is None else self._pods.by_index(BY_GROUP, group)
        return next(iter(pods_by_age(pods)), None)

    def plan(self, key: ObjectKey) -> Commands:
        """The plan for a pod or a group."""
        for pod, namespace in self._with_owners(key):
            known = self._parts.stores.namespace_labels(namespace) is not None
            if not known and not has_finalizer(pod):
                return (RequeueAfter("its namespace is not known yet", NAMESPACE_RETRY),)
        group = group_of_key(key)
        return self._plan_pod(key) if group is None else self._plan_group(key, group)

    def _plan_pod(self, key: ObjectKey) -> Commands:
        stores = self._parts.stores
        pod = self._pods.get(key)
        named = [
            workload
            for workload in stores.workloads_of_name(PODS, key)
            if _is_controlled(workload, key.name)
        ]
        if pod is None:
            self._vanished.forget(key)
            return plan(attrs.evolve(self._situation(key.namespace), orphans=by_age(named)))
        uid = pod["metadata"]["uid"]
        workloads = by_age(stores.workloads_of(uid))
        again = self._again(key, uid, present=bool(workloads))
        ours = workloads or self._is_ours(pod, key.namespace)
        situation = attrs.evolve(
            self._situation(key.namespace, again),
            job=PodJob(pod, workloads[0] if workloads else None) if ours else None,
            workloads=workloads,
            orphans=by_age(workload for workload in named if not controlled_by(workload, uid)),
            ancestor=self._parts.owners.ancestor_of(pod, key.namespace),
        )
        return plan_pod(situation)

    def _plan_group(self, key: ObjectKey, group: ObjectKey) -> Commands:
        facts = self.facts(group)
        if not facts.pods:
            self._vanished.forget(key)
            return plan_until_pods_come(facts) if facts.wanted else plan_without_pods(facts.own)
        made = PodGroup(facts)
        again = self._again(key, "", present=facts.own is not None)
        return plan_group(situation_of(made, self._situation(group.namespace, again)), made)

    def _again(self, key: ObjectKey, uid: str, *, present: bool) -> Again | None:
        return self._vanished.look(key, uid, self._parts.clock.monotonic(), present=present)

    def facts(self, group: ObjectKey) -> GroupFacts:
        """The facts about one group, from the caches."""
        settings = self._parts.settings
        workload = self._parts.stores.workload(group)
        owners = () if workload is None else owner_uids(workload)
        pods = tuple(
            pod
            for pod in self._pods.by_index(BY_GROUP, group)
            if pod["metadata"]["uid"] in owners or self._is_ours(pod, group.namespace)
        )
        return GroupFacts(
            group.namespace,
            group.name,
            pods,
            workload,
            self._parts.clock.now(),
            self._classes,
            self._requests(group.namespace),
            settings.pods.shape_policy,
            settings.taken_over,
            parent_of(pods, workload, group.namespace, self._parents),
        )

    def _is_ours(self, pod: Obj, namespace: str) -> bool:
        """Whether a pod is queued. The webhook adds our finalizer only to such pods. A pod that has
        it stays ours, even if its owner or the configuration has changed.
        """
        return has_finalizer(pod) or not left_alone_because(self._parts, pod, namespace)

    def _situation(self, namespace: str, again: Again | None = None) -> JobSnapshot:
        parts = self._parts
        return JobSnapshot(
            None,
            parts.clock.now(),
            parts.settings,
            namespace_labels=parts.stores.namespace_labels(namespace),
            flavors=self._flavors,
            classes=self._classes,
            again=again,
        )


def _is_controlled(workload: Obj, name: str) -> bool:
    ref = controller_of(workload)
    return ref is not None and (ref.get("kind"), ref["name"]) == (PODS.kind, name)


# ---- metrics of pods (KEP-976) -------------------------------------------------------------------


class PodMetrics(JobMetrics):
    """Counters about pods.

    Args:
        telemetry: where they are reported; None: nowhere.
    """

    def __init__(self, telemetry: Telemetry | None = None) -> None:
        telemetry = telemetry or Telemetry()
        super().__init__(telemetry)
        self._gated = telemetry.counter(
            "kueue_pods_gated_total",
            "Pods that were created with our gate.",
            ("namespace",),
        )
        self._ungated = telemetry.counter(
            "kueue_pods_ungated_total", "Pods whose gate was taken away.", ("cluster_queue",)
        )
        self._waited = telemetry.histogram(
            "kueue_pod_scheduling_gate_removal_seconds",
            "From the admission of its Workload until a pod lost its gate.",
            ("name", "cluster_queue", "is_group"),
        )
        self._rejected = telemetry.counter(
            "kueue_pods_rejected_total",
            "Pods of groups that were deleted because they do not belong there.",
            ("namespace", "reason"),
        )

    def gated(self, namespace: str) -> None:
        """A pod with our gate was created."""
        self._gated.labels(namespace).inc()

    def count(self, what: str, labels: Sequence[str], seconds: float | None = None) -> None:
        """Execute a `Count` of a plan."""
        if what == UNGATED:
            queue, is_group = labels
            self._ungated.labels(queue).inc()
            self._waited.labels(ADMISSION_GATE, queue, is_group).observe(seconds or 0.0)
        elif what == REJECTED:
            self._rejected.labels(*labels).inc()
        else:
            super().count(what, labels, seconds)


# ---- finds pods that bypassed our webhook, and repairs what can be repaired (KEP-976) ------------
# A gate cannot be added to an existing pod. A pod that has it (from its manifest) gets the other
# marks and is queued like any other. One without a gate is counted, reported, and left alone:
# deleting it would be worse than letting one pod run without waiting.
#
# A pod with our finalizer was ours already and has only lost the label by which we see it. It
# always gets the label back, otherwise it would hold quota and its finalizer forever.

NOT_GATED = "NotQueued"
REMEMBERED = 100_000
"""The maximum number of reported pods that are remembered."""


class MissedPods:
    """Looks at pods with a queue name that our webhook has not marked.

    Args:
        parts: the caches and the configuration.
        executor: executes the plan.
        pods: these pods.
        metrics: counts.
    """

    def __init__(
        self, parts: IntegrationParts, executor: Executor, pods: Store[Obj], metrics: PodMetrics
    ) -> None:
        self._parts = parts
        self._executor = executor
        self._pods = pods
        self._metrics = metrics
        self._reported: dict[str, None] = {}

    async def reconcile(self, key: ObjectKey) -> Result:
        """Look at one pod and act."""
        pod = self._pods.get(key)
        if pod is None:
            return DONE
        if has_finalizer(pod):
            outcome = await self._executor.run(regained(pod))
            return outcome.result
        if stage_of(pod) not in (PodStage.GATED, PodStage.STARTED):
            return DONE
        await self._parts.owners.learn(pod, key.namespace)
        labels = namespace_labels(self._parts, key.namespace)
        if labels is None:
            return Result(requeue_after=1.0)
        if is_child(self._parts, pod, key.namespace) or not is_selected(
            pod, self._parts.settings, key.namespace, labels
        ):
            return DONE
        outcome = await self._executor.run(self._plan(pod))
        return outcome.result

    def _plan(self, pod: Obj) -> tuple[Command, ...]:
        if stage_of(pod) is PodStage.GATED:
            return _repaired(pod, marked_as_ours(pod))
        uid = pod["metadata"]["uid"]
        if uid in self._reported:
            return ()
        if len(self._reported) >= REMEMBERED:
            self._reported.pop(next(iter(self._reported)))
        self._reported[uid] = None
        self._metrics.missed(PODS.kind, LEFT_ALONE)
        text = "The pod bypassed the webhook, or lost our marks; it runs without quota"
        return (Emit(pod, NOT_GATED, text, WARNING),)


def regained(pod: Obj) -> tuple[Command, ...]:
    """Gives back the label that one of our pods has lost."""
    return _repaired(pod, labelled(pod))


def _repaired(old: Obj, new: Obj) -> tuple[Command, ...]:
    return (Change(PODS, old, new), Count(MISSED, (PODS.kind, REPAIRED)))


# --------------------------------------------------------------------------------------------------

NAME = "pod"
MANAGED_PODS = f"{MANAGED}=true"
_GROUP, _TOTAL = (
    f"({present(NEW, path)} && '{key}' in {NEW}.{path})"
    for path, key in (
        ("metadata.labels", GROUP_LABEL),
        ("metadata.annotations", GROUP_TOTAL_COUNT),
    )
)
_UNUSUAL = (
    *unusual(
        {MANAGED: "^true$", GROUP_LABEL: SUBDOMAIN["pattern"]},
        {GROUP_TOTAL_COUNT: "^[1-9][0-9]{0,8}$", ROLE_HASH: ""},
    ),
    f"{_GROUP} != {_TOTAL}",
    present(NEW, "metadata.ownerReferences"),
)
"""New pods of groups whose number is given need no review, unless an owner may be queued."""
GATHERING = 0.5
"""Seconds, or up to twice as many, until new pods of an incomplete group are looked at."""
MISSED_PODS = f"{QUEUE_LABEL},{MANAGED}!=true"


def wire(parts: IntegrationParts) -> Wired:
    """The controllers and the webhook of pods; nothing runs yet."""
    metrics = PodMetrics(parts.telemetry)
    executor = Executor(
        parts.client,
        parts.cache,
        parts.recorder,
        parts.integration.component,
        parts.version,
        metrics.count,
        parts.clock,
    )
    pods = parts.cache.informer(PODS, label_selector=MANAGED_PODS, transform=trim)
    pods.add_index(BY_GROUP, group_index)
    limit_ranges = parts.cache.informer(LIMIT_RANGES)
    runtime_classes = parts.cache.informer(RUNTIME_CLASSES)

    def requests(namespace: str) -> PodRequests:
        ranges = limit_ranges.store.by_index(NAMESPACE_INDEX, namespace)
        return pod_requests_of(ranges, ByName(runtime_classes.store))

    def keys_of_pod(delta: Delta[Obj]) -> Iterable[ObjectKey]:
        if delta.kind is DeltaKind.ADDED and not delta.initial:
            if is_gated(delta.last):
                metrics.gated(delta.key.namespace)
            if is_early(delta.last):
                main.queue.add_later([work_key(delta.last)], GATHERING)
                return ()
        return {work_key(pod): None for pod in (delta.old, delta.new) if pod is not None}

    def is_early(pod: Obj) -> bool:
        """Whether a new pod comes before others of its group, which has no Workload yet."""
        with contextlib.suppress(Exception):  # a malformed pod is reported by the reconciler
            for group in group_index(pod):
                present = len(pods.store.keys_by_index(BY_GROUP, group))
                return waits_for_others(pod, present) and parts.stores.workload(group) is None
        return False

    def keys_of_workload(delta: Delta[Obj]) -> Iterable[ObjectKey]:
        if stands_for_group(delta.last):
            return [group_key(*delta.key)]
        keys = [group_key(*delta.key)] if pods.store.keys_by_index(BY_GROUP, delta.key) else []
        known = [each for each in (delta.old, delta.new) if each is not None]
        for ref in (ref for each in known for ref in each["metadata"].get("ownerReferences") or ()):
            if parts.integration.is_owner(ref):
                if not ref.get("controller"):
                    return [group_key(*delta.key)]
                keys.append(ObjectKey(delta.key.namespace, ref["name"]))
        return keys

    workers = parts.settings.workers_of(PODS)
    stateful_sets, replicated = _stateful_sets(parts), _leader_worker_sets(parts)
    parents = Parents(
        None if stateful_sets is None else stateful_sets.store,
        None if replicated is None else (lambda: replicated.store),
    )
    reconciler = PodReconciler(parts, executor, requests, parents)
    main = Controller(NAME, reconciler, workers, clock=parts.clock, telemetry=parts.telemetry)
    if stateful_sets is not None:
        main.watches(
            stateful_sets, lambda it: groups_of_parent(parts.stores, it, [group_name(it.key.name)])
        )
    if replicated is not None:
        main.watches(replicated, lambda delta: _replicas(parts, delta))
    main.watches(pods, keys_of_pod)
    main.watches(parts.workloads, keys_of_workload)
    missed = parts.cache.informer(PODS, label_selector=MISSED_PODS, transform=trim_missed)
    finder = Controller(
        "pod-missed",
        MissedPods(parts, executor, missed.store, metrics),
        clock=parts.clock,
        telemetry=parts.telemetry,
    )
    finder.for_(missed)
    for informer in (*parts.others, parts.namespaces, limit_ranges, runtime_classes):
        main.watches(informer, lambda _: ())
        finder.watches(informer, lambda _: ())
    informers = () if replicated is None else (replicated,)
    return Wired((main, finder), PodWebhook(parts), informers)


def _stateful_sets(parts: IntegrationParts) -> Informer | None:
    """The informer of queued StatefulSets; None if the kind is not enabled."""
    if STATEFUL_SET not in parts.settings.frameworks:
        return None
    return parts.cache.informer(STATEFUL_SETS, label_selector=QUEUE_LABEL)


def _leader_worker_sets(parts: IntegrationParts) -> OptionalInformer | None:
    """The informer of LeaderWorkerSets; None if the kind is not enabled."""
    if LEADER_WORKER_SET not in parts.settings.frameworks:
        return None
    return OptionalInformer(parts.client, parts.cache, LEADER_WORKER_SETS, clock=parts.clock)


def _replicas(parts: IntegrationParts, delta: Delta[Obj]) -> Iterable[ObjectKey]:
    """The groups of a LeaderWorkerSet: the present ones, and those with a Workload."""
    replicas = (
        replica_group_name(delta.key.name, index)
        for obj in (delta.old, delta.new)
        if obj is not None
        for index in groups_of(obj)
    )
    return groups_of_parent(parts.stores, delta, replicas)


def groups_of_parent(stores: JobStores, delta: Delta[Obj], named: Iterable[str]) -> list[ObjectKey]:
    """The groups to look at after a change of their parent.

    Args:
        stores: the caches.
        delta: the change.
        named: the names that we give to its groups; others, for example of the Go manager, have
            Workloads that it owns.
    """
    workloads = stores.workloads_owned_by(delta.last["metadata"]["uid"])
    groups = dict.fromkeys((*named, *(each["metadata"]["name"] for each in workloads)))
    return [group_key(delta.key.namespace, group) for group in groups]


def entries(settings: JobSettings) -> tuple[WebhookEntry, ...]:
    """The entries of pods; they match only pods with our labels.

    A pod with a queue name gets our gate. One with any other label of ours is also checked, because
    its marks may be incomplete. Selectors have no "or", so each label has an entry.
    """
    seen: list[Obj] = []
    hooks = []
    for suffix, label in (
        ("", QUEUE_LABEL),
        ("-managed", MANAGED),
        ("-group", GROUP_LABEL),
        ("-role", GROUP_ROLE_LABEL),
    ):
        wanted = [*seen, {"key": label, "operator": "Exists"}]
        seen.append({"key": label, "operator": "DoesNotExist"})
        if not suffix:
            hooks.append(_entry(settings, suffix, wanted, mutating=True))
        hooks.append(_entry(settings, suffix, wanted, mutating=False))
    hooks.append(_entry_of_notes(settings, seen))
    if settings.manage_jobs_without_queue_name:
        hooks += [_entry(settings, "-unnamed", seen[:1], mutating=True)]
        hooks += [_entry(settings, "-unnamed", seen, mutating=False)]
    return tuple(hooks)


def _entry(
    settings: JobSettings, suffix: str, labels: list[Obj], *, mutating: bool
) -> WebhookEntry:
    entry: Obj = {
        **failing_closed(f"{'m' if mutating else 'v'}pod{suffix}.kb.io"),
        "namespaceSelector": dict(settings.pods_namespace_selector),
        "objectSelector": {"matchExpressions": copy.deepcopy(labels)},
        "rules": [
            {
                "apiGroups": [PODS.group],
                "apiVersions": [PODS.version],
                "operations": ["CREATE"] if mutating else ["CREATE", "UPDATE"],
                "resources": [PODS.plural],
                "scope": "Namespaced",
            }
        ],
    }
    if not mutating:
        entry["matchConditions"] = [new_or_changed(*JUDGED_METADATA, new=_UNUSUAL)]
    return WebhookEntry(mutating, webhook_path(PODS, mutating=mutating), entry)


def _entry_of_notes(settings: JobSettings, labels: list[Obj]) -> WebhookEntry:
    """Pods that have annotations of groups but none of the labels, which were probably forgotten.

    Selectors cannot see annotations, but a condition can, which the API server checks by itself.
    Servers without conditions send every pod, so a missing answer is ignored.
    """
    made = _entry(settings, "-annotated", labels, mutating=False)
    keys = (GROUP_LABEL, GROUP_TOTAL_COUNT, GROUP_SETS)
    tests = [f"'{key}' in object.metadata.annotations" for key in keys]
    expression = f"has(object.metadata.annotations) && ({' || '.join(tests)})"
    more = {
        "failurePolicy": "Ignore",
        "timeoutSeconds": 1,
        "matchConditions": [condition("annotated", expression), *made.entry["matchConditions"]],
    }
    return attrs.evolve(made, entry={**made.entry, **more})


def rules() -> tuple[Obj, ...]:
    """The rights of the reconciler beyond those of every integration."""
    return (
        _rule(LIMIT_RANGES, *WATCH),
        _rule(RUNTIME_CLASSES, *WATCH),
    )


def _rule(resource: Resource, *verbs: str) -> Obj:
    return {
        "apiGroups": [resource.group],
        "resources": [resource.plural],
        "verbs": list(verbs),
    }


POD = SelfWired(
    NAME,
    PodJob,
    validate_pod,
    watched=MANAGED_PODS,
    transform=trim,
    makes_pods=False,
    shape=shape_with(
        {"spec": struct_schema(PodSpec), "status": struct_schema(PodStatus)}, required="spec"
    ),
    wire=wire,
    entries=entries,
    rules=rules,
)
