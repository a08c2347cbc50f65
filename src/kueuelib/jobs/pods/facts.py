"""The facts about one group at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import attrs

from kueuelib.api.codec import decode
from kueuelib.api.core import LimitRange, PodSpec, RuntimeClass
from kueuelib.api.meta import Obj, annotations_of, controller_of
from kueuelib.api.names import IS_GROUP_WORKLOAD
from kueuelib.jobs.contract.settings import NOTHING_ELSE, TakenOver
from kueuelib.jobs.pods.parents import Parent
from kueuelib.jobs.pods.reading import PodStage, has_finalizer, is_deleted, is_serving, stage_of
from kueuelib.jobs.reconcile.priority import PriorityClasses
from kueuelib.scheduler.pending.requests import (
    NO_LIMIT_RANGES,
    LimitSummary,
    pod_request,
    summarize,
)
from kueuelib.scheduler.quota.resource_rules import AS_REQUESTED

# ---- checks whether a pod asks for no more than its role declares (KEP-976) ----------------------


@attrs.frozen
class PodRequests:
    """Computes what pods ask for, as the scheduler does.

    Attributes:
        limits: the LimitRanges of the namespace.
        runtime_classes: the raw RuntimeClasses by name.
    """

    limits: LimitSummary = NO_LIMIT_RANGES
    runtime_classes: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)

    def larger(self, pod: Mapping[str, Any], template: Mapping[str, Any]) -> tuple[str, ...]:
        """The resources for which a pod asks for more than a template, sorted.

        Args:
            pod: the raw pod.
            template: the raw template of its pod set.
        """
        wanted, allowed = self._amounts(pod["spec"]), self._amounts(template.get("spec") or {})
        return tuple(
            name for name, amount in sorted(wanted.items()) if amount > allowed.get(name, 0)
        )

    def _amounts(self, spec: Mapping[str, Any]) -> Mapping[str, int]:
        pod_spec = decode(PodSpec, dict(spec))
        raw = self.runtime_classes.get(pod_spec.runtime_class_name)
        runtime_class = None if raw is None else decode(RuntimeClass, dict(raw))
        return AS_REQUESTED.counted(pod_request(pod_spec, self.limits, runtime_class).per_pod)


NO_REQUESTS = PodRequests()


def pod_requests_of(
    limit_ranges: Iterable[Obj], runtime_classes: Mapping[str, Mapping[str, Any]]
) -> PodRequests:
    """Computes requests of pods in a namespace with these raw LimitRanges."""
    return PodRequests(summarize(decode(LimitRange, raw) for raw in limit_ranges), runtime_classes)


# --------------------------------------------------------------------------------------------------

ENFORCE = "Enforce"
WARN = "Warn"


@attrs.frozen
class GroupFacts:
    """The facts about one group at one moment.

    Attributes:
        namespace: of the group.
        name: of the group, and of its Workload.
        pods: the raw pods, all of them.
        workload: the raw Workload of that name, whatever its owner.
        now: seconds since the epoch.
        classes: the priority classes by name.
        requests: compares what pods ask for with what was declared.
        policy: `Enforce`: pods that ask for more than was declared are deleted; `Warn`: they get
            an event.
        taken_over: labels and annotations that the Workload takes over.
        parent: the object that replaces missing pods; None if users do.
    """

    namespace: str
    name: str
    pods: tuple[Obj, ...] = ()
    workload: Obj | None = None
    now: float = 0.0
    classes: PriorityClasses = attrs.field(factory=PriorityClasses)
    requests: PodRequests = NO_REQUESTS
    policy: str = ENFORCE
    taken_over: TakenOver = NOTHING_ELSE
    parent: Parent | None = None

    @cached_property
    def serving(self) -> bool:
        """Whether finished pods are replaced, so that they do not end the group."""
        return any(map(is_serving, self.pods))

    @cached_property
    def gone(self) -> tuple[Obj, ...]:
        """The pods to release: nothing waits for them."""
        serving = self.serving
        return tuple(
            pod
            for pod in self.pods
            if (serving or is_deleted(pod))
            and ((stage := stage_of(pod)) is PodStage.DROPPED or (serving and stage.is_over))
        )

    @cached_property
    def counted(self) -> tuple[Obj, ...]:
        """The pods that decide what happens to the group."""
        if not self.serving:
            return tuple(pod for pod in self.pods if not self._is_left_over(pod))
        return tuple(pod for pod in self.pods if not stage_of(pod).is_over)

    def _is_left_over(self, pod: Obj) -> bool:
        """Whether a pod failed in an earlier group of the name. In its own group, a failed pod has
        our finalizer until its replacement is an owner of the Workload, as it is itself by then.
        """
        if stage_of(pod) is not PodStage.FAILED or has_finalizer(pod):
            return False
        return pod["metadata"]["uid"] not in self.owners

    @property
    def wanted(self) -> int | None:
        """How many pods the parent makes; None without a parent."""
        return None if self.parent is None else self.parent.replicas

    @cached_property
    def own(self) -> Obj | None:
        """The Workload, if it stands for this group."""
        return self.workload if self.workload and stands_for_group(self.workload) else None

    @cached_property
    def owners(self) -> frozenset[str]:
        """The UIDs of the pods that the Workload counts already."""
        refs = (self.own or {"metadata": {}})["metadata"].get("ownerReferences") or ()
        return frozenset(ref["uid"] for ref in refs)

    @property
    def name_is_taken(self) -> bool:
        """Whether something else owns the Workload of that name."""
        return self.workload is not None and self.own is None


def stands_for_group(workload: Mapping[str, Any]) -> bool:
    """Whether a raw Workload was made for a group of pods; other owners do not matter."""
    marked = annotations_of(workload).get(IS_GROUP_WORKLOAD) == "true"
    return marked and controller_of(workload) is None
