"""The reconciler of pods and pod groups: reads the caches, makes a plan, and executes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import Obj, ObjectKey, controller_of
from kueuelib.jobs.contract.commands import RequeueAfter
from kueuelib.jobs.lookups.stores import ByName, owner_uids
from kueuelib.jobs.pods.facts import GroupFacts, PodRequests
from kueuelib.jobs.pods.group import PodGroup
from kueuelib.jobs.pods.parents import NO_PARENTS, Parents, parent_of
from kueuelib.jobs.pods.pod_plan import (
    plan_group,
    plan_pod,
    plan_until_pods_come,
    plan_without_pods,
    situation_of,
)
from kueuelib.jobs.pods.reading import by_age as pods_by_age
from kueuelib.jobs.pods.reading import group_of, group_of_key, has_finalizer, work_key
from kueuelib.jobs.pods.single import PodJob
from kueuelib.jobs.pods.webhook import left_alone_because
from kueuelib.jobs.reconcile.executor import Executor
from kueuelib.jobs.reconcile.job_snapshot import Again, JobSnapshot, Vanished
from kueuelib.jobs.reconcile.matching import by_age, controlled_by
from kueuelib.jobs.reconcile.plan import NAMESPACE_RETRY, plan
from kueuelib.jobs.reconcile.priority import PriorityClasses
from kueuelib.jobs.reconcile.self_wired import IntegrationParts
from kueuelib.jobs.reconcile.steps import Commands
from kueuelib.runtime.controller import DONE, SETTLED, Result

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
