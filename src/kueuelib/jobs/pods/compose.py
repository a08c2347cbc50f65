"""Composes the Workload of a group from its pods, or says why it cannot (KEP-976)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence

import attrs

from kueuelib.api.kinds import PODS
from kueuelib.api.meta import Obj, annotations_of
from kueuelib.api.names import (
    COMPONENT_INDEX,
    GROUP_SETS_DIGEST,
    GROUP_TOTAL_COUNT,
    IS_GROUP_WORKLOAD,
    ROLE_HASH,
    SUSPENDING_PARENT,
)
from kueuelib.jobs.contract.generic_job import PodSet
from kueuelib.jobs.pods import marks
from kueuelib.jobs.pods.declaration import GroupDeclaration
from kueuelib.jobs.pods.parents import Parent
from kueuelib.jobs.pods.reading import (
    PodStage,
    declaration_of,
    is_fast,
    is_gated,
    is_serving,
    queue_of,
    role_label_of,
    total_count_of,
)
from kueuelib.jobs.pods.roster import (
    CONFLICTING_SETS,
    EXCESS,
    INITIAL_ROLES,
    GroupPod,
    PodToDelete,
    declared_by,
    members_of,
    problem_of,
    role_by_shape,
    surplus_of,
)

MOST_SHAPES = 8


@attrs.frozen
class CompositionProblem:
    """Why the pods do not make a Workload.

    Attributes:
        pod: the raw pod that the event is about.
        message: a sentence for people.
        waits: whether further pods may solve it, so that the report can wait.
    """

    pod: Obj
    message: str
    waits: bool = False

    @property
    def about(self) -> str:
        """The message with the name of the pod."""
        return f"Pod {self.pod['metadata']['name']}: {self.message}"


@attrs.frozen
class Composition:
    """The Workload that the pods of a group make.

    Attributes:
        pod_sets: of the Workload; empty when there is a problem.
        annotations: of the Workload.
        members: the pods that it is made from.
        rejected: pods to delete.
        problem: why there is no Workload; None when there is one.
    """

    pod_sets: tuple[PodSet, ...] = ()
    annotations: Mapping[str, str] = attrs.field(factory=dict)
    members: tuple[GroupPod, ...] = ()
    rejected: tuple[PodToDelete, ...] = ()
    problem: CompositionProblem | None = None


def compose(
    pods: Sequence[Obj], owners: Container[str] = (), parent: Parent | None = None
) -> Composition:
    """The Workload of a group's pods; failed pods and those being deleted do not count.

    Args:
        pods: the raw pods.
        owners: the UIDs of pods that a Workload of the group counts already.
        parent: defines the pods of the group; without one, their annotations do.
    """
    return composed_of(members_of(pods, role_by_shape, owners), parent)


def composed_of(
    known: Sequence[GroupPod], parent: Parent | None, before: Sequence[Obj] = ()
) -> Composition:
    """The same for members, whose roles are their shapes.

    Args:
        known: the pods of the group.
        parent: as for `compose`.
        before: the raw pod sets that the group has had so far; missing pods come back as these.
    """
    members = tuple(each for each in known if each.fills)
    if not members:
        return Composition()
    first, queue = members[0], queue_of(members[0].pod)
    for each in members[1:]:
        other = queue_of(each.pod)
        if other != queue:
            text = (
                f'The pod is queued in "{other}", but pod {first.name} of the same group in '
                f'"{queue}"'
            )
            return Composition(problem=CompositionProblem(each.pod, text))
    if parent is not None and parent.pod_sets:
        return Composition(parent.pod_sets, _annotations_by(parent), members)
    if not all(each.role for each in members):
        return _declared(members)
    return _counted(members, None if parent is None else parent.replicas, before)


def waits_for_others(pod: Obj, present: int) -> bool:
    """Whether a gated pod needs more pods in its group, as far as it alone shows.

    Args:
        pod: the raw pod.
        present: how many pods its group has.
    """
    if not is_gated(pod) or present >= (total_count_of(pod) or 0):
        return False
    is_declared = declaration_of(pod) is not None or role_label_of(pod) != ""
    return not is_declared and SUSPENDING_PARENT not in annotations_of(pod) and not is_fast(pod)


def _counted(members: Sequence[GroupPod], wanted: int | None, before: Sequence[Obj]) -> Composition:
    first, total = members[0], wanted or total_count_of(members[0].pod)
    for each in () if wanted else members:
        if total_count_of(each.pod) is None:
            text = f"The annotation {GROUP_TOTAL_COUNT} is missing or not a positive number"
            return Composition(problem=CompositionProblem(each.pod, text))
    if not wanted and (problem := _other_total(members)):
        return Composition(problem=problem)
    assert total is not None
    missing = max(0, total - len(members))
    if missing and not is_fast(first.pod):
        text = f"The group has {len(members)} of {total} pods"
        return Composition(problem=CompositionProblem(first.pod, text, waits=True))
    beyond = surplus_of(members, total)
    kept = tuple(each for each in members if each not in beyond)
    text = f"The group has {total} pods; this one is one too many"
    surplus = () if is_serving(first.pod) else beyond
    rejected = tuple(PodToDelete(each, EXCESS, text) for each in surplus if each.is_alive)
    roles: dict[str, list[GroupPod]] = {}
    for each in kept:
        roles.setdefault(each.role, []).append(each)
    if len(roles) > MOST_SHAPES:
        text = (
            f"The pods of the group have {len(roles)} different shapes, more than the "
            f"{MOST_SHAPES} that a Workload can hold; pods have one shape when their requests, "
            "ports, node selectors, affinities, tolerations, priorities, topology spread "
            "constraints, resource claims and runtime classes are equal"
        )
        return Composition(problem=CompositionProblem(first.pod, text))
    present = {role: len(peers) for role, peers in roles.items()}
    absent = (_absent(kept, missing, before) or {first.role: missing}) if missing else {}
    known = {
        entry["name"]: PodSet(
            entry["name"], 0, entry["template"], None, entry.get("topologyRequest")
        )
        for entry in before
    } | {
        role: marks.pod_set_of(role, 0, _pattern(peers), [each.pod for each in peers])
        for role, peers in roles.items()
    }
    pod_sets = tuple(
        attrs.evolve(known[role], count=present.get(role, 0) + absent.get(role, 0))
        for role in sorted({*present, *absent})
    )
    return Composition(pod_sets, {IS_GROUP_WORKLOAD: "true"}, kept, rejected)


def _other_total(members: Sequence[GroupPod]) -> CompositionProblem | None:
    """The first pod whose total count differs from that of the first pod that names one."""
    totals = ((each, total_count_of(each.pod)) for each in members)
    (first, total), *others = [pair for pair in totals if pair[1]] or [(members[0], None)]
    for each, count in others:
        if count != total:
            text = (
                f"The group has {count} pods according to this pod, but {total} according to "
                f"pod {first.name}"
            )
            return CompositionProblem(each.pod, text)
    return None


def _absent(members: Sequence[GroupPod], missing: int, before: Sequence[Obj]) -> Mapping[str, int]:
    """How many pods of each role are still to come back, in whatever order; empty if that is not
    known, because pods of other shapes or another number of them make it another group.

    A pod that was edited leaves the role of the shape that it was created with.
    """
    counts = Counter({entry["name"]: int(entry.get("count", 1)) for entry in before})
    known = frozenset(counts)
    for each in members:
        created_as = annotations_of(each.pod).get(ROLE_HASH)
        if each.role not in known and created_as in known:
            counts.update({each.role: 1, created_as: -1})
    present = Counter(each.role for each in members)
    if not present.keys() <= counts.keys() or counts.total() != missing + present.total():
        return {}
    absent: dict[str, int] = {}
    for role, count in counts.items():
        lacks = min(missing, max(0, count - present.get(role, 0)))
        missing -= lacks
        if lacks:
            absent[role] = lacks
    return absent


def _annotations_by(parent: Parent) -> dict[str, str]:
    return {
        IS_GROUP_WORKLOAD: "true",
        GROUP_SETS_DIGEST: parent.digest,
        INITIAL_ROLES: ",".join(each.name for each in parent.pod_sets),
        COMPONENT_INDEX: parent.index,
    }


def _pattern(members: Sequence[GroupPod]) -> Obj:
    """The pod whose spec is the template: a waiting one, which still has its whole spec."""
    return next((each.pod for each in members if each.stage is PodStage.GATED), members[0].pod)


def _declared(members: Sequence[GroupPod]) -> Composition:
    for each in members:
        problem = problem_of(each.pod)
        if problem:
            return Composition(problem=CompositionProblem(each.pod, problem))
    if (disagrees := _other_total(members)) is not None:
        return Composition(problem=disagrees)
    known = [(each, declared_by(each.pod)) for each in members]
    declaring = [(each, declared) for each, declared in known if declared is not None]
    if not declaring:
        text = "The group waits for the pod that declares its pod sets"
        return Composition(problem=CompositionProblem(members[0].pod, text, waits=True))
    author, declared = declaring[0]
    rejected = tuple(
        conflicting(each, author.name)
        for each, other in declaring[1:]
        if other.digest != declared.digest
    )
    role = declared.role_of(role_label_of(author.pod))
    if role not in declared.names:
        text = f"The role of the pod is not one of {', '.join(declared.names)}, or is unknown"
        return Composition(problem=CompositionProblem(author.pod, text))
    out = {each.member.uid for each in rejected}
    return Composition(
        declared_pod_sets(declared, author.pod),
        declared_annotations(declared, role),
        tuple(each for each in members if each.uid not in out),
        rejected,
    )


def conflicting(member: GroupPod, author: str) -> PodToDelete:
    """A pod that declares other pod sets than the group has."""
    text = f"The pod declares other pod sets for the group than {author or 'the Workload'}"
    return PodToDelete(member, CONFLICTING_SETS, text)


def declared_pod_sets(declared: GroupDeclaration, author: Obj) -> tuple[PodSet, ...]:
    """The pod sets of a declaration; empty templates are filled from the declaring pod."""
    return tuple(
        PodSet(
            entry.name, entry.count, dict(entry.template), None, marks.topology_of(entry.template)
        )
        if entry.template
        else marks.pod_set_of(entry.name, entry.count, author)
        for entry in declared.sets
    )


def declared_annotations(declared: GroupDeclaration, role: str) -> dict[str, str]:
    """The annotations of the Workload of a declared group.

    Args:
        declared: the declaration.
        role: of the declaring pod; it alone exists from the start if no template is empty.
    """
    return {
        IS_GROUP_WORKLOAD: "true",
        GROUP_SETS_DIGEST: declared.digest,
        INITIAL_ROLES: ",".join(declared.empty or (role,)),
    }


def owner_references(members: Sequence[GroupPod]) -> list[Obj]:
    """References to all pods; none of them is the controller."""
    return [
        {
            "apiVersion": PODS.api_version,
            "kind": PODS.kind,
            "name": each.name,
            "uid": each.uid,
        }
        for each in members
    ]
