"""Waiting pods that no longer have the shape that their Workload counts.

A waiting pod may get further node selectors, affinity and tolerations. Like the edit of any waiting
job, this changes its Workload, or cancels its reservation. In a group, the pod then belongs to the
pod set of its new shape. Once a pod of the group has started, an edited one starts in the pod set
that counted it before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj, annotations_of
from kueuelib.api.names import ROLE_HASH
from kueuelib.jobs.contract.generic_job import PodSet
from kueuelib.jobs.pods import marks
from kueuelib.jobs.pods.reading import Stage
from kueuelib.jobs.pods.role_hash import likeness, role_hash, shape_of
from kueuelib.jobs.pods.roles import Roles
from kueuelib.jobs.pods.roster import Member

_WAITED = (Stage.GATED, Stage.DROPPED)


def same_shapes(pod_sets: Sequence[PodSet], workload: Mapping[str, Any]) -> bool:
    """Whether the templates of a raw Workload have the shapes of these pod sets, by their names."""
    stored = {each["name"]: each["template"]["spec"] for each in workload["spec"]["podSets"]}
    return all(
        entry.name in stored and role_hash(entry.template["spec"]) == role_hash(stored[entry.name])
        for entry in pod_sets
    )


def are_edited(members: Sequence[Member], roles: Roles) -> bool:
    """Whether waiting pods have shapes that the Workload does not know."""
    return any(
        each.stage is Stage.GATED and roles.by_shape(each.pod) not in roles.counts
        for each in members
    )


def placed(members: Sequence[Member], roles: Roles) -> tuple[Member, ...]:
    """The members; an edited one gets a role of the Workload in which a place is free.

    The Workload names an edited pod as its owner, or has a pod set of the shape that the pod was
    created with. This pod set counts the pod. Younger pods of the edited shape get the same role,
    even if the edited pod was deleted while it waited.
    """
    left, followed = Counter(roles.counts), dict[str, str]()
    left.subtract(each.role for each in members if each.fills and each.known)

    def place(member: Member) -> Member:
        if member.stage not in _WAITED or not member.role or member.role in roles.counts:
            return member
        shape = likeness(member.pod["spec"])
        created_as = annotations_of(member.pod).get(ROLE_HASH, "")
        options = (followed.get(shape), created_as, *(roles.counts if member.known else ()))
        role = next((role for role in options if role in roles.counts and left[role] > 0), None)
        if role is None:
            return member
        left[role] -= member.fills
        followed[shape] = role
        return attrs.evolve(member, role=role)

    return tuple(map(place, members))


def named_as_edited(member: Member, roles: Roles) -> Obj:
    """The waiting pod with the name of its shape, if it was edited since that was written.

    Once the pod has started, only this name identifies the shape that the user asked for.
    """
    pod, written = member.pod, annotations_of(member.pod).get(ROLE_HASH)
    if roles.declared or (member.role == written and member.role == roles.by_shape(pod)):
        return pod
    shape = shape_of(pod)
    return marks.named(pod, shape if shape in roles.counts else likeness(pod["spec"]))
