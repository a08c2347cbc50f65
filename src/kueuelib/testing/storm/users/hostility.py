"""Interference by users: edits, deletions and recreations at the worst moment."""

from __future__ import annotations

import copy
from collections.abc import Callable

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.users import acts
from kueuelib.testing.storm.users.acts import Act, LabelledDraws
from kueuelib.testing.storm.users.queues import (
    CHECK,
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACE,
    POOL,
    POOLS,
    WEIGHTS,
    InitialCluster,
    activate,
)
from kueuelib.testing.storm.users.work import GROUP, JOB, JOBS, PODS, PRIORITY, QUEUE, Work

# ---- changes of trees of Cohorts by users, at the worst moment -----------------------------------

LATER = 40.0
"""Seconds within which most changes are undone."""
KEPT = 0.2
"""The share of changes that stay until the calm."""


def _name(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def _change(
    draws: LabelledDraws, label: str, at: float, resource: str, obj: Obj, field: str, value: object
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
    draws: LabelledDraws, label: str, at: float, _work: Work, cluster: InitialCluster
) -> list[Act]:
    """Moves a Cohort below any other one, or itself, which may close a cycle."""
    if not cluster.cohorts:
        return []
    victim = draws.choice(f"{label}/cohort", cluster.cohorts)
    above = _name(draws.choice(f"{label}/above", cluster.cohorts))
    return _change(draws, label, at, COHORTS, victim, "parentName", above)


def close_cycle(
    draws: LabelledDraws, label: str, at: float, _work: Work, cluster: InitialCluster
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
    draws: LabelledDraws, label: str, at: float, _work: Work, cluster: InitialCluster
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
    draws: LabelledDraws, label: str, at: float, _work: Work, cluster: InitialCluster
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
    draws: LabelledDraws, label: str, at: float, _work: Work, cluster: InitialCluster
) -> list[Act]:
    """Moves a ClusterQueue to another Cohort."""
    if not cluster.cohorts:
        return []
    victim = draws.choice(f"{label}/queue", cluster.queues)
    above = _name(draws.choice(f"{label}/above", cluster.cohorts))
    return _change(draws, label, at, CLUSTER_QUEUES, victim, "cohortName", above)


def weigh(
    draws: LabelledDraws, label: str, at: float, _work: Work, cluster: InitialCluster
) -> list[Act]:
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


# ---- edits of the templates of Jobs by the users that submitted them, and stops between them -----

EDITS = (1, 5)
"""The least and the largest number of edits of a Job; the API server refuses those of running
ones.
"""
SOON = 8.0
"""Seconds after its submission within which half of the edits of a Job happen."""
STOPPED = 0.7
"""The share of Jobs that are stopped and started again."""
NOTE = "storm.example/edited"
PREFERENCES = (1, 50, 100)


def draw_edits(draws: LabelledDraws, works: list[Work], seconds: float) -> list[Act]:
    """Draws edits of all Jobs within some seconds, and stops of most."""
    planned = []
    for work in works:
        if work.kind == JOB:
            count = draws.integer(f"{work.name}/edits", *EDITS)
            planned += [
                _edit(draws, f"{work.name}/edit-{number}", work, seconds)
                for number in range(1, count + 1)
            ]
            if draws.chance(f"{work.name}/stopped", STOPPED):
                planned += _stop(draws, f"{work.name}/stop", work)
    return planned


def _stop(draws: LabelledDraws, label: str, work: Work) -> list[Act]:
    """Deactivates the Workload of a Job for a while."""
    at = work.at + draws.uniform(f"{label}/after", 1.0, 6 * SOON)
    back = at + draws.uniform(f"{label}/later", 1.0, 2 * SOON)
    where = (acts.PATCH_WORKLOAD, JOBS, NAMESPACE, work.first)
    return [
        Act(at, f"{label}/off", *where, {"spec": {"active": False}}),
        Act(back, f"{label}/on", *where, {"spec": {"active": True}}),
    ]


def _edit(draws: LabelledDraws, label: str, work: Work, seconds: float) -> Act:
    near = draws.chance(f"{label}/near", 0.5)
    at = work.at + draws.uniform(f"{label}/after", 0.0, SOON if near else seconds)
    body = {"spec": {"template": _drawn_change(draws, label)}}
    return Act(at, label, acts.PATCH, JOBS, NAMESPACE, work.first, body)


def _drawn_change(draws: LabelledDraws, label: str) -> Obj:
    field = draws.choice(label, ("nodeSelector", "nodeSelector", "affinity", "annotations"))
    if field == "nodeSelector":
        return {"spec": {field: {POOL: draws.choice(f"{label}/pool", (*POOLS, None))}}}
    if field == "annotations":
        return {"metadata": {field: {NOTE: draws.choice(f"{label}/note", ("a", "b", None))}}}
    wanted = {"key": POOL, "operator": "In", "values": [draws.choice(f"{label}/to", POOLS)]}
    weight = draws.choice(f"{label}/weight", PREFERENCES)
    term = {"weight": weight, "preference": {"matchExpressions": [wanted]}}
    node = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"spec": {field: {"nodeAffinity": node}}}


# --------------------------------------------------------------------------------------------------

Trick = Callable[[LabelledDraws, str, float, Work, InitialCluster], list[Act]]
"""Makes acts from decisions, a label, a time, submitted work and the queues."""

"""Seconds within which users follow up their acts."""


def _do(at: float, label: str, verb: str, work: Work, body: Obj | None = None) -> Act:
    return Act(at, label, verb, work.resource, NAMESPACE, work.first, body)


def _later(draws: LabelledDraws, label: str, at: float, longest: float = SOON) -> float:
    return at + draws.uniform(f"{label}/later", 0.0, longest)


def _delete(
    draws: LabelledDraws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    count = 1 if draws.chance(f"{label}/one", 0.5) else len(work.objects)
    return [
        Act(
            at,
            f"{label}/delete-{number}",
            acts.DELETE,
            work.resource,
            NAMESPACE,
            obj["metadata"]["name"],
        )
        for number, obj in enumerate(work.objects[:count])
    ]


def _recreate(
    draws: LabelledDraws, label: str, at: float, work: Work, cluster: InitialCluster
) -> list[Act]:
    gone = _delete(draws, label, at, work, cluster)
    again = work.submit(_later(draws, label, at, 4.0), f"{label}/again")
    return [*gone, *again]


def _move(
    draws: LabelledDraws, label: str, at: float, work: Work, cluster: InitialCluster
) -> list[Act]:
    queue = draws.choice(f"{label}/queue", cluster.local_queues)["metadata"]["name"]
    body = {"metadata": {"labels": {QUEUE: queue}}}
    return [_do(at, f"{label}/move", acts.PATCH, work, body)]


def _prioritise(
    draws: LabelledDraws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    level = draws.choice(f"{label}/level", ("low", "high"))
    body = {"metadata": {"labels": {PRIORITY: level}}}
    return [_do(at, f"{label}/prioritise", acts.PATCH, work, body)]


def _suspend(
    draws: LabelledDraws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    value = draws.chance(f"{label}/value", 0.5)
    if work.kind != JOB:
        return []
    return [_do(at, f"{label}/suspend", acts.PATCH, work, {"spec": {"suspend": value}})]


def _resize(
    draws: LabelledDraws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    size = draws.integer(f"{label}/size", 1, 4)
    if work.kind != JOB:
        return []
    return [_do(at, f"{label}/resize", acts.PATCH, work, {"spec": {"parallelism": size}})]


def _deactivate(
    draws: LabelledDraws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    off, on = ({"spec": {"active": value}} for value in (False, True))
    planned = [_do(at, f"{label}/deactivate", acts.PATCH_WORKLOAD, work, off)]
    if draws.chance(f"{label}/back", 0.7):
        back = _later(draws, label, at, 30.0)
        planned.append(_do(back, f"{label}/activate", acts.PATCH_WORKLOAD, work, on))
    return planned


def _lose_workload(
    _draws: LabelledDraws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    return [_do(at, f"{label}/delete-workload", acts.DELETE_WORKLOAD, work)]


def _strip_workload(
    draws: LabelledDraws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    body = {"metadata": {"finalizers": None}}
    planned = [_do(at, f"{label}/strip-workload", acts.PATCH_WORKLOAD, work, body)]
    if draws.chance(f"{label}/and-delete", 0.5):
        late = _later(draws, label, at, 1.0)
        planned.append(_do(late, f"{label}/delete-stripped", acts.DELETE_WORKLOAD, work))
    return planned


def _delete_pods(
    _draws: LabelledDraws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    if work.kind == JOB:
        return [_do(at, f"{label}/delete-pods", acts.DELETE_PODS, work)]
    return [_do(at, f"{label}/delete-pod", acts.DELETE, work)]


def _one_too_many(
    _draws: LabelledDraws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    if work.kind != GROUP:
        return []
    extra = copy.deepcopy(work.objects[0])
    name = f"{work.name}-extra"
    extra["metadata"]["name"] = name
    return [Act(at, f"{label}/extra", acts.CREATE, PODS, NAMESPACE, name, extra)]


def _annotate(
    _draws: LabelledDraws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    body = {"metadata": {"annotations": {"storm.example/note": label}}}
    return [_do(at, f"{label}/annotate", acts.PATCH, work, body)]


def _stop_queue(
    draws: LabelledDraws, label: str, at: float, _work: Work, cluster: InitialCluster
) -> list[Act]:
    policy = draws.choice(f"{label}/policy", ("Hold", "HoldAndDrain"))
    local = draws.chance(f"{label}/local", 0.3)
    resource = LOCAL_QUEUES if local else CLUSTER_QUEUES
    meta = draws.choice(f"{label}/queue", cluster.local_queues if local else cluster.queues)[
        "metadata"
    ]
    where = (acts.PATCH, resource, meta.get("namespace", ""), meta["name"])
    back = _later(draws, label, at, 40.0)
    return [
        Act(at, f"{label}/stop", *where, {"spec": {"stopPolicy": policy}}),
        Act(back, f"{label}/resume", *where, {"spec": {"stopPolicy": "None"}}),
    ]


def _change_quota(
    draws: LabelledDraws, label: str, at: float, _work: Work, cluster: InitialCluster
) -> list[Act]:
    queue = draws.choice(f"{label}/queue", cluster.queues)
    groups = copy.deepcopy(queue["spec"]["resourceGroups"])
    for flavor in groups[0]["flavors"]:
        quota = flavor["resources"][0]
        quota["nominalQuota"] = str(draws.integer(f"{label}/{flavor['name']}", 0, 6))
        quota.pop("lendingLimit", None)
    where = (acts.PATCH, CLUSTER_QUEUES, "", queue["metadata"]["name"])
    before = queue["spec"]["resourceGroups"]
    back = _later(draws, label, at, 40.0)
    return [
        Act(at, f"{label}/change-quota", *where, {"spec": {"resourceGroups": groups}}),
        Act(back, f"{label}/quota-back", *where, {"spec": {"resourceGroups": before}}),
    ]


def _replace(
    draws: LabelledDraws, label: str, at: float, _work: Work, cluster: InitialCluster
) -> list[Act]:
    """Deletes a queue, flavor or check, and creates it again."""
    kinds = [(CLUSTER_QUEUES, cluster.queues), (LOCAL_QUEUES, cluster.local_queues)]
    kinds.append((FLAVORS, cluster.flavors))
    if cluster.check is not None:
        kinds.append((CHECKS, (cluster.check,)))
    resource, objects = draws.choice(f"{label}/what", kinds)
    obj = draws.choice(f"{label}/which", objects)
    meta = obj["metadata"]
    where = (resource, meta.get("namespace", ""), meta["name"])
    back = _later(draws, label, at, 20.0)
    planned = [
        Act(at, f"{label}/remove", acts.DELETE, *where),
        Act(back, f"{label}/put-back", acts.CREATE, *where, obj),
    ]
    if resource == CHECKS:
        planned.append(activate(CHECK, label, at=back + 0.1))
    return planned


def _check_away(
    draws: LabelledDraws, label: str, at: float, _work: Work, cluster: InitialCluster
) -> list[Act]:
    if cluster.check is None:
        return []
    back = _later(draws, label, at, 30.0)
    return [
        activate(CHECK, label, at=at, active=False),
        activate(CHECK, label, at=back),
    ]


def _refuse(
    draws: LabelledDraws, label: str, at: float, _work: Work, cluster: InitialCluster
) -> list[Act]:
    if cluster.check is None:
        return []
    body = {"state": draws.choice(f"{label}/state", ("Retry", "Retry", "Rejected"))}
    return [Act(at, f"{label}/refuse", acts.ANSWER, CHECKS, "", CHECK, body)]


TRICKS: tuple[Trick, ...] = (
    _delete,
    _recreate,
    _recreate,
    _move,
    _prioritise,
    _suspend,
    _resize,
    _deactivate,
    _lose_workload,
    _strip_workload,
    _delete_pods,
    _one_too_many,
    _annotate,
    _stop_queue,
    _stop_queue,
    _change_quota,
    _change_quota,
    _replace,
    _replace,
    _check_away,
    _refuse,
)
"""The tricks of users; one that is listed twice is twice as likely."""


def draw_hostility(
    draws: LabelledDraws, works: list[Work], cluster: InitialCluster, count: int, seconds: float
) -> list[Act]:
    """Draws `count` tricks within some seconds, each on submitted work."""
    planned: list[Act] = []
    tricks = (*TRICKS, *TREE_TRICKS) if cluster.cohorts or cluster.strategies else TRICKS
    for number in range(1, count + 1):
        label = f"trick-{number}"
        trick = draws.choice(label, tricks)
        work = draws.choice(f"{label}/work", works)
        near = draws.chance(f"{label}/near", 0.5)
        wide = draws.uniform(f"{label}/at", 0.0, seconds)
        # Half of the tricks hit their victim while it is new.
        at = work.at + draws.uniform(f"{label}/after", 0.0, SOON) if near else wide
        planned += trick(draws, label, at, work, cluster)
    if draws.chance("thieves", 0.5):
        for work in works:
            planned += _theft(draws, f"{work.name}/theft", work)
    return planned


def _theft(draws: LabelledDraws, label: str, work: Work) -> list[Act]:
    """Deletes the Workload of work that may be running or waiting."""
    if not draws.chance(label, 0.2):
        return []
    at = work.at + draws.uniform(f"{label}/after", 0.0, 2 * SOON)
    return [_do(at, f"{label}/delete-workload", acts.DELETE_WORKLOAD, work)]
