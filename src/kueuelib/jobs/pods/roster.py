"""The roles of a group, and which of its pods count or are deleted (KEP-976).

For each role with `count` pods:

- pods that wait, run or have succeeded fill the places; pods beyond the count are deleted: first
  those that we released already, then waiting ones, then the youngest;
- failed pods stay known until they are replaced; the one that failed first is released first;
- pods that are being deleted neither fill a place nor count as gone.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.kinds import KUEUE
from kueuelib.api.meta import Obj, annotations_of, labels_of
from kueuelib.api.names import GROUP_SETS_DIGEST, POD_SET_LABEL, ROLE_HASH
from kueuelib.jobs.contract.generic_job import PodSet
from kueuelib.jobs.pods import marks
from kueuelib.jobs.pods.declaration import GroupDeclaration, InvalidDeclaration, parse
from kueuelib.jobs.pods.parents import is_of_leader_worker_set
from kueuelib.jobs.pods.reading import (
    PodStage,
    created_at,
    declaration_of,
    failed_at,
    has_finalizer,
    is_gated,
    is_ready,
    role_label_of,
    stage_of,
)
from kueuelib.jobs.pods.shapes import likeness, role_hash, shape_of

# ---- the roles of a group, and the role of each pod (KEP-976) ------------------------------------
# Without a declaration, the shape of a pod is its role, and annotations give the number of pods.
# With one, the declaration names the roles. Once the Workload exists, it is authoritative, because
# the declaring pod may be gone.

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
    return str(declaration) if isinstance(declaration, InvalidDeclaration) else ""


@functools.lru_cache(maxsize=512)
def _parse(text: str) -> GroupDeclaration | InvalidDeclaration:
    """Parses and caches a declaration, which is read repeatedly while its group lives."""
    try:
        return parse(text)
    except InvalidDeclaration as error:
        return error


# --------------------------------------------------------------------------------------------------

EXCESS = "excess"
UNKNOWN_ROLE = "unknown_role"
SHAPE_MISMATCH = "shape_mismatch"
CONFLICTING_SETS = "conflicting_sets"

_FILLS = (PodStage.GATED, PodStage.STARTED, PodStage.SUCCEEDED)
_ALIVE = (PodStage.GATED, PodStage.STARTED)


@attrs.frozen(eq=False)
class GroupPod:
    """One pod of a group.

    Attributes:
        pod: the raw pod.
        role: its pod set; empty if that is not known.
        stage: where it is in its life.
        known: whether the Workload counts it already.
        uid: of the pod.
        name: of the pod.
    """

    pod: Obj
    role: str
    stage: PodStage
    known: bool = False
    uid: str = attrs.field(init=False)
    name: str = attrs.field(init=False)

    @uid.default
    def _uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    @name.default
    def _name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def fills(self) -> bool:
        """Whether it fills a place of its role."""
        return self.stage in _FILLS

    @property
    def is_alive(self) -> bool:
        """Whether it waits or may run, and is not being deleted."""
        return self.stage in _ALIVE

    @property
    def is_ready(self) -> bool:
        """Whether it is ready or has succeeded."""
        return self.stage is PodStage.SUCCEEDED or (
            self.stage is PodStage.STARTED and is_ready(self.pod)
        )


@attrs.frozen(eq=False)
class PodToDelete:
    """A pod to be deleted.

    Attributes:
        member: the pod.
        reason: a word for metrics.
        message: a sentence for people.
    """

    member: GroupPod
    reason: str
    message: str


@attrs.frozen(eq=False)
class Roster:
    """The pods of a group, sorted by their fate.

    Attributes:
        kept: those that count, oldest first.
        released: those that are over; the group no longer waits for them.
        rejected: those to be deleted.
    """

    kept: tuple[GroupPod, ...] = ()
    released: tuple[GroupPod, ...] = ()
    rejected: tuple[PodToDelete, ...] = ()

    def of(self, role: str, *stages: PodStage) -> tuple[GroupPod, ...]:
        """The counted pods of a role in one of the stages."""
        return tuple(each for each in self.kept if each.role == role and each.stage in stages)

    def any(self, *stages: PodStage) -> bool:
        """Whether a counted pod is in one of the stages."""
        return any(each.stage in stages for each in self.kept)

    def missing(self, counts: Mapping[str, int]) -> int:
        """How many places are empty."""
        return sum(max(0, count - len(self.of(role, *_FILLS))) for role, count in counts.items())


def members_of(
    pods: Iterable[Obj], role_of: Callable[[Obj], str], owners: Container[str] = ()
) -> tuple[GroupPod, ...]:
    """Raw pods as members, oldest first.

    Args:
        pods: the pods.
        role_of: returns the role of a pod.
        owners: the UIDs of pods that the Workload counts already.
    """
    members = (
        GroupPod(pod, role_of(pod), stage_of(pod), pod["metadata"]["uid"] in owners) for pod in pods
    )
    return tuple(sorted(members, key=lambda each: (created_at(each.pod), each.name)))


def sort_out(
    members: Sequence[GroupPod], counts: Mapping[str, int], rejected: Sequence[PodToDelete] = ()
) -> Roster:
    """Decide which pods count and which are deleted.

    Args:
        members: all pods of the group.
        counts: how many pods each role has.
        rejected: those to be deleted for other reasons.
    """
    refused = list(rejected)
    out = {each.member.uid for each in refused}
    gone: list[GroupPod] = []
    left = [each for each in members if each.uid not in out]
    for role, count in counts.items():
        filling = [each for each in left if each.role == role and each.fills]
        for each in surplus_of(filling, count):
            if each.is_alive:
                text = f"The group has {count} pods of the role {role}; this one is one too many"
                refused.append(PodToDelete(each, EXCESS, text))
        failed = [each for each in left if each.role == role and each.stage is PodStage.FAILED]
        surplus = len(failed) + min(len(filling), count) - count
        if surplus > 0:
            gone += sorted(failed, key=_patience)[-min(surplus, len(failed)) :]
    out |= {each.member.uid for each in refused} | {each.uid for each in gone}
    known = [each for each in left if each.uid not in out and each.stage is not PodStage.DROPPED]
    gone += [each for each in known if each.role not in counts and each.stage.is_over]
    out |= {each.uid for each in gone}
    kept = tuple(each for each in known if each.uid not in out)
    return Roster(kept, tuple(gone), tuple(refused))


def surplus_of(members: Sequence[GroupPod], count: int) -> Sequence[GroupPod]:
    """The members of a role beyond the count, those that are deleted first last."""
    return sorted(members, key=_worth)[count:] if len(members) > count else ()


def _worth(member: GroupPod) -> tuple[bool, bool, bool, float, bool, str]:
    """The sort key of members of a role: the last ones are deleted first."""
    return (
        member.stage is not PodStage.SUCCEEDED,
        not has_finalizer(member.pod),
        member.stage is PodStage.GATED,
        created_at(member.pod),
        not member.known,
        member.name,
    )


def _patience(member: GroupPod) -> tuple[bool, float, float, str]:
    """The sort key of failed members: those that failed first are last, and replaced first."""
    return (
        not has_finalizer(member.pod),
        -failed_at(member.pod),
        created_at(member.pod),
        member.name,
    )


# ---- waiting pods that no longer have the shape that their Workload counts -----------------------
# A waiting pod may get further node selectors, affinity and tolerations. Like the edit of any
# waiting job, this changes its Workload, or cancels its reservation. In a group, the pod then
# belongs to the pod set of its new shape. Once a pod of the group has started, an edited one starts
# in the pod set that counted it before.

_WAITED = (PodStage.GATED, PodStage.DROPPED)


def same_shapes(pod_sets: Sequence[PodSet], workload: Mapping[str, Any]) -> bool:
    """Whether the templates of a raw Workload have the shapes of these pod sets, by their names."""
    stored = {each["name"]: each["template"]["spec"] for each in workload["spec"]["podSets"]}
    return all(
        entry.name in stored and role_hash(entry.template["spec"]) == role_hash(stored[entry.name])
        for entry in pod_sets
    )


def are_edited(members: Sequence[GroupPod], roles: Roles) -> bool:
    """Whether waiting pods have shapes that the Workload does not know."""
    return any(
        each.stage is PodStage.GATED and roles.by_shape(each.pod) not in roles.counts
        for each in members
    )


def placed(members: Sequence[GroupPod], roles: Roles) -> tuple[GroupPod, ...]:
    """The members; an edited one gets a role of the Workload in which a place is free.

    The Workload names an edited pod as its owner, or has a pod set of the shape that the pod was
    created with. This pod set counts the pod. Younger pods of the edited shape get the same role,
    even if the edited pod was deleted while it waited.
    """
    left, followed = Counter(roles.counts), dict[str, str]()
    left.subtract(each.role for each in members if each.fills and each.known)

    def place(member: GroupPod) -> GroupPod:
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


def named_as_edited(member: GroupPod, roles: Roles) -> Obj:
    """The waiting pod with the name of its shape, if it was edited since that was written.

    Once the pod has started, only this name identifies the shape that the user asked for.
    """
    pod, written = member.pod, annotations_of(member.pod).get(ROLE_HASH)
    if roles.declared or (member.role == written and member.role == roles.by_shape(pod)):
        return pod
    shape = shape_of(pod)
    return marks.named(pod, shape if shape in roles.counts else likeness(pod["spec"]))
