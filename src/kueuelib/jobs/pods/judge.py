"""Decides which pods of a group with a Workload count, and which are deleted (KEP-976)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from kueuelib.api.meta import Obj
from kueuelib.api.names import GROUP_SETS_DIGEST
from kueuelib.jobs.pods.compose import (
    Composition,
    Problem,
    compose,
    composed_of,
    conflicting,
)
from kueuelib.jobs.pods.edits import placed
from kueuelib.jobs.pods.facts import WARN, GroupFacts
from kueuelib.jobs.pods.reading import Stage, total_count_of
from kueuelib.jobs.pods.roles import Roles, declared_by, role_by_name, roles_of
from kueuelib.jobs.pods.roster import (
    SHAPE_MISMATCH,
    UNKNOWN_ROLE,
    Member,
    Rejected,
    Roster,
    members_of,
    sort_out,
)
from kueuelib.workload import states


@attrs.frozen(eq=False)
class Judgement:
    """The pods of a group, compared with its Workload.

    Attributes:
        roles: what the Workload asks for.
        roster: the pods.
        rewrite: the new content of a Workload that has no quota and asks for something else; None
            if it may stay as it is.
        too_large: pods that ask for more than declared, and are admitted anyway.
        left_waiting: pods that must not run, and wait because a deleted one would be replaced.
        incomplete: a message: which pods are missing, according to those that exist, or why the
            Workload cannot follow edited ones; empty if it may be admitted, and with quota.
        problem: why the group cannot become what its new pods ask for; None if it may.
    """

    roles: Roles
    roster: Roster
    rewrite: Composition | None = None
    too_large: tuple[Rejected, ...] = ()
    left_waiting: tuple[Rejected, ...] = ()
    incomplete: str = ""
    problem: Problem | None = None


def judge(facts: GroupFacts, workload: Obj) -> Judgement:
    """Compare the pods of a group with its raw Workload."""
    roles = roles_of(workload, facts.pods)
    free = not states.has_quota(workload) and not states.is_finished(workload)
    if roles.declared:
        judgement = _by_declaration(facts, workload, roles, free=free)
    else:
        judgement = _by_shape(facts, workload, roles, free=free)
    return _waiting(judgement) if facts.serving else judgement


def _waiting(judgement: Judgement) -> Judgement:
    """A deleted pod of a serving group would be replaced, so a pod that must not run waits
    instead.
    """
    rejected = judgement.roster.rejected
    unfit = [
        attrs.evolve(each.member, role="") if each.reason == SHAPE_MISMATCH else each.member
        for each in rejected
    ]
    kept = (*judgement.roster.kept, *unfit)
    roster = attrs.evolve(judgement.roster, kept=kept, rejected=())
    return attrs.evolve(judgement, roster=roster, left_waiting=rejected)


def _by_shape(facts: GroupFacts, workload: Obj, roles: Roles, *, free: bool) -> Judgement:
    members = members_of(facts.counted, roles.by_shape, facts.owners)
    if free:
        # A controller makes all pods again, as its template is by now.
        known = facts.parent is None and not facts.serving
        before = workload["spec"]["podSets"] if known else ()
        made = composed_of(members, facts.parent, before)
        counts = {entry.name: entry.count for entry in made.pod_sets}
        declared = GROUP_SETS_DIGEST in made.annotations
        if counts and (declared or counts != roles.counts):
            again = members_of(facts.pods, role_by_name, facts.owners) if declared else members
            return Judgement(roles, sort_out(again, counts, made.rejected), rewrite=made)
    differs, asked = any(_unknown(members, roles)) or _sizes_differ(members), members
    members = placed(asked, roles)
    problem = made.problem if free else None
    if problem is not None and problem.waits and all(each.role for each in members):
        # According to the pods themselves, none of them is an excess pod.
        present = Counter(each.role for each in members if each.fills)
        places = {role: max(count, present[role]) for role, count in roles.counts.items()}
        return Judgement(roles, sort_out(members, places), incomplete=problem.message)
    strangers = _unknown(members, roles)
    if free:
        # Until quota is reserved the pods that are still to come may change what the group is.
        left = roles.total - len([each for each in members if each.fills])
        strangers = strangers[len(strangers) + min(left, 0) :]
    roster = sort_out(members, roles.counts, _strangers(strangers))
    incomplete = problem.about if problem is not None and members != asked else ""
    return Judgement(roles, roster, problem=problem if differs else None, incomplete=incomplete)


def _unknown(members: Iterable[Member], roles: Roles) -> list[Member]:
    """Pods that wait or run in a role that the Workload does not have."""
    return [each for each in members if each.is_alive and each.role not in roles.counts]


def _sizes_differ(members: Iterable[Member]) -> bool:
    return len({total_count_of(each.pod) for each in members if each.fills}) > 1


def _by_declaration(facts: GroupFacts, workload: Obj, roles: Roles, *, free: bool) -> Judgement:
    members = members_of(facts.counted, role_by_name, facts.owners)
    parent = facts.parent
    if free and parent is not None and parent.pod_sets and parent.digest != roles.digest:
        made = compose(facts.counted, facts.owners, parent)
        counts = {entry.name: entry.count for entry in made.pod_sets}
        if counts:
            return Judgement(roles, sort_out(members, counts), rewrite=made)
    alive = [each for each in members if each.is_alive]
    others, agree = [], False
    for each in alive:
        declared = declared_by(each.pod)
        if declared is not None:
            agree |= declared.digest == roles.digest
            if declared.digest != roles.digest:
                others.append(each)
    if others and free and not agree:
        made = compose(facts.pods, facts.owners)
        if made.problem is None and made.pod_sets:
            counts = {entry.name: entry.count for entry in made.pod_sets}
            return Judgement(roles, sort_out(members, counts, made.rejected), rewrite=made)
    rejected = [conflicting(each, "") for each in others]
    out = {each.uid for each in others}
    rejected += _strangers(
        each for each in alive if each.role not in roles.counts and each.uid not in out
    )
    out |= {each.member.uid for each in rejected}
    templates = {
        entry["name"]: entry.get("template") or {} for entry in workload["spec"]["podSets"]
    }
    large = [
        misfit
        for each in alive
        if each.stage is Stage.GATED and each.uid not in out
        for misfit in _too_large(facts, each, templates[each.role])
    ]
    if facts.policy != WARN:
        rejected += large
        large = []
    return Judgement(roles, sort_out(members, roles.counts, rejected), too_large=tuple(large))


def _too_large(facts: GroupFacts, member: Member, template: Obj) -> Sequence[Rejected]:
    names = facts.requests.larger(member.pod, template)
    if not names:
        return ()
    text = f"The pod asks for more {', '.join(names)} than was declared for the role {member.role}"
    return (Rejected(member, SHAPE_MISMATCH, text),)


def _strangers(members: Iterable[Member]) -> list[Rejected]:
    return [
        Rejected(each, UNKNOWN_ROLE, f'The Workload of the group has no role "{each.role}"')
        for each in members
    ]
