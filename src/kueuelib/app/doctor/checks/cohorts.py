"""Cohorts: parents that form a cycle, and names without an object."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kueuelib.app.doctor.finding import Finding, Severity, Subject, check
from kueuelib.app.doctor.snapshot import Snapshot
from kueuelib.scheduler.explain.places import CLUSTER_QUEUE, COHORT, Place

_MOST_NAMES = 5


@check("cohort-cycle", "ClusterQueue", "Cohort")
def cycles(snapshot: Snapshot) -> Iterator[Finding]:
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
def absent(snapshot: Snapshot) -> Iterator[Finding]:
    """Cohorts without an object where one would matter."""
    world = snapshot.world
    for name in sorted(set(world.all_cohorts()) - set(world.cohorts)):
        children = {one for one, each in world.cohorts.items() if each.spec.parent_name == name}
        queues, cohorts = world.below(name)
        places = [Place(CLUSTER_QUEUE, one) for one in queues]
        places += [Place(COHORT, one) for one in cohorts & world.cohorts.keys()]
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
