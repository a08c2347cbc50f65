"""Interference by users: edits, deletions and recreations at the worst moment."""

from __future__ import annotations

import copy
from collections.abc import Callable

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.users import acts
from kueuelib.testing.storm.users.acts import Act, Draws
from kueuelib.testing.storm.users.queues import (
    CHECK,
    CHECKS,
    CLUSTER_QUEUES,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACE,
    InitialCluster,
    activate,
)
from kueuelib.testing.storm.users.tree_tricks import TREE_TRICKS
from kueuelib.testing.storm.users.work import (
    GROUP,
    JOB,
    PODS,
    PRIORITY,
    QUEUE,
    Work,
)

Trick = Callable[[Draws, str, float, Work, InitialCluster], list[Act]]
"""Makes acts from decisions, a label, a time, submitted work and the queues."""

SOON = 8.0
"""Seconds within which users follow up their acts."""


def _do(at: float, label: str, verb: str, work: Work, body: Obj | None = None) -> Act:
    return Act(at, label, verb, work.resource, NAMESPACE, work.first, body)


def _later(draws: Draws, label: str, at: float, longest: float = SOON) -> float:
    return at + draws.uniform(f"{label}/later", 0.0, longest)


def _delete(draws: Draws, label: str, at: float, work: Work, _cluster: InitialCluster) -> list[Act]:
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
    draws: Draws, label: str, at: float, work: Work, cluster: InitialCluster
) -> list[Act]:
    gone = _delete(draws, label, at, work, cluster)
    again = work.submit(_later(draws, label, at, 4.0), f"{label}/again")
    return [*gone, *again]


def _move(draws: Draws, label: str, at: float, work: Work, cluster: InitialCluster) -> list[Act]:
    queue = draws.choice(f"{label}/queue", cluster.local_queues)["metadata"]["name"]
    body = {"metadata": {"labels": {QUEUE: queue}}}
    return [_do(at, f"{label}/move", acts.PATCH, work, body)]


def _prioritise(
    draws: Draws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    level = draws.choice(f"{label}/level", ("low", "high"))
    body = {"metadata": {"labels": {PRIORITY: level}}}
    return [_do(at, f"{label}/prioritise", acts.PATCH, work, body)]


def _suspend(
    draws: Draws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    value = draws.chance(f"{label}/value", 0.5)
    if work.kind != JOB:
        return []
    return [_do(at, f"{label}/suspend", acts.PATCH, work, {"spec": {"suspend": value}})]


def _resize(draws: Draws, label: str, at: float, work: Work, _cluster: InitialCluster) -> list[Act]:
    size = draws.integer(f"{label}/size", 1, 4)
    if work.kind != JOB:
        return []
    return [_do(at, f"{label}/resize", acts.PATCH, work, {"spec": {"parallelism": size}})]


def _deactivate(
    draws: Draws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    off, on = ({"spec": {"active": value}} for value in (False, True))
    planned = [_do(at, f"{label}/deactivate", acts.PATCH_WORKLOAD, work, off)]
    if draws.chance(f"{label}/back", 0.7):
        back = _later(draws, label, at, 30.0)
        planned.append(_do(back, f"{label}/activate", acts.PATCH_WORKLOAD, work, on))
    return planned


def _lose_workload(
    _draws: Draws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    return [_do(at, f"{label}/delete-workload", acts.DELETE_WORKLOAD, work)]


def _strip_workload(
    draws: Draws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    body = {"metadata": {"finalizers": None}}
    planned = [_do(at, f"{label}/strip-workload", acts.PATCH_WORKLOAD, work, body)]
    if draws.chance(f"{label}/and-delete", 0.5):
        late = _later(draws, label, at, 1.0)
        planned.append(_do(late, f"{label}/delete-stripped", acts.DELETE_WORKLOAD, work))
    return planned


def _delete_pods(
    _draws: Draws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    if work.kind == JOB:
        return [_do(at, f"{label}/delete-pods", acts.DELETE_PODS, work)]
    return [_do(at, f"{label}/delete-pod", acts.DELETE, work)]


def _one_too_many(
    _draws: Draws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    if work.kind != GROUP:
        return []
    extra = copy.deepcopy(work.objects[0])
    name = f"{work.name}-extra"
    extra["metadata"]["name"] = name
    return [Act(at, f"{label}/extra", acts.CREATE, PODS, NAMESPACE, name, extra)]


def _annotate(
    _draws: Draws, label: str, at: float, work: Work, _cluster: InitialCluster
) -> list[Act]:
    body = {"metadata": {"annotations": {"storm.example/note": label}}}
    return [_do(at, f"{label}/annotate", acts.PATCH, work, body)]


def _stop_queue(
    draws: Draws, label: str, at: float, _work: Work, cluster: InitialCluster
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
    draws: Draws, label: str, at: float, _work: Work, cluster: InitialCluster
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
    draws: Draws, label: str, at: float, _work: Work, cluster: InitialCluster
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
    draws: Draws, label: str, at: float, _work: Work, cluster: InitialCluster
) -> list[Act]:
    if cluster.check is None:
        return []
    back = _later(draws, label, at, 30.0)
    return [
        activate(CHECK, label, at=at, active=False),
        activate(CHECK, label, at=back),
    ]


def _refuse(draws: Draws, label: str, at: float, _work: Work, cluster: InitialCluster) -> list[Act]:
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
    draws: Draws, works: list[Work], cluster: InitialCluster, count: int, seconds: float
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


def _theft(draws: Draws, label: str, work: Work) -> list[Act]:
    """Deletes the Workload of work that may be running or waiting."""
    if not draws.chance(label, 0.2):
        return []
    at = work.at + draws.uniform(f"{label}/after", 0.0, 2 * SOON)
    return [_do(at, f"{label}/delete-workload", acts.DELETE_WORKLOAD, work)]
