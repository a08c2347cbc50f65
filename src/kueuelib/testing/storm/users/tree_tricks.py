"""Changes of trees of Cohorts by users, at the worst moment."""

from __future__ import annotations

import copy

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.users import acts
from kueuelib.testing.storm.users.acts import Act, Draws
from kueuelib.testing.storm.users.queues import CLUSTER_QUEUES, InitialCluster
from kueuelib.testing.storm.users.trees import COHORTS, WEIGHTS
from kueuelib.testing.storm.users.work import Work

LATER = 40.0
"""Seconds within which most changes are undone."""
KEPT = 0.2
"""The share of changes that stay until the calm."""


def _name(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def _change(
    draws: Draws, label: str, at: float, resource: str, obj: Obj, field: str, value: object
) -> list[Act]:
    """Sets a field of a spec, and usually restores it."""
    where = (acts.PATCH, resource, "", _name(obj))
    planned = [Act(at, f"{label}/{field}", *where, {"spec": {field: value}})]
    if not draws.chance(f"{label}/kept", KEPT):
        back = at + draws.uniform(f"{label}/later", 0.0, LATER)
        before = {"spec": {field: obj["spec"].get(field)}}
        planned.append(Act(back, f"{label}/{field}-back", *where, before))
    return planned


def move_cohort(
    draws: Draws, label: str, at: float, _work: Work, cluster: InitialCluster
) -> list[Act]:
    """Moves a Cohort below any other one, or itself, which may close a cycle."""
    if not cluster.cohorts:
        return []
    victim = draws.choice(f"{label}/cohort", cluster.cohorts)
    above = _name(draws.choice(f"{label}/above", cluster.cohorts))
    return _change(draws, label, at, COHORTS, victim, "parentName", above)


def close_cycle(
    draws: Draws, label: str, at: float, _work: Work, cluster: InitialCluster
) -> list[Act]:
    """Moves the top of a tree below the Cohort of a ClusterQueue, which closes a cycle."""
    if not cluster.cohorts:
        return []
    cohorts = {_name(one): one for one in cluster.cohorts}
    below = str(draws.choice(f"{label}/queue", cluster.queues)["spec"]["cohortName"])
    top = below
    while (parent := cohorts.get(top, {"spec": {}})["spec"].get("parentName")) in cohorts:
        top = parent
    if top not in cohorts:
        return []
    return _change(draws, label, at, COHORTS, cohorts[top], "parentName", below)


def resize_cohort(
    draws: Draws, label: str, at: float, _work: Work, cluster: InitialCluster
) -> list[Act]:
    """Changes the quota of a Cohort; without quota it has no limits."""
    if not cluster.cohorts:
        return []
    victim = draws.choice(f"{label}/cohort", cluster.cohorts)
    groups = copy.deepcopy(victim["spec"].get("resourceGroups"))
    for flavor in groups[0]["flavors"] if groups else ():
        nominal = draws.integer(f"{label}/{flavor['name']}", 0, 4)
        flavor["resources"][0]["nominalQuota"] = str(nominal)
    if draws.chance(f"{label}/none", 0.3):
        groups = None
    return _change(draws, label, at, COHORTS, victim, "resourceGroups", groups)


def replace_cohort(
    draws: Draws, label: str, at: float, _work: Work, cluster: InitialCluster
) -> list[Act]:
    """Deletes a Cohort, and creates it again at once or later."""
    if not cluster.cohorts:
        return []
    victim = draws.choice(f"{label}/cohort", cluster.cohorts)
    where = (COHORTS, "", _name(victim))
    back = at + draws.choice(f"{label}/soon", (0.01, 1.0, LATER)) * draws.uniform(label, 0.1, 1.0)
    return [
        Act(at, f"{label}/remove-cohort", acts.DELETE, *where),
        Act(back, f"{label}/cohort-back", acts.CREATE, *where, victim),
    ]


def move_queue(
    draws: Draws, label: str, at: float, _work: Work, cluster: InitialCluster
) -> list[Act]:
    """Moves a ClusterQueue to another Cohort."""
    if not cluster.cohorts:
        return []
    victim = draws.choice(f"{label}/queue", cluster.queues)
    above = _name(draws.choice(f"{label}/above", cluster.cohorts))
    return _change(draws, label, at, CLUSTER_QUEUES, victim, "cohortName", above)


def weigh(draws: Draws, label: str, at: float, _work: Work, cluster: InitialCluster) -> list[Act]:
    """Changes the weight of a Cohort or ClusterQueue."""
    if not cluster.strategies:
        return []
    nodes = [(CLUSTER_QUEUES, one) for one in cluster.queues]
    nodes += [(COHORTS, one) for one in cluster.cohorts]
    resource, victim = draws.choice(f"{label}/node", nodes)
    weight = {"weight": draws.choice(f"{label}/weight", WEIGHTS)}
    return _change(draws, label, at, resource, victim, "fairSharing", weight)


TREE_TRICKS = (
    move_cohort,
    close_cycle,
    close_cycle,
    resize_cohort,
    replace_cohort,
    replace_cohort,
    move_queue,
    weigh,
    weigh,
)
"""The tricks for trees and shares; one that is listed twice is twice as likely."""
