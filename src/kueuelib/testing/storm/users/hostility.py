"""Interference by users: edits, deletions and recreations at the worst moment."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import attrs

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.users import acts
from kueuelib.testing.storm.users.acts import Act, LabelledDraws, T
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

SOON = 8.0
"""Seconds after its submission within which half of what meets work happens."""


@attrs.frozen
class Scene:
    """Where and when a user plays a trick.

    Attributes:
        draws: decisions.
        label: of the trick; those of its decisions and acts begin with it.
        at: the time.
        work: submitted work.
        cluster: the queues.
    """

    draws: LabelledDraws
    label: str
    at: float
    work: Work
    cluster: InitialCluster

    def chance(self, what: str, probability: float) -> bool:
        """True with a probability."""
        return self.draws.chance(f"{self.label}/{what}", probability)

    def choice(self, what: str, options: Sequence[T]) -> T:
        """One of the options."""
        return self.draws.choice(f"{self.label}/{what}", options)

    def later(self, longest: float) -> float:
        """A time after that of the trick."""
        return self.at + self.draws.uniform(f"{self.label}/later", 0.0, longest)

    def act(
        self, what: str, verb: str, where: Where, body: Obj | None = None, at: float | None = None
    ) -> Act:
        """An act, at the time of the trick or at another one."""
        return Act(self.at if at is None else at, f"{self.label}/{what}", verb, *where, body)

    def do(self, what: str, verb: str, body: Obj | None = None, at: float | None = None) -> Act:
        """An act on the work."""
        return self.act(what, verb, (self.work.resource, NAMESPACE, self.work.first), body, at)

    def change(self, resource: str, obj: Obj, field: str, value: object) -> list[Act]:
        """Sets a field of a spec, and usually restores it."""
        where = (resource, "", _name(obj))
        planned = [self.act(field, acts.PATCH, where, {"spec": {field: value}})]
        if not self.chance("kept", KEPT):
            before = {"spec": {field: obj["spec"].get(field)}}
            planned.append(self.act(f"{field}-back", acts.PATCH, where, before, self.later(LATER)))
        return planned


Where = tuple[str, str, str]
"""Resource, namespace and name of an object."""
Trick = Callable[[Scene], list[Act]]
"""Makes the acts of a trick."""

# ---- changes of trees of Cohorts by users, at the worst moment -----------------------------------

LATER = 40.0
"""Seconds within which most changes are undone."""
KEPT = 0.2
"""The share of changes that stay until the calm."""


def _name(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def move_cohort(scene: Scene) -> list[Act]:
    """Moves a Cohort below any other one, or itself, which may close a cycle."""
    if not scene.cluster.cohorts:
        return []
    victim = scene.choice("cohort", scene.cluster.cohorts)
    above = _name(scene.choice("above", scene.cluster.cohorts))
    return scene.change(COHORTS, victim, "parentName", above)


def close_cycle(scene: Scene) -> list[Act]:
    """Moves the top of a tree below the Cohort of a ClusterQueue, which closes a cycle."""
    if not scene.cluster.cohorts:
        return []
    cohorts = {_name(one): one for one in scene.cluster.cohorts}
    below = str(scene.choice("queue", scene.cluster.queues)["spec"]["cohortName"])
    top = below
    while (parent := cohorts.get(top, {"spec": {}})["spec"].get("parentName")) in cohorts:
        top = parent
    if top not in cohorts:
        return []
    return scene.change(COHORTS, cohorts[top], "parentName", below)


def resize_cohort(scene: Scene) -> list[Act]:
    """Changes the quota of a Cohort; without quota it has no limits."""
    if not scene.cluster.cohorts:
        return []
    victim = scene.choice("cohort", scene.cluster.cohorts)
    groups = copy.deepcopy(victim["spec"].get("resourceGroups"))
    for flavor in groups[0]["flavors"] if groups else ():
        nominal = scene.draws.integer(f"{scene.label}/{flavor['name']}", 0, 4)
        flavor["resources"][0]["nominalQuota"] = str(nominal)
    if scene.chance("none", 0.3):
        groups = None
    return scene.change(COHORTS, victim, "resourceGroups", groups)


def replace_cohort(scene: Scene) -> list[Act]:
    """Deletes a Cohort, and creates it again at once or later."""
    if not scene.cluster.cohorts:
        return []
    victim = scene.choice("cohort", scene.cluster.cohorts)
    where = (COHORTS, "", _name(victim))
    pause = scene.choice("soon", (0.01, 1.0, LATER)) * scene.draws.uniform(scene.label, 0.1, 1.0)
    return [
        scene.act("remove-cohort", acts.DELETE, where),
        scene.act("cohort-back", acts.CREATE, where, victim, scene.at + pause),
    ]


def move_queue(scene: Scene) -> list[Act]:
    """Moves a ClusterQueue to another Cohort."""
    if not scene.cluster.cohorts:
        return []
    victim = scene.choice("queue", scene.cluster.queues)
    above = _name(scene.choice("above", scene.cluster.cohorts))
    return scene.change(CLUSTER_QUEUES, victim, "cohortName", above)


def weigh(scene: Scene) -> list[Act]:
    """Changes the weight of a Cohort or ClusterQueue."""
    cluster = scene.cluster
    if not cluster.strategies:
        return []
    nodes = [(CLUSTER_QUEUES, one) for one in cluster.queues]
    nodes += [(COHORTS, one) for one in cluster.cohorts]
    resource, victim = scene.choice("node", nodes)
    weight = {"weight": scene.choice("weight", WEIGHTS)}
    return scene.change(resource, victim, "fairSharing", weight)


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


def _delete(scene: Scene) -> list[Act]:
    work = scene.work
    count = 1 if scene.chance("one", 0.5) else len(work.objects)
    return [
        scene.act(f"delete-{number}", acts.DELETE, (work.resource, NAMESPACE, _name(obj)))
        for number, obj in enumerate(work.objects[:count])
    ]


def _recreate(scene: Scene) -> list[Act]:
    return [*_delete(scene), *scene.work.submit(scene.later(4.0), f"{scene.label}/again")]


def _move(scene: Scene) -> list[Act]:
    queue = scene.choice("queue", scene.cluster.local_queues)["metadata"]["name"]
    return [scene.do("move", acts.PATCH, {"metadata": {"labels": {QUEUE: queue}}})]


def _prioritise(scene: Scene) -> list[Act]:
    level = scene.choice("level", ("low", "high"))
    return [scene.do("prioritise", acts.PATCH, {"metadata": {"labels": {PRIORITY: level}}})]


def _suspend(scene: Scene) -> list[Act]:
    value = scene.chance("value", 0.5)
    if scene.work.kind != JOB:
        return []
    return [scene.do("suspend", acts.PATCH, {"spec": {"suspend": value}})]


def _resize(scene: Scene) -> list[Act]:
    size = scene.draws.integer(f"{scene.label}/size", 1, 4)
    if scene.work.kind != JOB:
        return []
    return [scene.do("resize", acts.PATCH, {"spec": {"parallelism": size}})]


def _deactivate(scene: Scene) -> list[Act]:
    off, on = ({"spec": {"active": value}} for value in (False, True))
    planned = [scene.do("deactivate", acts.PATCH_WORKLOAD, off)]
    if scene.chance("back", 0.7):
        planned.append(scene.do("activate", acts.PATCH_WORKLOAD, on, scene.later(30.0)))
    return planned


def _lose_workload(scene: Scene) -> list[Act]:
    return [scene.do("delete-workload", acts.DELETE_WORKLOAD)]


def _strip_workload(scene: Scene) -> list[Act]:
    body = {"metadata": {"finalizers": None}}
    planned = [scene.do("strip-workload", acts.PATCH_WORKLOAD, body)]
    if scene.chance("and-delete", 0.5):
        late = scene.later(1.0)
        planned.append(scene.do("delete-stripped", acts.DELETE_WORKLOAD, at=late))
    return planned


def _delete_pods(scene: Scene) -> list[Act]:
    if scene.work.kind == JOB:
        return [scene.do("delete-pods", acts.DELETE_PODS)]
    return [scene.do("delete-pod", acts.DELETE)]


def _one_too_many(scene: Scene) -> list[Act]:
    if scene.work.kind != GROUP:
        return []
    extra = copy.deepcopy(scene.work.objects[0])
    name = f"{scene.work.name}-extra"
    extra["metadata"]["name"] = name
    return [scene.act("extra", acts.CREATE, (PODS, NAMESPACE, name), extra)]


def _annotate(scene: Scene) -> list[Act]:
    body = {"metadata": {"annotations": {"storm.example/note": scene.label}}}
    return [scene.do("annotate", acts.PATCH, body)]


def _stop_queue(scene: Scene) -> list[Act]:
    policy = scene.choice("policy", ("Hold", "HoldAndDrain"))
    local, cluster = scene.chance("local", 0.3), scene.cluster
    resource = LOCAL_QUEUES if local else CLUSTER_QUEUES
    where = _where(
        resource, scene.choice("queue", cluster.local_queues if local else cluster.queues)
    )
    resumed = {"spec": {"stopPolicy": "None"}}
    return [
        scene.act("stop", acts.PATCH, where, {"spec": {"stopPolicy": policy}}),
        scene.act("resume", acts.PATCH, where, resumed, scene.later(40.0)),
    ]


def _where(resource: str, obj: Obj) -> Where:
    return resource, obj["metadata"].get("namespace", ""), _name(obj)


def _change_quota(scene: Scene) -> list[Act]:
    queue = scene.choice("queue", scene.cluster.queues)
    groups = copy.deepcopy(queue["spec"]["resourceGroups"])
    for flavor in groups[0]["flavors"]:
        quota = flavor["resources"][0]
        nominal = scene.draws.integer(f"{scene.label}/{flavor['name']}", 0, 6)
        quota["nominalQuota"] = str(nominal)
        quota.pop("lendingLimit", None)
    where = _where(CLUSTER_QUEUES, queue)
    before = {"spec": {"resourceGroups": queue["spec"]["resourceGroups"]}}
    return [
        scene.act("change-quota", acts.PATCH, where, {"spec": {"resourceGroups": groups}}),
        scene.act("quota-back", acts.PATCH, where, before, scene.later(40.0)),
    ]


def _replace(scene: Scene) -> list[Act]:
    """Deletes a queue, flavor or check, and creates it again."""
    cluster = scene.cluster
    kinds = [(CLUSTER_QUEUES, cluster.queues), (LOCAL_QUEUES, cluster.local_queues)]
    kinds.append((FLAVORS, cluster.flavors))
    if cluster.check is not None:
        kinds.append((CHECKS, (cluster.check,)))
    resource, objects = scene.choice("what", kinds)
    obj = scene.choice("which", objects)
    where, back = _where(resource, obj), scene.later(20.0)
    planned = [
        scene.act("remove", acts.DELETE, where),
        scene.act("put-back", acts.CREATE, where, obj, back),
    ]
    if resource == CHECKS:
        planned.append(activate(CHECK, scene.label, at=back + 0.1))
    return planned


def _check_away(scene: Scene) -> list[Act]:
    if scene.cluster.check is None:
        return []
    back = scene.later(30.0)
    return [
        activate(CHECK, scene.label, at=scene.at, active=False),
        activate(CHECK, scene.label, at=back),
    ]


def _refuse(scene: Scene) -> list[Act]:
    if scene.cluster.check is None:
        return []
    body = {"state": scene.choice("state", ("Retry", "Retry", "Rejected"))}
    return [scene.act("refuse", acts.ANSWER, (CHECKS, "", CHECK), body)]


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
        planned += trick(Scene(draws, label, at, work, cluster))
    if draws.chance("thieves", 0.5):
        for work in works:
            planned += _theft(draws, f"{work.name}/theft", work)
    return planned


def _theft(draws: LabelledDraws, label: str, work: Work) -> list[Act]:
    """Deletes the Workload of work that may be running or waiting."""
    if not draws.chance(label, 0.2):
        return []
    at = work.at + draws.uniform(f"{label}/after", 0.0, 2 * SOON)
    where = (work.resource, NAMESPACE, work.first)
    return [Act(at, f"{label}/delete-workload", acts.DELETE_WORKLOAD, *where)]
