"""Random scenarios on trees of cohorts, for the laws of quota, preemption and fair sharing."""

from __future__ import annotations

from random import Random
from typing import Any

from kueuelib.api.preemption_policies import ANY, RECLAIM_WITHIN_COHORT, WITHIN_CLUSTER_QUEUE

STRATEGIES = (
    ["LessThanOrEqualToFinalShare"],
    ["LessThanInitialShare"],
    ["LessThanOrEqualToFinalShare", "LessThanInitialShare"],
)
WEIGHTS = (1, 1, 1, 2, 3, "0.5", "0.333", 0)


def tree_world(
    random: Random, *, fair: list[str] | None, depth: int = 4, cycles: int = 1
) -> dict[str, Any]:
    """A scenario.

    Args:
        random: where chance comes from.
        fair: the strategies of fair sharing, None without it.
        depth: how many cohorts may be above each other.
        cycles: how many cycles it lasts.
    """
    parents = _parents(random, depth)
    groups = random.choice([[["cpu"]], [["cpu", "memory"]], [["cpu"], ["memory"]]])
    flavors = [[f"{name}{index}" for name in "fg"[: random.randint(1, 2)]] for index in range(2)]
    cohorts = []
    for name, parent in parents.items():
        if random.random() < 0.2 and parent is None:
            continue
        cohort: dict[str, Any] = {"name": name}
        if parent is not None:
            cohort["parent"] = parent
        if random.random() < 0.6:
            limits = parent is not None
            cohort["groups"] = _groups(random, groups, flavors, top=8, limits=limits)
        if fair is not None and random.random() < 0.6:
            cohort["fairSharing"] = {"weight": random.choice(WEIGHTS)}
        cohorts.append(cohort)
    queues = {}
    for name in "abcdefg"[: random.randint(2, 7)]:
        queues[name] = _queue(random, groups, flavors, fair=fair is not None)
        if random.random() < 0.95:
            queues[name]["cohort"] = random.choice(list(parents))
    scenario: dict[str, Any] = {"cycles": cycles, "cqs": queues, "cohorts": cohorts}
    if fair is not None:
        scenario["fairSharing"] = {"enable": True, "preemptionStrategies": fair}
    scenario["admitted"] = [
        _workload(random, f"r{index}", queues, admitted=True)
        for index in range(random.randint(0, 12))
    ]
    scenario["pending"] = [
        _workload(random, f"p{index}", queues, admitted=False)
        for index in range(random.randint(1, 6))
    ]
    return scenario


def _parents(random: Random, depth: int) -> dict[str, str | None]:
    """The cohorts with what is above each, at most `depth` above each other."""
    parents: dict[str, str | None] = {"k0": None}
    levels = {"k0": 1}
    for index in range(1, random.randint(1, 8)):
        name = f"k{index}"
        above = random.choice([one for one, level in levels.items() if level < depth] or ["k0"])
        parents[name] = None if random.random() < 0.1 else above
        levels[name] = 1 if parents[name] is None else levels[above] + 1
    return parents


def _groups(
    random: Random, groups: list[list[str]], flavors: list[list[str]], *, top: int, limits: bool
) -> list[dict[str, Any]]:
    return [
        {
            flavor: {resource: _quota(random, top, limits=limits) for resource in resources}
            for flavor in flavors[index]
        }
        for index, resources in enumerate(groups)
    ]


def _quota(random: Random, top: int, *, limits: bool) -> str:
    nominal = random.choice([0, random.randint(0, top), random.randint(0, top)])
    if not limits:
        return str(nominal)
    borrowing = str(random.randint(0, max(1, nominal))) if random.random() < 0.25 else "-"
    lending = str(random.randint(0, max(1, nominal))) if random.random() < 0.3 else "-"
    return f"{nominal}/{borrowing}/{lending}"


def _queue(
    random: Random, groups: list[list[str]], flavors: list[list[str]], *, fair: bool
) -> dict[str, Any]:
    preemption: dict[str, Any] = {
        "within": random.choice(WITHIN_CLUSTER_QUEUE),
        "reclaim": random.choice((*RECLAIM_WITHIN_COHORT, ANY)),
    }
    if random.random() < 0.25:
        preemption["bwc"] = {"max": random.choice([None, 0, 1])}
    queue: dict[str, Any] = {
        "strategy": random.choice(["BestEffortFIFO", "StrictFIFO"]),
        "preemption": preemption,
        "groups": _groups(random, groups, flavors, top=6, limits=False),
    }
    for quotas in queue["groups"]:
        for resources in quotas.values():
            for resource in resources:
                resources[resource] = _queue_quota(random)
    if random.random() < 0.5:
        next_flavor = ["MayStopSearch", "TryNextFlavor"]
        queue["fung"] = {key: random.choice(next_flavor) for key in ("borrow", "preempt")}
        if random.random() < 0.3:
            queue["fung"]["preference"] = "PreemptionOverBorrowing"
    if fair and random.random() < 0.6:
        queue["fairSharing"] = {"weight": random.choice(WEIGHTS)}
    if random.random() < 0.04:
        queue["active"] = False
    return queue


def _queue_quota(random: Random) -> str:
    """A ClusterQueue lends at most what it owns."""
    nominal = random.choice([0, random.randint(0, 6), random.randint(0, 6)])
    borrowing = str(random.randint(0, 6)) if random.random() < 0.25 else "-"
    lending = str(random.randint(0, nominal)) if random.random() < 0.25 else "-"
    return f"{nominal}/{borrowing}/{lending}"


def _workload(
    random: Random, name: str, queues: dict[str, Any], *, admitted: bool
) -> dict[str, Any]:
    cq = random.choice(list(queues))
    pod_sets = []
    for index in range(random.choice([1, 1, 1, 2])):
        req, flv = {}, {}
        for quotas in queues[cq]["groups"]:
            flavor = random.choice(list(quotas))
            for resource in quotas[flavor]:
                if random.random() < 0.8:
                    req[resource] = random.randint(0, 4)
                    flv[resource] = flavor
        pod_set: dict[str, Any] = {"name": f"ps{index}", "req": req}
        if admitted:
            pod_set["flv"] = flv
        elif random.random() < 0.2:
            pod_set["count"] = random.randint(2, 4)
            pod_set["min"] = 1
        pod_sets.append(pod_set)
    workload: dict[str, Any] = {
        "name": name,
        "cq": cq,
        "prio": random.randint(-2, 2),
        "created": random.randint(0, 9) * 10,
        "podsets": pod_sets,
    }
    if admitted:
        workload["t"] = random.randint(0, 9) * 10
        if random.random() < 0.1:
            workload["evicted"] = True
    return workload
