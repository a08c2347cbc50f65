"""The first and last trees of Cohorts in a scenario."""

from __future__ import annotations

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.users import acts
from kueuelib.testing.storm.users.acts import Act, Draws

COHORTS = "cohorts.kueue.x-k8s.io"
API = "kueue.x-k8s.io/v1beta2"
DEPTH = 3
"""The maximum number of Cohorts from a ClusterQueue to the top."""
ABOVE, POOLED = "above-all", "6"
"""The last Cohort above all others, and its CPU quota per flavor."""
WEIGHTS = ("0", "0.3", "1", "2")
OPTIONAL = ("parentName", "resourceGroups", "fairSharing")
"""The parts of the spec of a Cohort."""


def draw_trees(
    draws: Draws, flavors: tuple[str, ...], *, fair: bool, when: str = "first"
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
    draws: Draws, when: str, name: str, parent: str, flavors: tuple[str, ...], *, fair: bool
) -> Obj:
    label = f"{when}/{name}"
    spec: Obj = {"parentName": parent} if parent else {}
    if draws.chance(f"{label}/quota", 0.6):
        used = flavors if draws.chance(f"{label}/all-flavors", 0.7) else flavors[:1]
        rows = [
            {"name": flavor, "resources": [_quota(draws, f"{label}/{flavor}", parent)]}
            for flavor in used
        ]
        spec["resourceGroups"] = [{"coveredResources": ["cpu"], "flavors": rows}]
    if fair:
        spec |= weighed(draws, label)
    return {**_plain(name), "spec": spec}


def _quota(draws: Draws, label: str, parent: str) -> Obj:
    quota: Obj = {"name": "cpu", "nominalQuota": str(draws.integer(f"{label}/nominal", 0, 3))}
    for limit in ("borrowingLimit", "lendingLimit") if parent else ():
        if draws.chance(f"{label}/{limit}", 0.3):
            quota[limit] = str(draws.integer(f"{label}/most-{limit}", 0, 4))
    return quota


def weighed(draws: Draws, label: str) -> Obj:
    """Draws weights for half of the nodes, as a part of their spec."""
    if draws.chance(f"{label}/weighed", 0.5):
        return {}
    return {"fairSharing": {"weight": draws.choice(f"{label}/weight", WEIGHTS)}}


def last_acts(draws: Draws, first: tuple[Obj, ...], last: tuple[Obj, ...]) -> tuple[Act, ...]:
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
        {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": POOLED}]}
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
