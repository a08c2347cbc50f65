"""The roles of a group, and the role of each pod (KEP-976).

Without a declaration, the shape of a pod is its role, and annotations give the number of pods. With
one, the declaration names the roles. Once the Workload exists, it is authoritative, because the
declaring pod may be gone.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.kinds import KUEUE
from kueuelib.api.meta import Obj, annotations_of, labels_of
from kueuelib.api.names import GROUP_SETS_DIGEST, POD_SET_LABEL, ROLE_HASH
from kueuelib.jobs.pods.declaration import GroupDeclaration, Unreadable, parse
from kueuelib.jobs.pods.parents import is_of_leader_worker_set
from kueuelib.jobs.pods.reading import declaration_of, is_gated, role_label_of
from kueuelib.jobs.pods.role_hash import likeness, role_hash, shape_of

INITIAL_ROLES = f"{KUEUE}/pod-group-initial-roles"
"""Names, in a Workload, the declared roles that exist from the start; the others come later."""


@attrs.frozen
class Roles:
    """The roles of a group that has a Workload.

    Attributes:
        counts: how many pods each role has, in the order of the pod sets.
        digest: of the declaration; empty for a group without one.
        initial: the roles whose pods exist from the start.
        pod_sets: the raw pod sets.
        pods: the raw pods of the group.
    """

    counts: Mapping[str, int]
    digest: str
    initial: frozenset[str]
    pod_sets: Sequence[Obj] = attrs.field(default=(), repr=False)
    pods: Sequence[Obj] = attrs.field(default=(), repr=False)

    @property
    def declared(self) -> bool:
        """Whether a declaration names the roles."""
        return bool(self.digest)

    @property
    def total(self) -> int:
        """The total number of pods."""
        return sum(self.counts.values())

    def by_shape(self, pod: Mapping[str, Any]) -> str:
        """The role of a pod in a group without a declaration: the pod set that has its shape.

        A pod of another shape has a role that the Workload does not know; empty for a pod with a
        declared role.
        """
        shape = role_by_shape(pod)
        if not shape or shape in self.counts:
            return shape
        like = likeness(pod["spec"]) if is_gated(pod) else shape
        return self._others.get(shape) or self._others.get(like) or shape

    @functools.cached_property
    def _others(self) -> Mapping[str, str]:
        """The roles whose names are not their shapes, by shape.

        Other managers may name a pod set in another way. A pod that was edited when it was about to
        start is in the pod set in which it was admitted, and so is a replacement of the same shape.
        """
        roles = {
            shape_of(pod): labels_of(pod).get(POD_SET_LABEL, "")
            for pod in self.pods
            if not is_gated(pod)
        }
        for name in (likeness, role_hash):
            roles |= {name(each["template"]["spec"]): each["name"] for each in self.pod_sets}
        return {shape: role for shape, role in roles.items() if role in self.counts}


def roles_of(workload: Mapping[str, Any], pods: Sequence[Obj] = ()) -> Roles:
    """The roles in the raw Workload of a group.

    Args:
        workload: the raw Workload.
        pods: the raw pods of the group.
    """
    pod_sets = workload["spec"]["podSets"]
    counts = {entry["name"]: int(entry.get("count", 1)) for entry in pod_sets}
    notes = annotations_of(workload)
    digest = notes.get(GROUP_SETS_DIGEST, "")
    if not digest:
        return Roles(counts, "", frozenset(counts), pod_sets, pods)
    named = frozenset(notes.get(INITIAL_ROLES, "").split(",")) & counts.keys()
    return Roles(counts, digest, named or frozenset(list(counts)[:1]))


def role_by_shape(pod: Mapping[str, Any]) -> str:
    """The role in a group without a declaration; empty for a pod with a declared role."""
    if declaration_of(pod) is not None or role_label_of(pod):
        return ""
    return shape_of(pod)


def role_by_name(pod: Mapping[str, Any]) -> str:
    """The role in a group with a declaration; empty if the pod names none."""
    label = role_label_of(pod)
    if label:
        return label
    if is_of_leader_worker_set(pod):
        return annotations_of(pod).get(ROLE_HASH, "")
    declared = declared_by(pod)
    return "" if declared is None else declared.role_of("")


def declared_by(pod: Mapping[str, Any]) -> GroupDeclaration | None:
    """The declaration of a pod; None if there is none, or it cannot be read."""
    text = declaration_of(pod)
    if text is None:
        return None
    declaration = _parse(text)
    return declaration if isinstance(declaration, GroupDeclaration) else None


def problem_of(pod: Mapping[str, Any]) -> str:
    """Why a declaration cannot be read; empty if it can, or if there is none."""
    text = declaration_of(pod)
    declaration = None if text is None else _parse(text)
    return str(declaration) if isinstance(declaration, Unreadable) else ""


@functools.lru_cache(maxsize=512)
def _parse(text: str) -> GroupDeclaration | Unreadable:
    """Parses and caches a declaration, which is read repeatedly while its group lives."""
    try:
        return parse(text)
    except Unreadable as error:
        return error
