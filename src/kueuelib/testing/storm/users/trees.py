"""Trees of Cohorts that a scenario starts with."""

from __future__ import annotations

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.users import acts
from kueuelib.testing.storm.users.acts import Act, Draws

COHORTS = "cohorts.kueue.x-k8s.io"
API = "kueue.x-k8s.io/v1beta2"
DEPTH = 3
"""Cohorts on the longest way from a ClusterQueue to the top."""
WEIGHTS = ("0", "0.3", "1", "2")
OPTIONAL = ("parentName", "resourceGroups", "fairSharing")
"""The parts of the spec of a Cohort: what is absent at first is absent again in the calm."""


def draw_trees(draws: Draws, flavors: tuple[str, ...], *, fair: bool) -> tuple[Obj, ...]:
    """Draws 2 to 5 Cohorts, most of them in one tree; the top may have no object.

    Args:
        draws: decisions.
        flavors: of which Cohorts may own quota.
        fair: whether Cohorts have weights.

    Returns:
        raw Cohorts.
    """
    found: list[Obj] = []
    depths = {"cohort-1": 1}
    if not draws.chance("cohort-1/implicit", 0.2):
        found.append(_cohort(draws, "cohort-1", "", flavors, fair=fair))
    for number in range(2, draws.integer("cohorts", 2, 5) + 1):
        name, parent = f"cohort-{number}", ""
        if not draws.chance(f"{name}/top", 0.1):
            above = tuple(one for one, depth in depths.items() if depth < DEPTH)
            parent = draws.choice(f"{name}/parent", above)
        depths[name] = depths.get(parent, 0) + 1
        found.append(_cohort(draws, name, parent, flavors, fair=fair))
    return tuple(found)


def _cohort(draws: Draws, name: str, parent: str, flavors: tuple[str, ...], *, fair: bool) -> Obj:
    spec: Obj = {"parentName": parent} if parent else {}
    if draws.chance(f"{name}/quota", 0.6):
        used = flavors if draws.chance(f"{name}/all-flavors", 0.7) else flavors[:1]
        rows = [
            {"name": flavor, "resources": [_quota(draws, f"{name}/{flavor}", parent)]}
            for flavor in used
        ]
        spec["resourceGroups"] = [{"coveredResources": ["cpu"], "flavors": rows}]
    if fair:
        spec |= weighed(draws, name)
    return {"apiVersion": API, "kind": "Cohort", "metadata": {"name": name}, "spec": spec}


def _quota(draws: Draws, label: str, parent: str) -> Obj:
    found: Obj = {"name": "cpu", "nominalQuota": str(draws.integer(f"{label}/nominal", 0, 3))}
    for limit in ("borrowingLimit", "lendingLimit") if parent else ():
        if draws.chance(f"{label}/{limit}", 0.3):
            found[limit] = str(draws.integer(f"{label}/most-{limit}", 0, 4))
    return found


def weighed(draws: Draws, name: str) -> Obj:
    """Draws a weight of half of the nodes, as a part of their spec."""
    if draws.chance(f"{name}/weighed", 0.5):
        return {}
    return {"fairSharing": {"weight": draws.choice(f"{name}/weight", WEIGHTS)}}


def as_drawn(cohort: Obj) -> Obj:
    """A Cohort with every optional part: null removes what users have added."""
    return {**cohort, "spec": {**dict.fromkeys(OPTIONAL), **cohort["spec"]}}


def draw_ends(draws: Draws, cohorts: tuple[Obj, ...]) -> tuple[Act, ...]:
    """Draws what users do at last: they delete a Cohort, move one, or nothing.

    The tree of the calm is then another one than at the start, and may have a cycle that stays.
    """
    if not cohorts or not draws.chance("ends", 0.5):
        return ()
    names = [str(one["metadata"]["name"]) for one in cohorts]
    where = (COHORTS, "", draws.choice("ends/cohort", names))
    if draws.chance("ends/deleted", 0.5):
        return (Act(0.0, "cohorts/at-last/delete", acts.DELETE, *where),)
    body = {"spec": {"parentName": draws.choice("ends/parent", names)}}
    return (Act(0.0, "cohorts/at-last/move", acts.PATCH, *where, body),)
