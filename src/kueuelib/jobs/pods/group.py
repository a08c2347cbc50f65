"""A group of pods as one job (KEP-976 stories 2 and 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import ClassVar, Self

import attrs

from kueuelib.api.kinds import PODS, WORKLOADS
from kueuelib.api.meta import Obj, ObjectKey, Resource, annotations_of
from kueuelib.api.names import (
    GROUP_SETS_DIGEST,
    IN_USE_FINALIZER,
    REASON_FAILED_TO_START,
    admission_gates,
)
from kueuelib.errors import InvalidPodSetInfo, InvalidPodSetUpdate
from kueuelib.jobs.contract.capabilities import (
    ComposableJob,
    JobWithFinalize,
    JobWithReclaimablePods,
    JobWithReplacements,
    Matching,
    StopReason,
)
from kueuelib.jobs.contract.commands import WARNING, Change, Command, Emit, RequeueAfter
from kueuelib.jobs.contract.generic_job import GenericJob, JobEnd, PodSet
from kueuelib.jobs.contract.podset_info import PodSetInfo
from kueuelib.jobs.pods import marks
from kueuelib.jobs.pods.compose import (
    Composition,
    CompositionProblem,
    compose,
    composed_of,
    conflicting,
    owner_references,
)
from kueuelib.jobs.pods.facts import WARN, GroupFacts
from kueuelib.jobs.pods.reading import (
    PodStage,
    created_at,
    has_finalizer,
    is_deleted,
    is_fast,
    is_on_node,
    is_unretriable,
    queue_of,
    stage_of,
    total_count_of,
    was_disrupted,
    was_stopped,
)
from kueuelib.jobs.pods.roster import (
    SHAPE_MISMATCH,
    UNKNOWN_ROLE,
    GroupPod,
    PodToDelete,
    Roles,
    Roster,
    declared_by,
    members_of,
    named_as_edited,
    placed,
    role_by_name,
    role_by_shape,
    roles_of,
    sort_out,
)
from kueuelib.jobs.pods.single import stop_reason
from kueuelib.jobs.reconcile.priority import PriorityClassNotFound, resolve
from kueuelib.jobs.reconcile.steps import COMPOSE_ERROR, MISSING_RETRY, STARTED
from kueuelib.workload import states

# ---- decides which pods of a group with a Workload count, and which are deleted (KEP-976) --------


@attrs.frozen(eq=False)
class GroupJudgement:
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
    too_large: tuple[PodToDelete, ...] = ()
    left_waiting: tuple[PodToDelete, ...] = ()
    incomplete: str = ""
    problem: CompositionProblem | None = None


def judge(facts: GroupFacts, workload: Obj) -> GroupJudgement:
    """Compare the pods of a group with its raw Workload."""
    roles = roles_of(workload, facts.pods)
    free = not states.has_quota(workload) and not states.is_finished(workload)
    if roles.declared:
        judgement = _by_declaration(facts, workload, roles, free=free)
    else:
        judgement = _by_shape(facts, workload, roles, free=free)
    return _waiting(judgement) if facts.serving else judgement


def _waiting(judgement: GroupJudgement) -> GroupJudgement:
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


def _by_shape(facts: GroupFacts, workload: Obj, roles: Roles, *, free: bool) -> GroupJudgement:
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
            return GroupJudgement(roles, sort_out(again, counts, made.rejected), rewrite=made)
    differs, asked = any(_unknown(members, roles)) or _sizes_differ(members), members
    members = placed(asked, roles)
    problem = made.problem if free else None
    if problem is not None and problem.waits and all(each.role for each in members):
        # According to the pods themselves, none of them is an excess pod.
        present = Counter(each.role for each in members if each.fills)
        places = {role: max(count, present[role]) for role, count in roles.counts.items()}
        return GroupJudgement(roles, sort_out(members, places), incomplete=problem.message)
    strangers = _unknown(members, roles)
    if free:
        # Until quota is reserved the pods that are still to come may change what the group is.
        left = roles.total - len([each for each in members if each.fills])
        strangers = strangers[len(strangers) + min(left, 0) :]
    roster = sort_out(members, roles.counts, _strangers(strangers))
    incomplete = problem.about if problem is not None and members != asked else ""
    return GroupJudgement(
        roles, roster, problem=problem if differs else None, incomplete=incomplete
    )


def _unknown(members: Iterable[GroupPod], roles: Roles) -> list[GroupPod]:
    """Pods that wait or run in a role that the Workload does not have."""
    return [each for each in members if each.is_alive and each.role not in roles.counts]


def _sizes_differ(members: Iterable[GroupPod]) -> bool:
    return len({total_count_of(each.pod) for each in members if each.fills}) > 1


def _by_declaration(
    facts: GroupFacts, workload: Obj, roles: Roles, *, free: bool
) -> GroupJudgement:
    members = members_of(facts.counted, role_by_name, facts.owners)
    parent = facts.parent
    if free and parent is not None and parent.pod_sets and parent.digest != roles.digest:
        made = compose(facts.counted, facts.owners, parent)
        counts = {entry.name: entry.count for entry in made.pod_sets}
        if counts:
            return GroupJudgement(roles, sort_out(members, counts), rewrite=made)
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
            return GroupJudgement(roles, sort_out(members, counts, made.rejected), rewrite=made)
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
        if each.stage is PodStage.GATED and each.uid not in out
        for misfit in _too_large(facts, each, templates[each.role])
    ]
    if facts.policy != WARN:
        rejected += large
        large = []
    return GroupJudgement(roles, sort_out(members, roles.counts, rejected), too_large=tuple(large))


def _too_large(facts: GroupFacts, member: GroupPod, template: Obj) -> Sequence[PodToDelete]:
    names = facts.requests.larger(member.pod, template)
    if not names:
        return ()
    text = f"The pod asks for more {', '.join(names)} than was declared for the role {member.role}"
    return (PodToDelete(member, SHAPE_MISMATCH, text),)


def _strangers(members: Iterable[GroupPod]) -> list[PodToDelete]:
    return [
        PodToDelete(each, UNKNOWN_ROLE, f'The Workload of the group has no role "{each.role}"')
        for each in members
    ]


# --------------------------------------------------------------------------------------------------

PATIENCE = 5.0
"""Seconds that a group may be incomplete before an event reports it."""

_NO_ROLES = Roles({}, "", frozenset())


class PodGroup(
    GenericJob, ComposableJob, JobWithReclaimablePods, JobWithFinalize, JobWithReplacements
):
    """Pods that are admitted together; its Workload has the group's name.

    Args:
        facts: the facts about the group, with at least one pod.
    """

    resource: ClassVar[Resource] = PODS

    def __init__(self, facts: GroupFacts) -> None:
        self.facts = facts
        self.workload = facts.own
        self.judgement = self._judge()
        self._alive = [each for each in self.roster.kept if each.is_alive] or self.roster.kept
        super().__init__(self._alive[0].pod if self._alive else facts.pods[0])

    def _judge(self) -> GroupJudgement:
        if self.workload is None:
            return GroupJudgement(_NO_ROLES, Roster(members_of(self.facts.counted, role_by_shape)))
        return judge(self.facts, self.workload)

    @cached_property
    def made(self) -> Composition:
        """The Workload that the pods of a group without one make."""
        return composed_of(self.roster.kept, self.facts.parent)

    @property
    def roster(self) -> Roster:
        """The pods, sorted by their fate."""
        return self.judgement.roster

    @property
    def roles(self) -> Roles:
        """The roles in the Workload; none without one."""
        return self.judgement.roles

    def copy(self) -> Self:
        """The same group, because it is immutable."""
        return self

    @property
    def key(self) -> ObjectKey:
        """Namespace and name of the group."""
        return ObjectKey(self.facts.namespace, self.facts.name)

    @property
    def is_deleted(self) -> bool:
        """Never: a group has no object of its own; see `is_abandoned`."""
        return False

    @property
    def is_abandoned(self) -> bool:
        """Whether every pod is being deleted, and at least one of them by a user.

        After we stop pods or their nodes are drained, the group waits for replacements. If a user
        deletes the remaining pods, none will come, unless a parent makes them. Pods without our
        finalizer say nothing: we have rejected or released them.
        """
        pods = self.facts.pods
        ours = [pod for pod in pods if has_finalizer(pod)]
        chosen = [pod for pod in ours if not was_stopped(pod) and not was_disrupted(pod)]
        return bool(chosen) and not self.facts.wanted and all(map(is_deleted, pods))

    @property
    def queue_name(self) -> str:
        """The queue that the pods agree on; while they disagree, the Workload stays where it is."""
        if self.workload is None:
            return queue_of(self.object)
        names = {queue_of(each.pod) for each in self._alive}
        if len(names) == 1 and names != {""}:
            return names.pop()
        return str(self.workload["spec"].get("queueName", ""))

    @property
    def prebuilt_workload(self) -> None:
        """None: pods cannot use a prebuilt Workload."""
        return

    @property
    def admission_gates(self) -> tuple[str, ...]:
        """The gates of the parent and of all pods that may still run."""
        gates = () if self.facts.parent is None else self.facts.parent.gates
        pods = (admission_gates(annotations_of(each.pod)) for each in self._alive)
        return tuple(dict.fromkeys((*gates, *chain.from_iterable(pods))))

    # ---- what every job reports

    def is_suspended(self) -> bool:
        """Whether a pod is gated or has finished, so that there may be something to start."""
        return self.roster.any(
            PodStage.GATED, PodStage.SUCCEEDED, PodStage.FAILED, PodStage.DROPPED
        )

    def suspend(self) -> None:
        """Does nothing: a gate cannot be restored."""

    def run_with_podsets_info(self, infos: Sequence[PodSetInfo]) -> None:
        """Does nothing: members are started one by one."""

    def restore_podsets_info(self, infos: Sequence[PodSetInfo]) -> bool:
        """Does nothing: pods cannot be reset."""
        del infos
        return False

    def finished(self) -> JobEnd | None:
        """The end: all pods have succeeded, or none will continue.

        A declared group is also over when its initial pods have succeeded, because only they could
        create others. Without a Workload it is over when all its pods are. A serving group never
        is.
        """
        if self.facts.serving:
            return None
        over = not self.roster.any(PodStage.GATED, PodStage.STARTED, PodStage.LEAVING)
        if self.workload is None:
            all_over = over and all(each.stage.is_over for each in self.roster.kept)
            whole = all(each.stage is PodStage.SUCCEEDED for each in self.roster.kept)
            return JobEnd(whole, "The group no longer has a workload") if all_over else None
        if self._has_succeeded(self.roles.counts):
            return JobEnd(True, self._progress())
        if not over or not any(each.stage.is_over for each in self.roster.kept):
            return None
        if self.roles.declared and self._has_succeeded(self.roles.initial):
            return JobEnd(True, self._progress())
        given_up = any(map(_gives_up, self.facts.counted))
        return JobEnd(False, self._progress()) if given_up else None

    def _has_succeeded(self, roles: Iterable[str]) -> bool:
        return all(
            len(self.roster.of(role, PodStage.SUCCEEDED)) >= self.roles.counts[role]
            for role in roles
        )

    def _progress(self) -> str:
        done = {
            role: min(count, len(self.roster.of(role, PodStage.SUCCEEDED)))
            for role, count in self.roles.counts.items()
        }
        text = f"Pods succeeded: {sum(done.values())}/{self.roles.total}."
        if not self.roles.declared:
            return text
        parts = [f"{role} {count}/{self.roles.counts[role]}" for role, count in done.items()]
        return f"{text[:-1]} ({', '.join(parts)})."

    def pod_sets(self) -> tuple[PodSet, ...]:
        """The pod sets of the Workload."""
        if self.workload is None:
            return ()
        return tuple(
            PodSet(
                entry["name"],
                int(entry.get("count", 1)),
                entry["template"],
                None,
                entry.get("topologyRequest"),
            )
            for entry in self.workload["spec"]["podSets"]
        )

    def is_active(self) -> bool:
        """Whether a pod is on a node, has not finished, and is not being deleted."""
        return any(is_on_node(each.pod) for each in self._members)

    def is_terminating(self) -> bool:
        """Whether a pod is being deleted and may still run."""
        return any(each.stage is PodStage.LEAVING for each in self._members)

    @property
    def _members(self) -> tuple[GroupPod, ...]:
        return (*self.roster.kept, *(each.member for each in self.roster.rejected))

    def pods_ready(self) -> bool:
        """Whether a ready pod fills every initial place, and all other pods are ready."""
        filled = all(
            len([each for each in self.roster.kept if each.role == role and each.is_ready])
            >= self.roles.counts[role]
            for role in self.roles.initial
        )
        return filled and all(
            each.is_ready for each in self.roster.kept if each.is_alive or each.fills
        )

    def reclaimable_pods(self) -> Mapping[str, int]:
        """The succeeded pods of each role."""
        counts = {role: len(self.roster.of(role, PodStage.SUCCEEDED)) for role in self.roles.counts}
        return {role: count for role, count in counts.items() if count}

    def finalize(self) -> tuple[Command, ...]:
        """Remove our finalizer from every pod that does not wait; one that waits keeps it until it
        is deleted.
        """
        return marks.released(
            [pod for pod in self.facts.pods if stage_of(pod) is not PodStage.GATED]
        )

    # ---- what a job of many objects does

    def match_workloads(
        self, workloads: Sequence[Obj], flavors: Mapping[str, Mapping[str, object]]
    ) -> Matching:
        """The Workload of the group's name that was made for it, if there is one."""
        del workloads, flavors
        return Matching(self.workload)

    def compose_workload(self) -> Obj | tuple[Command, ...]:
        """The Workload with its priority, or an event on a pod with the reason why it cannot
        exist.
        """
        facts = self.facts
        if facts.wanted == 0:
            return ()
        made = self.made
        if facts.name_is_taken:
            text = (
                f"A Workload named {facts.name} exists and does not belong to this group; "
                "give the group another name"
            )
            return (Emit(self.object, COMPOSE_ERROR, text, WARNING),)
        if made.problem is not None:
            patience = created_at(made.problem.pod) + PATIENCE - facts.now
            if made.problem.waits and patience > 0:
                return (RequeueAfter(made.problem.message, patience),)
            return (Emit(made.problem.pod, COMPOSE_ERROR, made.problem.message, WARNING),)
        if not made.pod_sets:
            return ()
        try:
            priority = resolve(self, made.pod_sets, facts.classes)
        except PriorityClassNotFound as error:
            text = str(error)
            return (
                Emit(self.object, COMPOSE_ERROR, text, WARNING),
                RequeueAfter(text, MISSING_RETRY),
            )
        differs = facts.taken_over.difference(facts.counted)
        if differs is not None:
            text = (
                f"The pods of the group have different values of the {differs.what}, which their "
                "Workload takes over; give all of them the same"
            )
            return (Emit(differs.pod, COMPOSE_ERROR, text, WARNING),)
        labels = facts.taken_over.labels_of(facts.counted)
        spec: Obj = {"podSets": [entry.raw() for entry in made.pod_sets], **priority.spec()}
        if self.queue_name:
            spec["queueName"] = self.queue_name
        if self.maximum_execution_seconds is not None:
            spec["maximumExecutionTimeSeconds"] = self.maximum_execution_seconds
        meta: Obj = {
            "name": facts.name,
            "namespace": facts.namespace,
            "annotations": {**facts.taken_over.annotations_of(facts.counted), **made.annotations},
            "finalizers": [IN_USE_FINALIZER],
            "ownerReferences": (
                owner_references(made.members) if facts.parent is None else [dict(facts.parent.ref)]
            ),
        }
        if labels:
            meta["labels"] = labels
        return {
            "apiVersion": WORKLOADS.api_version,
            "kind": WORKLOADS.kind,
            "metadata": meta,
            "spec": spec,
        }

    def run_members(self, infos: Sequence[PodSetInfo], message: str) -> tuple[Command, ...]:
        """Ungate the oldest waiting pods of each role, up to the number of free places.

        A pod that contradicts its info waits, so that it does not end a group that has begun.

        Raises:
            InvalidPodSetInfo: a role has no info.
            InvalidPodSetUpdate: an info contradicts a pod, and no pod has begun.
        """
        by_name = {info.name: info for info in infos}
        begun = self.roster.any(PodStage.STARTED, PodStage.LEAVING, PodStage.SUCCEEDED)
        commands: list[Command] = []
        for role, count in self.roles.counts.items():
            if role not in by_name:
                raise InvalidPodSetInfo(f"the admission says nothing about the pods of role {role}")
            taken = self.roster.of(role, PodStage.STARTED, PodStage.LEAVING, PodStage.SUCCEEDED)
            going = [each for each in self.roster.rejected if _may_run(each.member, role)]
            places = max(0, count - len(taken) - len(going))
            for each in self.roster.of(role, PodStage.GATED)[:places]:
                try:
                    changed = marks.ungated(named_as_edited(each, self.roles), by_name[role])
                except InvalidPodSetUpdate as error:
                    if not begun:
                        raise
                    text = f"{error}: delete this Pod and create another one"
                    commands.append(Emit(each.pod, REASON_FAILED_TO_START, text, WARNING))
                    continue
                commands += [Change(PODS, each.pod, changed), Emit(each.pod, STARTED, message)]
        return tuple(commands)

    def stop_members(
        self, infos: Sequence[PodSetInfo], reason: StopReason, message: str, now: float
    ) -> tuple[Command, ...]:
        """Delete pods that may run; if the Workload is deleted, all pods."""
        del infos
        why = stop_reason(reason, self.workload)
        commands: list[Command] = []
        for pod in self.facts.pods:
            commands += marks.stopped(pod, why, message, now)
        if reason is StopReason.WORKLOAD_DELETED:
            for pod in self.facts.pods:
                commands += marks.removed(pod)
        return tuple(commands)

    def remove_members(self) -> tuple[Command, ...]:
        """Delete all pods; the Workload is deleted when none is left."""
        return tuple(command for pod in self.facts.pods for command in marks.deleted(pod))

    # ---- pods that are missing

    @property
    def missing(self) -> str:
        """What the group lacks before it may be admitted, for people; empty if it is complete."""
        if self.facts.wanted:
            return ""
        if self.roles.declared:
            initial = [each for each in self.roster.kept if each.role in self.roles.initial]
            lacks = not any(each.fills for each in initial)
            return "The group waits for a new pod that declares it" if lacks else ""
        count = self.roster.missing(self.roles.counts)
        if any(is_fast(each.pod) and each.fills for each in self.roster.kept):
            count = 0
        if not count:
            return self.judgement.incomplete
        if problem := self.judgement.problem:
            return problem.about
        return f"The group waits for {count} pod{'s' * (count > 1)} to be replaced"

    def after_release(self, workload: Obj, now: float) -> Obj:
        """Keep the Workload out of its queue until the pods exist again."""
        return states.hold_back(workload, self.missing, now) if self.missing else workload

    def members_without_reference(self) -> tuple[GroupPod, ...]:
        """Counted pods that the Workload does not name as owners yet."""
        if self.facts.parent is not None:
            return ()
        owners = self.facts.owners
        return tuple(each for each in self.roster.kept if each.uid not in owners)


def _gives_up(pod: Obj) -> bool:
    """Whether a pod that has ended gives its group up. One that succeeded has our finalizer until
    its group ends; without it, it only has a place in a later group.
    """
    stage = stage_of(pod)
    ended_here = stage is PodStage.FAILED or (stage is PodStage.SUCCEEDED and has_finalizer(pod))
    return ended_here and is_unretriable(pod)


def _may_run(member: GroupPod, role: str) -> bool:
    """Whether a pod to be deleted still takes a place of its role."""
    return member.role == role and member.stage in (PodStage.STARTED, PodStage.LEAVING)
