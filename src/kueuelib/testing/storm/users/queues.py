"""The queues of a scenario: flavors, Cohorts, ClusterQueues, LocalQueues, priorities, a check."""

from __future__ import annotations

from typing import Any

import attrs

from kueuelib.api.preemption_policies import RECLAIM_WITHIN_COHORT, WITHIN_CLUSTER_QUEUE
from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.users import acts
from kueuelib.testing.storm.users.acts import Act, LabelledDraws

# ---- the first and last trees of Cohorts in a scenario -------------------------------------------

COHORTS = "cohorts.kueue.x-k8s.io"
API = "kueue.x-k8s.io/v1beta2"
DEPTH = 3
"""The maximum number of Cohorts from a ClusterQueue to the top."""
ABOVE, POOLED_QUOTA = "above-all", "6"
"""The last Cohort above all others, and its CPU quota per flavor."""
WEIGHTS = ("0", "0.3", "1", "2")
OPTIONAL = ("parentName", "resourceGroups", "fairSharing")
"""The parts of the spec of a Cohort."""


def draw_trees(
    draws: LabelledDraws, flavors: tuple[str, ...], *, fair: bool, when: str = "first"
) -> tuple[Obj, ...]:
    """Draws 2 to 5 Cohorts, most of them in one tree; the top may have no object.

    Args:
        draws: decisions.
        flavors: for the quota of Cohorts.
        fair: whether Cohorts have weights.
        when: a part of all labels.

    Returns:
        raw Cohorts.
    """
    cohorts: list[Obj] = []
    depths = {"cohort-1": 1}
    if not draws.chance(f"{when}/implicit", 0.2):
        cohorts.append(_cohort(draws, when, "cohort-1", "", flavors, fair=fair))
    for number in range(2, draws.integer(f"{when}/cohorts", 2, 5) + 1):
        name, parent = f"cohort-{number}", ""
        if not draws.chance(f"{when}/{name}/top", 0.1):
            above = tuple(one for one, depth in depths.items() if depth < DEPTH)
            parent = draws.choice(f"{when}/{name}/parent", above)
        depths[name] = depths.get(parent, 0) + 1
        cohorts.append(_cohort(draws, when, name, parent, flavors, fair=fair))
    return tuple(cohorts)


def _cohort(
    draws: LabelledDraws, when: str, name: str, parent: str, flavors: tuple[str, ...], *, fair: bool
) -> Obj:
    label = f"{when}/{name}"
    spec: Obj = {"parentName": parent} if parent else {}
    if draws.chance(f"{label}/quota", 0.6):
        used = flavors if draws.chance(f"{label}/all-flavors", 0.7) else flavors[:1]
        rows = [
            {"name": flavor, "resources": [_cohort_quota(draws, f"{label}/{flavor}", parent)]}
            for flavor in used
        ]
        spec["resourceGroups"] = [{"coveredResources": ["cpu"], "flavors": rows}]
    if fair:
        spec |= weighed(draws, label)
    return {**_plain(name), "spec": spec}


def _cohort_quota(draws: LabelledDraws, label: str, parent: str) -> Obj:
    quota: Obj = {"name": "cpu", "nominalQuota": str(draws.integer(f"{label}/nominal", 0, 3))}
    for limit in ("borrowingLimit", "lendingLimit") if parent else ():
        if draws.chance(f"{label}/{limit}", 0.3):
            quota[limit] = str(draws.integer(f"{label}/most-{limit}", 0, 4))
    return quota


def weighed(draws: LabelledDraws, label: str) -> Obj:
    """Draws weights for half of the nodes, as a part of their spec."""
    if draws.chance(f"{label}/weighed", 0.5):
        return {}
    return {"fairSharing": {"weight": draws.choice(f"{label}/weight", WEIGHTS)}}


def last_acts(
    draws: LabelledDraws, first: tuple[Obj, ...], last: tuple[Obj, ...]
) -> tuple[Act, ...]:
    """The acts that turn any state of a tree into the tree of the calm.

    Args:
        draws: decides whether the first Cohort, usually the top, also gets a parent.
        first: raw Cohorts at the start.
        last: raw Cohorts of the calm.
    """
    names = [_name(one) for one in last]
    planned = [
        Act(0.0, f"cohorts/{name}/at-last", acts.DELETE, COHORTS, "", name)
        for name in map(_name, first)
        if name not in names
    ]
    planned += [_made(one, "at-last") for one in last]
    if last and draws.chance("last/cycle", 0.3):
        body = {"spec": {"parentName": draws.choice("last/parent", names)}}
        planned.append(Act(0.0, "cohorts/cycle", acts.PATCH, COHORTS, "", names[0], body))
    return tuple(planned)


def pool_acts(
    last: tuple[Obj, ...], named: tuple[str, ...], flavors: tuple[str, ...]
) -> tuple[Act, ...]:
    """The acts that put all trees below one new Cohort, the only one with quota.

    ClusterQueues are not changed: their statuses must follow from the Cohorts alone. Usage beyond
    their own quota is borrowed from the top, so that the Cohorts in between also have shares.

    Args:
        last: raw Cohorts of the calm.
        named: the Cohorts that ClusterQueues name.
        flavors: for the quota of the new Cohort.
    """
    rows = [
        {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": POOLED_QUOTA}]}
        for flavor in flavors
    ]
    parents = {str(one["spec"].get("parentName", "")) for one in last}
    by_name = {name: _plain(name, ABOVE) for name in sorted({*named, *parents} - {""})}
    for one in last:
        spec = {"parentName": ABOVE, **one["spec"], "resourceGroups": None}
        by_name[_name(one)] = {**one, "spec": spec}
    top = _plain(ABOVE)
    top["spec"]["resourceGroups"] = [{"coveredResources": ["cpu"], "flavors": rows}]
    return tuple(_made(one, "pooled") for one in (top, *by_name.values()))


def _made(cohort: Obj, when: str) -> Act:
    """Sets the spec of a Cohort; absent fields are null, to remove what users added."""
    body = {**cohort, "spec": {**dict.fromkeys(OPTIONAL), **cohort["spec"]}}
    name = _name(cohort)
    return Act(0.0, f"cohorts/{name}/{when}", acts.RESTORE, COHORTS, "", name, body)


def _plain(name: str, parent: str = "") -> Obj:
    spec = {"parentName": parent} if parent else {}
    return {"apiVersion": API, "kind": "Cohort", "metadata": {"name": name}, "spec": spec}


def _name(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


# --------------------------------------------------------------------------------------------------

NAMESPACE = "default"
FLAVORS = "resourceflavors.kueue.x-k8s.io"
CHECKS = "admissionchecks.kueue.x-k8s.io"
CLUSTER_QUEUES = "clusterqueues.kueue.x-k8s.io"
LOCAL_QUEUES = "localqueues.kueue.x-k8s.io"
PRIORITIES = "workloadpriorityclasses.kueue.x-k8s.io"

TREES = 0.25
"""The share of scenarios with trees of Cohorts."""
POOLED = 0.75
"""The share of these whose trees are joined at rest; the others keep a cycle, if there is one."""
CHECKED = 0.25
"""The share of scenarios with an admission check."""
PLENTY, SCARCE = (1, 5), (0, 2)
"""Bounds of the nominal quota of a ClusterQueue; it is small in a tree, so that the queue
borrows.
"""
POOL = "kueuelib.dev/pool"
POOLS = ("on-demand", "spot")
CHECK = "approval"
STRATEGIES = (
    ("LessThanOrEqualToFinalShare",),
    ("LessThanInitialShare",),
    ("LessThanOrEqualToFinalShare", "LessThanInitialShare"),
)
"""The lists of strategies that a manager accepts."""
LEVELS = {"low": 10, "high": 1000}
ACTIVE = {
    "type": "Active",
    "status": "True",
    "reason": "Active",
    "message": "a user answers",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@attrs.frozen
class InitialCluster:
    """The initial objects of a scenario.

    Attributes:
        flavors: raw objects.
        queues: raw ClusterQueues.
        local_queues: raw LocalQueues.
        check: a raw AdmissionCheck, if one is required.
        cohorts: raw Cohorts; ClusterQueues may name others, too.
        strategies: of fair sharing; empty without it.
        last: the acts that create the different Cohorts of the calm.
        rest: the acts that change these at rest.
        settings: of the manager, beside its defaults.
    """

    flavors: tuple[Obj, ...]
    queues: tuple[Obj, ...]
    local_queues: tuple[Obj, ...]
    check: Obj | None
    cohorts: tuple[Obj, ...] = ()
    strategies: tuple[str, ...] = ()
    last: tuple[Act, ...] = ()
    rest: tuple[Act, ...] = ()
    settings: Obj = attrs.field(factory=dict)

    def setup(self) -> tuple[Act, ...]:
        """The acts that create it."""
        planned = [
            _act(acts.CREATE, PRIORITIES, _object("WorkloadPriorityClass", name, value=value))
            for name, value in LEVELS.items()
        ]
        planned += [_act(acts.CREATE, FLAVORS, one) for one in self.flavors]
        if self.check is not None:
            planned += [_act(acts.CREATE, CHECKS, self.check), activate(CHECK)]
        planned += [_act(acts.CREATE, COHORTS, one) for one in self.cohorts]
        planned += [_act(acts.CREATE, CLUSTER_QUEUES, one) for one in self.queues]
        planned += [_act(acts.CREATE, LOCAL_QUEUES, one) for one in self.local_queues]
        return tuple(planned)

    def calm(self) -> tuple[Act, ...]:
        """The acts that restore it, except a tree; checks are no longer answered."""
        planned = [_act(acts.RESTORE, FLAVORS, one) for one in self.flavors]
        if self.check is not None:
            planned += [_act(acts.RESTORE, CHECKS, self.check), activate(CHECK, "calm")]
        planned += self.last
        for queue in self.queues:
            spec = {"fairSharing": None, **queue["spec"], "admissionChecksStrategy": None}
            planned.append(_act(acts.RESTORE, CLUSTER_QUEUES, {**queue, "spec": spec}))
        planned += [_act(acts.RESTORE, LOCAL_QUEUES, one) for one in self.local_queues]
        return tuple(planned)


def _object(kind: str, name: str, namespace: str = "", **parts: Any) -> Obj:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": API, "kind": kind, "metadata": meta, **parts}


def _act(verb: str, resource: str, obj: Obj) -> Act:
    meta = obj["metadata"]
    label = f"{resource.partition('.')[0]}/{meta['name']}/{verb}"
    return Act(0.0, label, verb, resource, meta.get("namespace", ""), meta["name"], obj)


def activate(check: str, when: str = "setup", *, at: float = 0.0, active: bool = True) -> Act:
    """Sets whether a check is active."""
    condition = {**ACTIVE, "status": "True" if active else "False"}
    label = f"admissionchecks/{check}/{when}-{'active' if active else 'inactive'}"
    body = {"conditions": [condition]}
    return Act(at, label, acts.PATCH_STATUS, CHECKS, "", check, body)


def draw_cluster(
    draws: LabelledDraws, *, crowded: bool = False, checked: float = CHECKED
) -> InitialCluster:
    """Draws 1 to 4 ClusterQueues with their objects, in a quarter of the cases below trees of
    Cohorts.

    Args:
        draws: decisions.
        crowded: whether quota is scarce and preemption by priority is on.
        checked: the probability that an admission check is required.
    """
    treed = draws.chance("tree", TREES)
    count = draws.integer("queues", 2, 4) if treed else draws.integer("queues", 1, 3)
    names = POOLS[: draws.integer("flavors", 1, len(POOLS))]
    cohort = "cohort" if count > 1 and draws.chance("cohort", 0.7) else ""
    fair = (treed or bool(cohort)) and draws.chance("fair", 0.5 if treed else 0.1)
    cohorts = draw_trees(draws, names, fair=fair) if treed else ()
    last = draw_trees(draws, names, fair=fair, when="last") if treed else ()
    strategies = draws.choice("strategies", STRATEGIES) if fair else ()
    flavors = tuple(_flavor(draws, name) for name in names)
    check = None
    if not crowded and draws.chance("check", checked):
        controller = {"controllerName": "storm.example/approval", "retryDelayMinutes": 1}
        check = _object("AdmissionCheck", CHECK, spec=controller)
    queues = []
    for number in range(1, count + 1):
        label = f"queue-{number}"
        required = check is not None and (number == 1 or draws.chance(f"{label}/check", 0.3))
        if treed:
            cohort = draws.choice(f"{label}/cohort", ("cohort-1", *map(_name, cohorts)))
        nominal = SCARCE if treed else PLENTY
        queue = _queue(draws, label, names, cohort, required=required, nominal=nominal)
        if fair:
            queue["spec"] |= weighed(draws, label)
        queues.append(_pressed(draws, label, queue) if crowded else queue)
    local = [
        _local(f"{letter}-{number}", number)
        for number in range(1, count + 1)
        for letter in ("team", "side")
        if letter == "team" or draws.chance(f"side-{number}", 0.3)
    ]
    named = tuple(one["spec"]["cohortName"] for one in queues) if treed else ()
    return InitialCluster(
        flavors,
        tuple(queues),
        tuple(local),
        check,
        cohorts,
        strategies,
        last_acts(draws, cohorts, last) if treed else (),
        pool_acts(last, named, names) if treed and draws.chance("pool", POOLED) else (),
        {"fairSharing": {"enable": True, "preemptionStrategies": list(strategies)}} if fair else {},
    )


def _flavor(draws: LabelledDraws, name: str) -> Obj:
    labels = {POOL: name} if draws.chance(f"flavor/{name}/labels", 0.5) else {}
    return _object("ResourceFlavor", name, spec={"nodeLabels": labels})


def _local(name: str, number: int) -> Obj:
    spec = {"clusterQueue": f"queue-{number}", "stopPolicy": "None"}
    return _object("LocalQueue", name, NAMESPACE, spec=spec)


def _queue(
    draws: LabelledDraws,
    name: str,
    flavors: tuple[str, ...],
    cohort: str,
    *,
    required: bool,
    nominal: tuple[int, int],
) -> Obj:
    used = flavors if draws.chance(f"{name}/all-flavors", 0.7) else flavors[:1]
    spec: Obj = {
        "namespaceSelector": {},
        "stopPolicy": "None",
        "queueingStrategy": draws.choice(f"{name}/strategy", ("BestEffortFIFO", "StrictFIFO")),
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [
                    {
                        "name": flavor,
                        "resources": [_quota(draws, f"{name}/{flavor}", cohort, nominal)],
                    }
                    for flavor in used
                ],
            }
        ],
        "preemption": _preemption(draws, name, cohort),
        "flavorFungibility": {
            "whenCanBorrow": draws.choice(f"{name}/borrow", ("MayStopSearch", "TryNextFlavor")),
            "whenCanPreempt": draws.choice(f"{name}/preempt", ("MayStopSearch", "TryNextFlavor")),
        },
    }
    if cohort:
        spec["cohortName"] = cohort
    if required:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
    return _object("ClusterQueue", name, spec=spec)


def _pressed(draws: LabelledDraws, name: str, queue: Obj) -> Obj:
    """The same queue with quota for two or three jobs, and with preemption."""
    (group,) = queue["spec"]["resourceGroups"]
    (first, *_) = group["flavors"]
    quota = {"name": "cpu", "nominalQuota": str(draws.integer(f"{name}/pressed", 2, 3))}
    spec = {
        **queue["spec"],
        "resourceGroups": [{**group, "flavors": [{**first, "resources": [quota]}]}],
        "preemption": {**queue["spec"]["preemption"], "withinClusterQueue": "LowerPriority"},
    }
    return {**queue, "spec": spec}


def _quota(draws: LabelledDraws, label: str, cohort: str, bounds: tuple[int, int]) -> Obj:
    nominal = draws.integer(f"{label}/nominal", *bounds)
    quota: Obj = {"name": "cpu", "nominalQuota": str(nominal)}
    if cohort and draws.chance(f"{label}/borrowing", 0.3):
        quota["borrowingLimit"] = str(draws.integer(f"{label}/borrowing-limit", 0, 3))
    if cohort and draws.chance(f"{label}/lending", 0.3):
        quota["lendingLimit"] = str(draws.integer(f"{label}/lending-limit", 0, nominal))
    return quota


def _preemption(draws: LabelledDraws, name: str, cohort: str) -> Obj:
    chosen = draws.choice(f"{name}/reclaim", RECLAIM_WITHIN_COHORT) if cohort else "Never"
    preemption: Obj = {
        "withinClusterQueue": draws.choice(f"{name}/within", WITHIN_CLUSTER_QUEUE),
        "reclaimWithinCohort": chosen,
    }
    if chosen != "Never" and draws.chance(f"{name}/borrow-within", 0.3):
        preemption["borrowWithinCohort"] = {"policy": "LowerPriority"}
    return preemption
