"""Whether waiting pods ask for something else than their Workload says.

A waiting pod may get further node selectors, affinity and tolerations. Like the edit of any waiting
job, this changes its Workload, or takes a reservation back. If pods of one role then differ, they
get the names of their shapes first, which are stored on the pods, so that each one is started as
what it was counted. The shape decides, so neither labels nor what pods run count, and a Workload of
an earlier version or of another manager stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.api.kinds import PODS
from kueuelib.jobs.contract.commands import Change
from kueuelib.jobs.contract.generic_job import PodSet
from kueuelib.jobs.pods import marks
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


def are_edited(members: Sequence[Member], workload: Mapping[str, Any]) -> bool:
    """Whether waiting pods of a group were edited; of other pods, not the whole spec is known.

    Args:
        members: the pods.
        workload: the raw Workload of the group.
    """
    stored = {each["name"]: each["template"]["spec"] for each in workload["spec"]["podSets"]}
    shapes = {name: role_hash(spec) for name, spec in stored.items()}
    return any(_shape(each) != shapes.get(each.role) for each in members if _waits(each))


def renamed(members: Sequence[Member]) -> tuple[Change, ...]:
    """Gives waiting pods of a role that no longer have one shape the names of their shapes.

    A role whose pods were all edited alike keeps its name.

    Args:
        members: the pods of a group without quota whose roles are shapes.
    """
    shapes: dict[str, set[str]] = {}
    for each in filter(_waits, members):
        shapes.setdefault(each.role, set()).add(_shape(each))
    return tuple(
        Change(PODS, each.pod, marks.with_shape(each.pod))
        for each in filter(_waits, members)
        if len(shapes[each.role]) > 1 and _shape(each) != each.role
    )


def _waits(member: Member) -> bool:
    return member.stage is Stage.GATED and bool(member.role)


def _shape(member: Member) -> str:
    return role_hash(member.pod["spec"])
