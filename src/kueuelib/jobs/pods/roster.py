"""Decides which pods of a group count and which are deleted (KEP-976).

For each role with `count` pods:

- pods that wait, run or have succeeded fill the places; pods beyond the count are deleted: first
  those that we released already, then waiting ones, then the youngest;
- failed pods stay known until they are replaced; the one that failed first is released first;
- pods that are being deleted neither fill a place nor count as gone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

import attrs

from kueuelib.api.meta import Obj
from kueuelib.jobs.pods.reading import (
    Stage,
    created_at,
    failed_at,
    has_finalizer,
    is_ready,
    stage_of,
)

EXCESS = "excess"
UNKNOWN_ROLE = "unknown_role"
SHAPE_MISMATCH = "shape_mismatch"
CONFLICTING_SETS = "conflicting_sets"

_FILLS = (Stage.GATED, Stage.STARTED, Stage.SUCCEEDED)
_ALIVE = (Stage.GATED, Stage.STARTED)


@attrs.frozen(eq=False)
class Member:
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
    stage: Stage
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
        return self.stage is Stage.SUCCEEDED or (self.stage is Stage.STARTED and is_ready(self.pod))


@attrs.frozen(eq=False)
class Rejected:
    """A pod to be deleted.

    Attributes:
        member: the pod.
        reason: a word for metrics.
        message: a sentence for people.
    """

    member: Member
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

    kept: tuple[Member, ...] = ()
    released: tuple[Member, ...] = ()
    rejected: tuple[Rejected, ...] = ()

    def of(self, role: str, *stages: Stage) -> tuple[Member, ...]:
        """The counted pods of a role in one of the stages."""
        return tuple(each for each in self.kept if each.role == role and each.stage in stages)

    def any(self, *stages: Stage) -> bool:
        """Whether a counted pod is in one of the stages."""
        return any(each.stage in stages for each in self.kept)

    def missing(self, counts: Mapping[str, int]) -> int:
        """How many places are empty."""
        return sum(max(0, count - len(self.of(role, *_FILLS))) for role, count in counts.items())


def members_of(
    pods: Iterable[Obj], role_of: Callable[[Obj], str], owners: Container[str] = ()
) -> tuple[Member, ...]:
    """Raw pods as members, oldest first.

    Args:
        pods: the pods.
        role_of: returns the role of a pod.
        owners: the UIDs of pods that the Workload counts already.
    """
    members = (
        Member(pod, role_of(pod), stage_of(pod), pod["metadata"]["uid"] in owners) for pod in pods
    )
    return tuple(sorted(members, key=lambda each: (created_at(each.pod), each.name)))


def sort_out(
    members: Sequence[Member], counts: Mapping[str, int], rejected: Sequence[Rejected] = ()
) -> Roster:
    """Decide which pods count and which are deleted.

    Args:
        members: all pods of the group.
        counts: how many pods each role has.
        rejected: those to be deleted for other reasons.
    """
    refused = list(rejected)
    out = {each.member.uid for each in refused}
    gone: list[Member] = []
    left = [each for each in members if each.uid not in out]
    for role, count in counts.items():
        filling = [each for each in left if each.role == role and each.fills]
        for each in surplus_of(filling, count):
            if each.is_alive:
                text = f"The group has {count} pods of the role {role}; this one is one too many"
                refused.append(Rejected(each, EXCESS, text))
        failed = [each for each in left if each.role == role and each.stage is Stage.FAILED]
        surplus = len(failed) + min(len(filling), count) - count
        if surplus > 0:
            gone += sorted(failed, key=_patience)[-min(surplus, len(failed)) :]
    out |= {each.member.uid for each in refused} | {each.uid for each in gone}
    known = [each for each in left if each.uid not in out and each.stage is not Stage.DROPPED]
    gone += [each for each in known if each.role not in counts and each.stage.is_over]
    out |= {each.uid for each in gone}
    kept = tuple(each for each in known if each.uid not in out)
    return Roster(kept, tuple(gone), tuple(refused))


def surplus_of(members: Sequence[Member], count: int) -> Sequence[Member]:
    """The members of a role beyond the count, those that are deleted first last."""
    return sorted(members, key=_worth)[count:] if len(members) > count else ()


def _worth(member: Member) -> tuple[bool, bool, bool, float, bool, str]:
    """The sort key of members of a role: the last ones are deleted first."""
    return (
        member.stage is not Stage.SUCCEEDED,
        not has_finalizer(member.pod),
        member.stage is Stage.GATED,
        created_at(member.pod),
        not member.known,
        member.name,
    )


def _patience(member: Member) -> tuple[bool, float, float, str]:
    """The sort key of failed members: those that failed first are last, and replaced first."""
    return (
        not has_finalizer(member.pod),
        -failed_at(member.pod),
        created_at(member.pod),
        member.name,
    )
