"""Quota: held where it cannot be, beyond the nodes, in trees and policies that cannot work."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property

import attrs

from kueuelib.api.kinds import CLUSTER_QUEUES, LOCAL_QUEUES, PODS
from kueuelib.api.kueue import (
    MAY_STOP_SEARCH,
    NEVER,
    TRY_NEXT_FLAVOR,
    ClusterQueue,
    ResourceFlavor,
    Workload,
)
from kueuelib.api.meta import Obj, ObjectKey, annotations_of, find_condition, key_of, labels_of
from kueuelib.api.names import POD_SET_LABEL, WORKLOAD_ANNOTATION
from kueuelib.api.nodes import allocatable, is_of_flavor, is_usable
from kueuelib.api.phrases import some
from kueuelib.api.quantity import Quantity, amount_of, format_amount
from kueuelib.api.workload_state import has_quota
from kueuelib.app.doctor.checks.managers import has_just_begun
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check
from kueuelib.app.doctor.manager import gone, look, no_manager
from kueuelib.app.doctor.snapshot import COHORTS, STARTED, ClusterSnapshot
from kueuelib.app.doctor.starts import PATIENCE
from kueuelib.scheduler.explain.world import CLUSTER_QUEUE, COHORT, QuotaOwner, World
from kueuelib.scheduler.pending.workload_info import charge
from kueuelib.scheduler.quota.amounts import FlavorResource, total_of

# ---- capacity: quota beyond the nodes, and nodes beyond the quota --------------------------------

NODE = "Node"
QUOTA = ("ClusterQueue", "Cohort", "ResourceFlavor")
_COUNTED = ("cpu", "memory")
"""Resources that matter on every node, besides extended ones."""
_MOST_NAMES = 5


@attrs.frozen(slots=False)
class _FlavorCapacity:
    """Nodes and quota, flavor by flavor."""

    snapshot: ClusterSnapshot

    @cached_property
    def promised(self) -> Mapping[tuple[str, str], int]:
        """The nominal quota of all ClusterQueues and Cohorts, by flavor and resource.

        Resources that only transformations make are left out: nodes do not have them.
        """
        world = self.snapshot.world
        made_up = world.settings.resources.generated
        places = [
            *(QuotaOwner(CLUSTER_QUEUE, name) for name in world.cluster_queues),
            *(QuotaOwner(COHORT, name) for name in world.cohorts),
        ]
        quotas: dict[tuple[str, str], int] = {}
        for place in places:
            for (flavor, resource), quota in place.quotas(world).items():
                if resource in made_up:
                    continue
                amount = amount_of(resource, quota.nominal_quota)
                quotas[flavor, resource] = quotas.get((flavor, resource), 0) + amount
        return quotas

    @cached_property
    def usable(self) -> tuple[Obj, ...]:
        """Nodes that take pods."""
        return tuple(node for node in self.snapshot.all(NODE) if is_usable(node))

    def nodes_of(self, flavor: ResourceFlavor) -> tuple[Obj, ...]:
        """The usable nodes of a flavor."""
        return tuple(node for node in self.usable if is_of_flavor(node, flavor))

    @cached_property
    def offered(self) -> Mapping[str, ResourceFlavor]:
        """The flavors with quota."""
        names = {flavor for flavor, _ in self.promised}
        return {name: one for name, one in self.snapshot.world.flavors.items() if name in names}


def _allocatable(nodes: tuple[Obj, ...]) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for node in nodes:
        for resource, quantity in allocatable(node).items():
            amounts[resource] = amounts.get(resource, 0) + amount_of(resource, quantity)
    return amounts


@check("quota-promised", *QUOTA, NODE)
def promised(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Flavors whose quota is more than their nodes have: an error if admitted pods stay Pending."""
    capacity = _FlavorCapacity(snapshot)
    for name, flavor in sorted(capacity.offered.items()):
        nodes = capacity.nodes_of(flavor)
        there = _allocatable(nodes)
        lacks = {
            resource: f"{format_amount(resource, amount)} of {resource}, and its nodes have "
            f"{format_amount(resource, there.get(resource, 0))}"
            for (each, resource), amount in sorted(capacity.promised.items())
            if each == name and amount > there.get(resource, 0)
        }
        if lacks:
            unusable = sum(1 for one in snapshot.all(NODE) if not is_usable(one))
            out = f", {unusable} cordoned or not ready" if unusable else ""
            amounts = "; ".join(lacks.values())
            problem = f"quota promises {amounts} (nodes: {len(nodes)} usable{out})"
            selector = ",".join(f"{key}={value}" for key, value in flavor.spec.node_labels.items())
            labels = f" -l {selector}" if selector else ""
            fix = f"kubectl get nodes{labels}  # add nodes, or lower nominalQuota"
            pending = [*_pending(snapshot, name, lacks, nodes)]
            severity = Severity.ERROR if pending else Severity.WARNING
            problem += f"; these pods cannot start: {some(pending)}" if pending else ""
            yield Finding(severity, Subject("ResourceFlavor", name), problem, fix)


def _pending(
    snapshot: ClusterSnapshot, flavor: str, lacks: Collection[str], nodes: Collection[Obj]
) -> Iterator[ObjectKey]:
    """The pods of a flavor that have found no node for a minute, because it lacks a resource.

    Args:
        snapshot: the cluster.
        flavor: its name.
        lacks: the resources of which its nodes have less than quota promises.
        nodes: its usable nodes.
    """
    for pod in (*snapshot.all(PODS.kind), *snapshot.all(STARTED)):
        status, meta = pod.get("status") or {}, pod["metadata"]
        tried = find_condition(status.get("conditions"), "PodScheduled")
        late = snapshot.age(tried.get("lastTransitionTime")) > PATIENCE
        if tried.get("reason") != "Unschedulable" or not late:
            continue
        key = ObjectKey(meta["namespace"], annotations_of(pod).get(WORKLOAD_ANNOTATION, ""))
        workload, named = snapshot.world.workloads.get(key), labels_of(pod).get(POD_SET_LABEL)
        admission = None if workload is None else workload.status.admission
        for one in () if admission is None else admission.pod_set_assignments:
            short = [each for each in lacks if one.flavors.get(each) == flavor]
            said = tried.get("message") or ""
            blamed = [each for each in short if not nodes or f"Insufficient {each}" in said]
            if one.name == named and blamed:
                yield key_of(pod)


@check("capacity-unused", *QUOTA, NODE)
def unused(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Nodes, and parts of nodes, for which there is no quota."""
    capacity = _FlavorCapacity(snapshot)
    if not capacity.offered:
        return
    rules = snapshot.world.settings.resources
    of_node = {
        node["metadata"]["name"]: [
            name for name, flavor in capacity.offered.items() if is_of_flavor(node, flavor)
        ]
        for node in capacity.usable
    }
    for name, flavor in sorted(capacity.offered.items()):
        nodes = capacity.nodes_of(flavor)
        if any(len(of_node[node["metadata"]["name"]]) > 1 for node in nodes):
            continue  # another flavor may offer what this one lacks
        rest = [
            f"{format_amount(resource, amount - capacity.promised.get((name, resource), 0))} of "
            f"{format_amount(resource, amount)} {resource}"
            for resource, amount in sorted(_allocatable(nodes).items())
            if (resource in _COUNTED or "/" in resource)
            and not rules.excludes(resource)
            and amount > capacity.promised.get((name, resource), 0)
        ]
        if rest:
            problem = f"its nodes have more than any queue may use: {', '.join(rest)}"
            fix = "kubectl edit clusterqueue  # raise nominalQuota, or leave it to other pods"
            yield Finding(Severity.HINT, Subject("ResourceFlavor", name), problem, fix)
    alone = sorted(name for name, flavors in of_node.items() if not flavors)
    for name in alone[:_MOST_NAMES]:
        more = f" (and {len(alone) - _MOST_NAMES} more nodes)" if len(alone) > _MOST_NAMES else ""
        problem = f"no flavor with quota has its labels and taints{more}"
        fix = f"kubectl describe node {name}  # label it, or create a ResourceFlavor for it"
        yield Finding(Severity.HINT, Subject(NODE, name), problem, fix)


# ---- cohorts: parents that form a cycle, and names without an object -----------------------------


@check("cohort-cycle", "ClusterQueue", "Cohort")
def cycles(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Parents that form a cycle, and the ClusterQueues that are cut off by it."""
    world = snapshot.world
    for cycle in sorted({world.cycle_above(name) for name in world.cohorts} - {()}):
        queues, _ = world.below(cycle[0])
        problem = f"its parents form a cycle: {' -> '.join((*cycle, cycle[0]))}"
        if queues:
            problem += f"; nothing is admitted in ClusterQueue {_some(queues)}"
        fix = f"kubectl edit cohort {cycle[0]}  # set another spec.parentName"
        if len(cycle) > 1:
            fix += ", here or in another one of the cycle"
        severity = Severity.ERROR if queues else Severity.WARNING
        yield Finding(severity, Subject("Cohort", cycle[0]), problem, fix)


@check("cohort-absent", "ClusterQueue", "Cohort")
def absent(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Cohorts without an object where one would matter."""
    world = snapshot.world
    for name in sorted(set(world.all_cohorts()) - set(world.cohorts)):
        children = {one for one, each in world.cohorts.items() if each.spec.parent_name == name}
        queues, cohorts = world.below(name)
        places = [QuotaOwner(CLUSTER_QUEUE, one) for one in queues]
        places += [QuotaOwner(COHORT, one) for one in cohorts & world.cohorts.keys()]
        owned = any(one.nominal_quota for place in places for one in place.quotas(world).values())
        if children:
            why = f"Cohort {_some(children)} has it as parent"
        elif not owned:
            why = f"nothing below it owns any either: ClusterQueue {_some(queues)}"
        else:
            continue
        problem = f"it has no object, so it owns no quota and limits nothing; {why}"
        fix = f"kubectl get cohorts,clusterqueues  # create Cohort {name} if it should own quota"
        yield Finding(Severity.HINT, Subject("Cohort", name), problem, fix)


def _some(names: Collection[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(sorted(names)[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


# ---- policies of ClusterQueues that can never act ------------------------------------------------


@check("policy-idle", "ClusterQueue", COHORTS)
def idle(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Policies that are set but cannot act in this cluster."""
    world = snapshot.world
    for name, queue in sorted(world.cluster_queues.items()):
        shares = snapshot.world.settings.fair_sharing is not None
        for field, why in _idle(world, queue, shares=shares):
            problem = f"spec.{field} never acts: {why}"
            fix = f"kubectl edit clusterqueue {name}"
            yield Finding(Severity.HINT, Subject("ClusterQueue", name), problem, fix)


def _idle(world: World, queue: ClusterQueue, *, shares: bool) -> Iterator[tuple[str, str]]:
    spec, preemption = queue.spec, queue.spec.preemption
    quotas = QuotaOwner(CLUSTER_QUEUE, queue.name).quotas(world).values()
    others = world.scope_of(queue) - {queue.name}
    why = ""
    if not spec.cohort_name:
        why = "the ClusterQueue is in no cohort"
    elif not others:
        why = f"no other ClusterQueue is in the tree of cohort {spec.cohort_name}"
    if preemption.reclaim_within_cohort != NEVER:
        if why:
            yield "preemption.reclaimWithinCohort", why
        elif not shares and not _owns(world, queue):
            side = "nothing on its side of the tree owns quota that others could use"
            yield "preemption.reclaimWithinCohort", side
    if preemption.borrow_within_cohort.policy != NEVER:
        limited = bool(quotas) and all(
            one.borrowing_limit is not None and not one.borrowing_limit for one in quotas
        )
        if why:
            yield "preemption.borrowWithinCohort", why
        elif limited:
            yield "preemption.borrowWithinCohort", "every borrowingLimit is 0"
        elif shares:
            yield "preemption.borrowWithinCohort", "fair sharing is on, which ignores it"
    lends = [one for one in quotas if one.lending_limit is not None]
    if lends and why:
        yield "resourceGroups[].flavors[].resources[].lendingLimit", why
    several = any(len(group.flavors) > 1 for group in spec.resource_groups)
    if not several:
        fungibility = spec.flavor_fungibility
        if fungibility.when_can_borrow == TRY_NEXT_FLAVOR:
            yield "flavorFungibility.whenCanBorrow", "there is no next flavor to try"
        if fungibility.when_can_preempt == MAY_STOP_SEARCH:
            yield "flavorFungibility.whenCanPreempt", "there is no next flavor to leave out"


def _owns(world: World, queue: ClusterQueue) -> bool:
    """Whether quota is owned by a ClusterQueue or on its side of the tree.

    Its side is everything below the root's child that it is in. Quota of the root itself belongs to
    all sides alike.
    """
    above = world.above(queue.spec.cohort_name)
    side = {queue.name}, set[str]()
    if len(above) > 1:
        side = world.below(above[-2])
    places = [QuotaOwner(CLUSTER_QUEUE, name) for name in side[0]]
    places += [QuotaOwner(COHORT, name) for name in side[1] & world.cohorts.keys()]
    return any(one.nominal_quota for place in places for one in place.quotas(world).values())


# ---- assumptions: quota that a manager counts although no Workload holds it ----------------------


@check("assumption-orphaned", "ClusterQueue", "ResourceFlavor", "Workload", momentary=True)
def orphaned(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """ClusterQueues whose status counts Workloads and quota that do not exist."""
    if has_just_begun(snapshot):
        return
    for queue in snapshot.all("ClusterQueue"):
        name = queue["metadata"]["name"]
        counts = snapshot.engine.cluster_queue_status(name)
        status = queue.get("status") or {}
        if counts is None or "reservingWorkloads" not in status:
            continue
        wrong = []
        if status["reservingWorkloads"] != counts.reserving:
            wrong.append(f"{status['reservingWorkloads']} Workloads, and {counts.reserving} do")
        held = {
            (flavor.name, resource.name): amount_of(resource.name, resource.total)
            for flavor in counts.reservation
            for resource in flavor.resources
        }
        said = _said(status)
        wrong += [
            f"{format_amount(resource, said[flavor, resource])} of {resource} in flavor {flavor}, "
            f"and {format_amount(resource, amount)} is held"
            for (flavor, resource), amount in held.items()
            if said.get((flavor, resource), amount) != amount
        ]
        if wrong:
            problem = f"its status counts as reserved {'; '.join(wrong)}"
            subject, follows = Subject("ClusterQueue", name), no_manager(snapshot)
            yield Finding(Severity.WARNING, subject, problem, look(snapshot), follows)


def _said(status: Obj) -> dict[tuple[str, str], int]:
    """The amounts in the status, by flavor and resource."""
    return {
        (flavor["name"], one["name"]): amount_of(one["name"], Quantity.parse(one.get("total", 0)))
        for flavor in status.get("flavorsReservation") or ()
        for one in flavor.get("resources") or ()
    }


# --------------------------------------------------------------------------------------------------


@check("quota-lost", "ClusterQueue", "LocalQueue", "Workload")
def lost(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Queues that do not exist although Workloads that name them hold quota."""
    world = snapshot.world
    by_queue: dict[str, list[ObjectKey]] = {}
    by_local: dict[ObjectKey, list[ObjectKey]] = {}
    for key, workload in sorted(world.workloads.items()):
        if not has_quota(workload):
            continue
        home, local = world.home_of(workload), ObjectKey(key.namespace, workload.spec.queue_name)
        if snapshot.find(CLUSTER_QUEUE, home) is None:
            by_queue.setdefault(home, []).append(key)
        elif local.name and snapshot.find("LocalQueue", local.name, local.namespace) is None:
            by_local.setdefault(local, []).append(key)
    for name, keys in by_queue.items():
        named = any(one.spec.cluster_queue == name for one in world.local_queues.values())
        problem = (
            f"it does not exist, and nothing counts the quota of these Workloads: {some(keys)}; "
            f"they hold {_amounts(world.workloads[key] for key in keys)}"
        )
        fix = f"kubectl get workloads -A  # create ClusterQueue {name} again, or end these jobs"
        follows = (*gone(snapshot, CLUSTER_QUEUES), *(("local-queue",) if named else ()))
        yield Finding(Severity.WARNING, Subject(CLUSTER_QUEUE, name), problem, fix, follows)
    for local, keys in by_local.items():
        problem = (
            f"it does not exist, and Workloads that name it hold quota: {some(keys)}; if they are "
            f"evicted, they cannot be queued again; it led to ClusterQueue "
            f"{some(snapshot.homes_of(local))}"
        )
        fix = f"kubectl get -n {local.namespace} localqueues  # create {local.name} again"
        subject = Subject("LocalQueue", local.name, local.namespace)
        yield Finding(Severity.HINT, subject, problem, fix, gone(snapshot, LOCAL_QUEUES))


def _amounts(workloads: Iterable[Workload]) -> str:
    """What some Workloads hold together, by flavor and resource."""
    admissions = [(one, one.status.admission) for one in workloads]
    held = total_of([charge(one, admission) for one, admission in admissions if admission])
    return "; ".join(
        f"{format_amount(pair.resource, amount)} of {pair.resource} in flavor {pair.flavor}"
        for pair, amount in sorted(held.items())
    )


@check("quota-exceeded", "ClusterQueue", "Workload", COHORTS, momentary=True)
def exceeded(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """ClusterQueues and Cohorts whose Workloads hold more than they may, for example because quota
    was reduced.
    """
    exceeded_by: dict[str, set[FlavorResource]] = {}
    for name in sorted(snapshot.world.cluster_queues):
        over = dict(_over(snapshot, name))
        exceeded_by[name] = {*over}
        if over:
            what = Subject(CLUSTER_QUEUE, name)
            fix = f"kubectl edit clusterqueue {name}  # restore the flavor or quota, or wait: until"
            fix += " some of these Workloads end, no more of it is reserved"
            yield _finding(snapshot, what, over, [name], fix)
    for name in sorted(snapshot.world.all_cohorts()):
        usage = snapshot.engine.cohort_status(name)
        if usage is None or usage.parent or usage.cycle:
            continue
        queues = sorted(snapshot.world.below(name)[0])
        known = {pair for one in queues for pair in exceeded_by.get(one, ())}
        quota = {pair: usage.quota.get(pair, 0) for pair in usage.reserved}
        over = {
            pair: f"but the quota of its tree is {format_amount(pair.resource, quota[pair])}"
            for pair, amount in usage.reserved.items()
            if amount > quota[pair] and pair not in known
        }
        if over:
            fix = "kubectl get cohorts,clusterqueues  # raise a quota in this tree, or wait: until "
            fix += "some of these Workloads end, no more is reserved"
            yield _finding(snapshot, Subject(COHORT, name), over, queues, fix)


def _over(snapshot: ClusterSnapshot, name: str) -> Iterator[tuple[FlavorResource, str]]:
    """What a ClusterQueue holds although it may not, with the reason."""
    state = snapshot.engine.cache.state(name)
    if state is None:
        return
    for pair, amount in state.tally.reserved.items():
        limits = state.spec.limits.get(pair)
        if limits is None:
            if amount:
                yield pair, "which it does not offer"
        elif not state.spec.cohort or limits.borrowing is not None:
            most = limits.nominal + ((limits.borrowing or 0) if state.spec.cohort else 0)
            if amount > most:
                yield pair, f"and may hold {format_amount(pair.resource, most)}"


def _finding(
    snapshot: ClusterSnapshot,
    subject: Subject,
    over: Mapping[FlavorResource, str],
    queues: list[str],
    fix: str,
) -> Finding:
    states = [state for name in queues if (state := snapshot.engine.cache.state(name)) is not None]
    holders = sorted(
        key
        for state in states
        for key, holder in state.holders.items()
        if any(holder.usage.get(pair) for pair in over)
    )
    held = []
    for pair, why in sorted(over.items()):
        amount = sum(one.tally.reserved.get(pair, 0) for one in states)
        text = f"{format_amount(pair.resource, amount)} of {pair.resource}"
        held.append(f"{text} in flavor {pair.flavor}, {why}")
    problem = f"it holds {'; '.join(held)}: Workload {some(holders)}"
    return Finding(Severity.HINT, subject, problem, fix)
