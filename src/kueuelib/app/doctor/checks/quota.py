"""Quota that is held in a queue that does not exist, or beyond the limits of a queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kueuelib.api.kinds import CLUSTER_QUEUES, LOCAL_QUEUES
from kueuelib.api.kueue import Workload
from kueuelib.api.meta import ObjectKey
from kueuelib.api.phrases import some
from kueuelib.api.quantity import format_amount
from kueuelib.app.doctor.finding import Finding, Severity, Subject, check
from kueuelib.app.doctor.manager import gone
from kueuelib.app.doctor.snapshot import COHORTS, Snapshot
from kueuelib.scheduler.explain.places import CLUSTER_QUEUE, COHORT
from kueuelib.scheduler.pending.holding import charge
from kueuelib.scheduler.pending.workload_info import holds_quota
from kueuelib.scheduler.quota.amounts import FlavorResource, total_of


@check("quota-lost", "ClusterQueue", "LocalQueue", "Workload")
def lost(snapshot: Snapshot) -> Iterator[Finding]:
    """Queues that do not exist although Workloads that name them hold quota."""
    world = snapshot.world
    by_queue: dict[str, list[ObjectKey]] = {}
    by_local: dict[ObjectKey, list[ObjectKey]] = {}
    for key, workload in sorted(world.workloads.items()):
        if not holds_quota(workload):
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
            "evicted, they cannot be queued again"
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
def exceeded(snapshot: Snapshot) -> Iterator[Finding]:
    """ClusterQueues and Cohorts whose Workloads hold more than they may, for example because quota
    was reduced.
    """
    told: dict[str, set[FlavorResource]] = {}
    for name in sorted(snapshot.world.cluster_queues):
        over = dict(_over(snapshot, name))
        told[name] = {*over}
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
        known = {pair for one in queues for pair in told.get(one, ())}
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


def _over(snapshot: Snapshot, name: str) -> Iterator[tuple[FlavorResource, str]]:
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
    snapshot: Snapshot,
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
