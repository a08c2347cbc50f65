"""ClusterQueues, Cohorts and ResourceFlavors in the form that the scheduler uses.

They are read once per change of the object. Objects with the same meaning give equal values, so a
status update changes nothing here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import attrs

from kueuelib.api import kueue
from kueuelib.api.core import Taint, Toleration
from kueuelib.api.kueue import NONE
from kueuelib.api.meta import LabelSelector
from kueuelib.api.names import (
    REASON_CHECK_INACTIVE,
    REASON_CHECK_NOT_FOUND,
    REASON_COHORT_CYCLE,
    REASON_FLAVOR_NOT_FOUND,
    REASON_NODES_UNREADABLE,
    REASON_NOT_FOUND,
    REASON_READY,
    REASON_STOPPED,
    REASON_TERMINATING,
    REASON_TOPOLOGY_NOT_FOUND,
)
from kueuelib.api.preemption_policies import GRANTS
from kueuelib.api.quantity import Quantity, amount_of
from kueuelib.api.struct import frozen
from kueuelib.machinery.selectors import NOTHING, Selector, expression, from_labels
from kueuelib.scheduler.quota.amounts import PODS, FlavorResource, Limits, pair_of


@frozen
class RequiredCheck:
    """An admission check of a ClusterQueue.

    Attributes:
        name: the AdmissionCheck.
        flavors: the flavors that require it; empty means all.
    """

    name: str
    flavors: frozenset[str]


def required_by(rules: Collection[RequiredCheck], flavors: Iterable[str]) -> tuple[str, ...]:
    """The checks that a workload with these flavors has to pass, in the order of the rules."""
    if not rules:
        return ()
    assigned = frozenset(flavors)
    names = (rule.name for rule in rules if not rule.flavors or rule.flavors & assigned)
    return tuple(dict.fromkeys(names))


@frozen
class Flavor:
    """A ResourceFlavor.

    Attributes:
        name: its name.
        labels: the labels of its nodes.
        taints: the taints of its nodes.
        tolerations: those that it adds to the pods.
        topology: the Topology of its nodes; empty if it has none.
        levels: the label keys of that, from coarse to fine; empty if it does not exist.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    tolerations: tuple[Toleration, ...]
    topology: str = ""
    levels: tuple[str, ...] = ()


@frozen
class FlavorGroup:
    """Resources that always share one flavor.

    Attributes:
        resources: the covered resources.
        flavors: the flavors in the order of the trial.
        pairs: per flavor, the pairs of quota by resource, sorted.
    """

    resources: tuple[str, ...]
    flavors: tuple[str, ...]
    pairs: Mapping[str, Mapping[str, FlavorResource]] = attrs.field(
        init=False, eq=False, repr=False
    )

    @pairs.default
    def _pairs(self) -> Mapping[str, Mapping[str, FlavorResource]]:
        resources = sorted(self.resources)
        return {
            flavor: {name: pair_of(flavor, name) for name in resources} for flavor in self.flavors
        }


@frozen
class Fungibility:
    """Preferences between flavors.

    Attributes:
        next_rather_than_borrow: whenCanBorrow is TryNextFlavor.
        next_rather_than_preempt: whenCanPreempt is TryNextFlavor.
        preempt_rather_than_borrow: preference is PreemptionOverBorrowing.
    """

    next_rather_than_borrow: bool = False
    next_rather_than_preempt: bool = True
    preempt_rather_than_borrow: bool = False


FIRST_FIT = Fungibility()
"""Stop at the first flavor that fits, by borrowing or not."""


@frozen
class QueuePreemption:
    """Which workloads a ClusterQueue may preempt (KEP-83).

    Attributes:
        within_cluster_queue: in itself; see `kueuelib.api.preemption_policies`.
        reclaim_within_cohort: in other ClusterQueues, from what they borrow.
        borrow_within_cohort: in others, while it borrows itself.
        borrow_threshold: the highest priority that may be preempted then; None means no threshold.
    """

    within_cluster_queue: str = kueue.NEVER
    reclaim_within_cohort: str = kueue.NEVER
    borrow_within_cohort: str = kueue.NEVER
    borrow_threshold: int | None = None

    @property
    def never_preempts(self) -> bool:
        """Whether it never preempts."""
        return self.within_cluster_queue == self.reclaim_within_cohort == kueue.NEVER

    @property
    def may_borrow(self) -> bool:
        """Whether it may preempt others while it borrows itself."""
        return self.borrow_within_cohort != kueue.NEVER

    @property
    def always_reclaims(self) -> bool:
        """Whether it can reclaim quota from all others of its cohort, whatever their priority."""
        return GRANTS[self.reclaim_within_cohort].is_unlimited

    @property
    def compares_ages(self) -> bool:
        """Whether an older Workload may preempt more than a newer one of the same priority."""
        return GRANTS[self.within_cluster_queue].newer or GRANTS[self.reclaim_within_cohort].newer


@frozen
class QueueSpec:
    """A ClusterQueue's quotas and policies.

    Attributes:
        name: its name.
        cohort: the cohort, empty for none.
        groups: the resource groups.
        limits: the quota per flavor and resource.
        selector: the namespaces whose workloads it accepts.
        strict: whether its strategy is StrictFIFO.
        stop_policy: None, Hold or HoldAndDrain.
        checks: the admission checks.
        fungibility: preferences between flavors.
        preemption: which workloads it may preempt.
        terminating: whether the object is being deleted.
        weight: the divisor of its share of borrowed quota (KEP-1714).
        by_usage: whether past usage orders its LocalQueues, if it is counted (KEP-4136).
        ignores_undeclared: whether resources without quota are left unchecked (KEP-7513).
    """

    name: str
    cohort: str = ""
    groups: tuple[FlavorGroup, ...] = ()
    limits: Mapping[FlavorResource, Limits] = attrs.field(factory=dict)
    selector: Selector = NOTHING
    strict: bool = False
    stop_policy: str = kueue.NONE
    checks: tuple[RequiredCheck, ...] = ()
    fungibility: Fungibility = Fungibility()
    preemption: QueuePreemption = QueuePreemption()
    terminating: bool = False
    weight: Fraction = Fraction(1)
    by_usage: bool = False
    ignores_undeclared: bool = False
    offers: dict[str, Any] = attrs.field(factory=dict, init=False, eq=False, repr=False)
    """What it offers, by the shape of Workloads; see `kueuelib.scheduler.decide.offers`."""
    alone: list[Any] = attrs.field(factory=list, init=False, eq=False, repr=False)
    """Its node without cohorts, once needed; see `kueuelib.scheduler.quota.node`."""
    _covering: Mapping[str, FlavorGroup] = attrs.field(init=False, eq=False, repr=False)

    @_covering.default
    def _first_groups(self) -> Mapping[str, FlavorGroup]:
        return {name: group for group in reversed(self.groups) for name in group.resources}

    @property
    def flavors(self) -> tuple[str, ...]:
        """All flavors, in the order of the spec."""
        return tuple(dict.fromkeys(name for group in self.groups for name in group.flavors))

    @property
    def most_flavors(self) -> int:
        """The number of flavors in the largest resource group."""
        return max((len(group.flavors) for group in self.groups), default=0)

    def group_of(self, resource: str) -> FlavorGroup | None:
        """The group that covers the resource, or None."""
        return self._covering.get(resource)

    @property
    def counts_pods(self) -> bool:
        """Whether it has quota for pods."""
        return PODS in self._covering

    def checks_for(self, flavors: Iterable[str]) -> tuple[str, ...]:
        """The checks that a workload with these flavors has to pass, in the order of the spec."""
        return required_by(self.checks, flavors)


@frozen
class CohortQuotas:
    """A Cohort's place in its tree, and the quota that it adds (KEP-79).

    Attributes:
        name: its name.
        parent: the cohort above, empty for a root.
        groups: the resource groups.
        limits: its own quota per flavor and resource, in addition to that of its members; the
            limits apply to all members together.
        weight: the divisor of its share of borrowed quota (KEP-1714).
    """

    name: str
    parent: str = ""
    groups: tuple[FlavorGroup, ...] = ()
    limits: Mapping[FlavorResource, Limits] = attrs.field(factory=dict)
    weight: Fraction = Fraction(1)


def queue_spec(queue: kueue.ClusterQueue, *, ignores_undeclared: bool = False) -> QueueSpec:
    """The scheduler's form of a ClusterQueue.

    Args:
        queue: the object.
        ignores_undeclared: whether resources without quota are left unchecked.

    Raises:
        InvalidSelector: the namespace selector breaks the rules that validation guards.
    """
    spec = queue.spec
    strategy, scope = spec.admission_checks_strategy, spec.admission_scope
    return QueueSpec(
        name=queue.name,
        cohort=spec.cohort_name,
        groups=_groups(spec.resource_groups),
        limits=_limits(spec.resource_groups),
        selector=_selector(spec.namespace_selector),
        strict=spec.queueing_strategy == kueue.STRICT_FIFO,
        stop_policy=spec.stop_policy or kueue.NONE,
        checks=tuple(
            RequiredCheck(check.name, frozenset(check.on_flavors))
            for check in (strategy.admission_checks if strategy else ())
        ),
        fungibility=_fungibility(spec.flavor_fungibility),
        preemption=QueuePreemption(
            within_cluster_queue=spec.preemption.within_cluster_queue,
            reclaim_within_cohort=spec.preemption.reclaim_within_cohort,
            borrow_within_cohort=spec.preemption.borrow_within_cohort.policy,
            borrow_threshold=spec.preemption.borrow_within_cohort.max_priority_threshold,
        ),
        terminating=queue.metadata.deletion_timestamp is not None,
        weight=weight_of(spec.fair_sharing),
        by_usage=scope is not None
        and scope.admission_mode == kueue.USAGE_BASED_ADMISSION_FAIR_SHARING,
        ignores_undeclared=ignores_undeclared,
    )


def cohort_spec(cohort: kueue.Cohort) -> CohortQuotas:
    """The scheduler's form of a Cohort."""
    spec = cohort.spec
    return CohortQuotas(
        name=cohort.name,
        parent=spec.parent_name,
        groups=_groups(spec.resource_groups),
        limits=_limits(spec.resource_groups),
        weight=weight_of(spec.fair_sharing),
    )


def _groups(groups: tuple[kueue.ResourceGroup, ...]) -> tuple[FlavorGroup, ...]:
    return tuple(
        FlavorGroup(group.covered_resources, tuple(flavor.name for flavor in group.flavors))
        for group in groups
    )


def _limits(groups: tuple[kueue.ResourceGroup, ...]) -> dict[FlavorResource, Limits]:
    return {
        pair_of(flavor.name, quota.name): Limits(
            amount_of(quota.name, quota.nominal_quota),
            _optional(quota.name, quota.borrowing_limit),
            _optional(quota.name, quota.lending_limit),
        )
        for group in groups
        for flavor in group.flavors
        for quota in flavor.resources
    }


def weight_of(sharing: kueue.FairSharing | None) -> Fraction:
    """The weight of a ClusterQueue, a Cohort or a LocalQueue; 1 by default."""
    return Fraction(1) if sharing is None else Fraction(sharing.weight.nanos, 10**9)


def _optional(resource: str, quantity: Quantity | None) -> int | None:
    return None if quantity is None else amount_of(resource, quantity)


def _fungibility(fungibility: kueue.FlavorFungibility) -> Fungibility:
    return Fungibility(
        next_rather_than_borrow=fungibility.when_can_borrow == kueue.TRY_NEXT_FLAVOR,
        next_rather_than_preempt=fungibility.when_can_preempt == kueue.TRY_NEXT_FLAVOR,
        preempt_rather_than_borrow=fungibility.preference == kueue.PREEMPTION_OVER_BORROWING,
    )


def _selector(selector: LabelSelector | None) -> Selector:
    if selector is None:
        return NOTHING
    expressions = [
        expression({"key": each.key, "operator": each.operator, "values": each.values})
        for each in selector.match_expressions
    ]
    return Selector([*from_labels(selector.match_labels).requirements, *expressions])


def flavor_of(flavor: kueue.ResourceFlavor, *, places_pods: bool = True) -> Flavor:
    """The scheduler's form of a ResourceFlavor.

    Args:
        flavor: the object.
        places_pods: whether its Topology counts (KEP-2724).
    """
    spec = flavor.spec
    topology = spec.topology_name if places_pods else ""
    return Flavor(flavor.name, spec.node_labels, spec.node_taints, spec.tolerations, topology)


# ---- whether a ClusterQueue can admit workloads, and the condition that says so ------------------


@frozen
class Activity:
    """The Active condition of a ClusterQueue.

    Attributes:
        active: its status.
        reason: its reason; with several causes the first of Stopped, FlavorNotFound,
            AdmissionCheckNotFound, AdmissionCheckInactive, TopologyNotFound, CohortCycle.
        message: its message, with all causes and names.
    """

    active: bool
    reason: str
    message: str


ACTIVE = Activity(active=True, reason=REASON_READY, message="Can admit new workloads")
UNKNOWN = Activity(active=False, reason=REASON_NOT_FOUND, message="ClusterQueue not found")


def activity_of(
    spec: QueueSpec,
    flavors: Mapping[str, Flavor],
    checks: Mapping[str, bool],
    endless: str = "",
    unreadable: Mapping[str, str] = MappingProxyType({}),
) -> Activity:
    """The activity of a ClusterQueue.

    Args:
        spec: the ClusterQueue.
        flavors: the ResourceFlavors that exist.
        checks: the AdmissionChecks that exist, and whether they are active.
        endless: its cohort if the parents of that form a cycle, otherwise empty.
        unreadable: by kind, why the manager cannot read what topologies need, or empty.
    """
    if spec.terminating:
        text = "Can't admit new workloads; clusterQueue is terminating"
        return Activity(active=False, reason=REASON_TERMINATING, message=text)
    causes = []
    if spec.stop_policy != NONE:
        causes.append((REASON_STOPPED, "is stopped"))
    missing = sorted(name for name in spec.flavors if name not in flavors)
    if missing:
        text = f"references missing ResourceFlavor(s): {','.join(missing)}"
        causes.append((REASON_FLAVOR_NOT_FOUND, text))
    names = sorted({check.name for check in spec.checks})
    missing = [name for name in names if name not in checks]
    if missing:
        text = f"references missing AdmissionCheck(s): {','.join(missing)}"
        causes.append((REASON_CHECK_NOT_FOUND, text))
    idle = [name for name in names if not checks.get(name, True)]
    if idle:
        text = f"references inactive AdmissionCheck(s): {','.join(idle)}"
        causes.append((REASON_CHECK_INACTIVE, text))
    for name in sorted(flavors.keys() & spec.flavors):
        topology = flavors[name].topology
        if topology and not flavors[name].levels:
            text = f'there is no Topology "{topology}" for TAS flavor "{name}"'
            causes.append((REASON_TOPOLOGY_NOT_FOUND, text))
        for kind in sorted(unreadable) if flavors[name].levels else ():
            if why := unreadable[kind]:
                text = f'TAS flavor "{name}" needs {kind}s, which the manager may not read: {why}'
                causes.append((REASON_NODES_UNREADABLE, text))
    if endless:
        text = f"is in Cohort {endless}, whose parents form a cycle"
        causes.append((REASON_COHORT_CYCLE, text))
    if not causes:
        return ACTIVE
    message = f"Can't admit new workloads: {', '.join(text for _, text in causes)}."
    return Activity(active=False, reason=causes[0][0], message=message)
