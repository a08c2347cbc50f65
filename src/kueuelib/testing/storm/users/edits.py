"""Edits of the templates of Jobs by the users that submitted them, and stops between them."""

from __future__ import annotations

from kueuelib.testing.storm.history import Obj
from kueuelib.testing.storm.users import acts
from kueuelib.testing.storm.users.acts import Act, Draws
from kueuelib.testing.storm.users.queues import NAMESPACE, POOL, POOLS
from kueuelib.testing.storm.users.work import JOB, JOBS, Work

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


def draw_edits(draws: Draws, works: list[Work], seconds: float) -> list[Act]:
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


def _stop(draws: Draws, label: str, work: Work) -> list[Act]:
    """Deactivates the Workload of a Job for a while."""
    at = work.at + draws.uniform(f"{label}/after", 1.0, 6 * SOON)
    back = at + draws.uniform(f"{label}/later", 1.0, 2 * SOON)
    where = (acts.PATCH_WORKLOAD, JOBS, NAMESPACE, work.first)
    return [
        Act(at, f"{label}/off", *where, {"spec": {"active": False}}),
        Act(back, f"{label}/on", *where, {"spec": {"active": True}}),
    ]


def _edit(draws: Draws, label: str, work: Work, seconds: float) -> Act:
    near = draws.chance(f"{label}/near", 0.5)
    at = work.at + draws.uniform(f"{label}/after", 0.0, SOON if near else seconds)
    body = {"spec": {"template": _change(draws, label)}}
    return Act(at, label, acts.PATCH, JOBS, NAMESPACE, work.first, body)


def _change(draws: Draws, label: str) -> Obj:
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
