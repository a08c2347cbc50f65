"""Whether waiting pods ask for something else than their Workload says.

A waiting pod may get further node selectors, affinity and tolerations. Like the edit of any waiting
job, this changes its Workload, or takes a reservation back. The shape decides, so neither labels
nor what pods run count, and a Workload of an earlier version or of another manager stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.jobs.contract.generic_job import PodSet
from kueuelib.jobs.pods.reading import Stage
from kueuelib.jobs.pods.role_hash import role_hash
from kueuelib.jobs.pods.roster import Member


def same_shapes(pod_sets: Sequence[PodSet], workload: Mapping[str, Any]) -> bool:
    """Whether the templates of a raw Workload have the shapes of these pod sets, by their names."""
    stored = {each["name"]: each["template"]["spec"] for each in workload["spec"]["podSets"]}
    return all(
        entry.name in stored and role_hash(entry.template["spec"]) == role_hash(stored[entry.name])
        for entry in pod_sets
    )


def are_edited(
    pod_sets: Sequence[PodSet], members: Sequence[Member], workload: Mapping[str, Any]
) -> bool:
    """Whether waiting pods of a group were edited; of other pods, not the whole spec is known.

    Args:
        pod_sets: made from the pods.
        members: the pods.
        workload: the raw Workload of the group.
    """
    waiting = {each.role for each in members if each.stage is Stage.GATED}
    return not same_shapes([each for each in pod_sets if each.name in waiting], workload)
