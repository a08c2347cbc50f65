"""Plans the next step for one pod or one group. Pure; it precedes the plan of every job.

Steps that only pods need come first: deleting pods, finalizers, owner references, Workloads that
must be rewritten or kept out of their queue. The rest is `kueuelib.jobs.reconcile.plan`.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kueuelib.api.kinds import PODS, WORKLOADS
from kueuelib.api.meta import Obj, annotations_of, parse_time
from kueuelib.api.names import (
    ADMITTED,
    POD_FINALIZER,
    REASON_FAILED,
    REASON_PENDING,
    REASON_SUCCEEDED,
)
from kueuelib.jobs.contract.capabilities import StopReason
from kueuelib.jobs.contract.commands import (
    MISSED,
    NORMAL,
    REPAIRED,
    WARNING,
    Change,
    Command,
    Count,
    Delete,
    DropFinalizer,
    Emit,
    PatchStatus,
)
from kueuelib.jobs.pods import marks
from kueuelib.jobs.pods.compose import owner_references
from kueuelib.jobs.pods.facts import GroupFacts
from kueuelib.jobs.pods.group import PodGroup
from kueuelib.jobs.pods.reading import PodStage, has_finalizer, is_deleted, is_gated, is_on_node
from kueuelib.jobs.pods.roster import EXCESS, GroupPod, PodToDelete, are_edited, roles_of
from kueuelib.jobs.pods.single import PodJob
from kueuelib.jobs.reconcile import reports
from kueuelib.jobs.reconcile.job_snapshot import JobSnapshot
from kueuelib.jobs.reconcile.plan import plan
from kueuelib.jobs.reconcile.priority import PriorityClassNotFound, resolve
from kueuelib.jobs.reconcile.steps import COMPOSE_ERROR, UPDATED_WORKLOAD, Commands, release
from kueuelib.jobs.reconcile.workload_build import with_gates
from kueuelib.workload import states
from kueuelib.workload.states import Phase

EXCESS_POD_DELETED = "ExcessPodDeleted"
POD_REJECTED = "PodRejected"
OWNER_REFERENCES_ADDED = "OwnerReferencesAdded"
GROUP_FINISHED = "GroupFinished"
TOO_LATE = "The group is finished; this pod will never run"

UNGATED = "ungated"
REJECTED = "rejected"


def plan_pod(situation: JobSnapshot) -> Commands:
    """The plan for a pod without a group."""
    pod = situation.job
    if not isinstance(pod, PodJob) or pod.skip():
        return plan(situation)
    if pod.is_deleted:
        return _plan_deleted(situation, pod)
    if situation.is_left_alone:
        return plan(situation)
    commands = _counted(situation, (*_repaired([pod.object]), *plan(situation)))
    return commands or (pod.finalize() if pod.finished() else ())


def _plan_deleted(situation: JobSnapshot, pod: PodJob) -> Commands:
    """A deleted pod is not kept; its Workload holds quota until the pod has finished, or, after an
    eviction, as long as the settings say. It is not queued again: a stopped pod never runs.
    """
    commands: list[Command] = []
    if pod.is_terminating():
        for workload in situation.workloads:
            if states.phase_of(workload) is Phase.EVICTING and not situation.uses_quota(pod):
                free = states.release(workload, situation.now)
                held = states.hold_back(free, "The pod is being deleted", situation.now)
                commands += reports.status_commands(workload, held)
    else:
        others = {*(pod.object["metadata"].get("finalizers") or ())} - {POD_FINALIZER}
        end = pod.finished()
        reason = REASON_SUCCEEDED if end and end.succeeded else REASON_FAILED
        for workload in situation.workloads:
            if others and not states.is_finished(workload):
                text = "The pod was deleted"
                commands.append(reports.finish(workload, reason, text, situation.now))
            commands += release(workload)
    return (*commands, *pod.finalize())


def plan_without_pods(workload: Obj | None) -> Commands:
    """The plan for the Workload of a group without pods."""
    if workload is None:
        return ()
    refs = workload["metadata"].get("ownerReferences") or ()
    if states.is_finished(workload) or states.is_deleted(workload) or not refs:
        return release(workload)
    return (Delete(WORKLOADS, workload), *release(workload))


def plan_until_pods_come(facts: GroupFacts) -> Commands:
    """The plan for the Workload of a group without pods whose parent makes new ones."""
    workload = facts.own
    if workload is None or states.is_finished(workload) or states.is_deleted(workload):
        return plan_without_pods(workload)
    if _reserves_other_pods(facts, workload):
        return (Delete(WORKLOADS, workload), *release(workload))
    if states.phase_of(workload) is not Phase.EVICTING:
        return ()
    return reports.status_commands(workload, states.release(workload, facts.now))


def _reserves_other_pods(facts: GroupFacts, workload: Obj) -> bool:
    """Whether quota is reserved for other pods than the parent makes."""
    parent, roles = facts.parent, roles_of(workload)
    if parent is None or not parent.replicas or not states.has_quota(workload):
        return False
    others = bool(parent.pod_sets) and roles.declared and roles.digest != parent.digest
    return others or roles.total != parent.replicas


def plan_group(situation: JobSnapshot, group: PodGroup) -> Commands:
    """The plan for a group with at least one pod."""
    pods, workload = group.facts.pods, group.workload
    dropped = marks.released(group.facts.gone)
    if workload is not None and states.is_deleted(workload):
        return (*dropped, *plan(situation))
    if workload is not None and states.is_finished(workload):
        first = () if situation.is_left_alone else _late_strays(situation, group)
        return (*dropped, *_too_late(pods), *first, *_but_deleted(plan(situation), first))
    runs = group.is_active() or group.is_terminating()
    if group.is_abandoned and not group.finished():
        if not runs:
            # The Workload first: once some pods are gone, the others may not show that a user
            # deleted them.
            gone = () if workload is None else (Delete(WORKLOADS, workload), *release(workload))
            return (*gone, *group.finalize())
        dropped = ()  # for the same reason
    if situation.is_left_alone:
        return (*dropped, *plan(situation))
    going_on = group.roster.any(PodStage.STARTED, PodStage.LEAVING)
    if workload is not None and not going_on and _reserves_other_pods(group.facts, workload):
        return (*dropped, Delete(WORKLOADS, workload))
    # Owners of the Workload stay until their replacements own it, or it would go with them.
    first = _strays(situation, group)
    if first:
        return first
    if workload is None:
        return (*dropped, *_before(group), *plan(situation))
    first = _housekeeping(group, workload)
    if group.judgement.rewrite is not None:
        # What still runs was counted by the old pod sets.
        waits = situation.uses_quota(group)
        return first if waits else (*first, *_rewritten(group, workload, dropped))
    first = (*first, *dropped, *_replaced(group))
    held = _held_back(situation, group, workload)
    if held:
        return (*first, *_but_deleted(held, first))
    return _counted(situation, (*first, *_but_deleted(plan(situation), first)))


def _but_deleted(commands: Commands, first: Commands) -> Commands:
    """The commands, without those about pods that were just rejected."""
    gone = {
        each.obj["metadata"]["uid"]
        for each in first
        if isinstance(each, Delete) and each.resource == PODS
    }
    return tuple(
        each
        for each in commands
        if not isinstance(each, Delete | PatchStatus | DropFinalizer | Emit)
        or each.obj["metadata"].get("uid") not in gone
    )


def _too_late(pods: Iterable[Obj]) -> Commands:
    return tuple(
        Emit(pod, GROUP_FINISHED, TOO_LATE, WARNING)
        for pod in pods
        if is_gated(pod) and has_finalizer(pod)
    )


def _late_strays(situation: JobSnapshot, group: PodGroup) -> Commands:
    """Deletes pods that came after the end of the group and lost their gate, unless they are on a
    node. A pod that was started by us owns the Workload, or belongs to a parent.
    """
    facts, commands = group.facts, list[Command]()
    for pod in () if facts.parent is not None else facts.pods:
        known = pod["metadata"]["uid"] in facts.owners
        if not known and not is_on_node(pod):
            commands += marks.stopped(pod, "", TOO_LATE, situation.now)
    return tuple(commands)


def _strays(situation: JobSnapshot, group: PodGroup) -> Commands:
    """Deletes pods that may run although they are not admitted."""
    workload = group.workload
    if workload is None:
        reason, text = StopReason.NO_MATCHING_WORKLOAD, "The group has no workload"
    elif states.phase_of(workload) in (Phase.ADMITTED, Phase.EVICTING):
        return ()
    else:
        reason, text = StopReason.NOT_ADMITTED, "The workload is not admitted"
    return group.stop_members((), reason, text, situation.now)


def _before(group: PodGroup) -> Commands:
    """The steps for the pods of a group before it has a Workload."""
    made = group.made
    failed = [each.pod for each in group.roster.kept if each.stage is PodStage.FAILED]
    out = {each.member.uid for each in made.rejected}
    waiting = [each.pod for each in group.roster.kept if each.uid not in out]
    return (
        *marks.released(failed),
        *_rejections(group, made.rejected),
        *_repaired(waiting),
    )


def _housekeeping(group: PodGroup, workload: Obj) -> Commands:
    roster = group.roster
    commands: list[Command] = []
    if group.judgement.rewrite is None:
        commands += _owned(workload, group.members_without_reference())
    commands += _rejections(group, roster.rejected)
    commands += [
        Emit(each.member.pod, POD_REJECTED, each.message, WARNING)
        for each in (*group.judgement.too_large, *group.judgement.left_waiting)
    ]
    problem = group.judgement.problem
    if problem is not None:
        commands.append(Emit(problem.pod, COMPOSE_ERROR, problem.message, WARNING))
    return (*commands, *_repaired([each.pod for each in roster.kept]))


def _owned(workload: Obj, members: tuple[GroupPod, ...]) -> Commands:
    """Makes pods owners of the Workload, before those that they replace are released."""
    if not members:
        return ()
    meta = dict(workload["metadata"])
    meta["ownerReferences"] = [*(meta.get("ownerReferences") or ()), *owner_references(members)]
    text = f"Added {len(members)} owner reference(s)"
    return (
        Change(WORKLOADS, workload, {**workload, "metadata": meta}),
        Emit(workload, OWNER_REFERENCES_ADDED, text),
    )


def _rejections(group: PodGroup, rejected: Iterable[PodToDelete]) -> Commands:
    """Deletes pods. Their finalizer goes first: with it, a pod that is being deleted would look as
    if a user had deleted it. After a crash a pod without it is rejected again.
    """
    commands: list[Command] = []
    for each in rejected:
        pod = each.member.pod
        commands += marks.released([pod])
        if not is_deleted(pod):
            commands.append(Delete(PODS, pod))
            event = EXCESS_POD_DELETED if each.reason == EXCESS else POD_REJECTED
            kind = NORMAL if each.reason == EXCESS else WARNING
            commands += [
                Emit(pod, event, each.message, kind),
                Count(REJECTED, (group.facts.namespace, each.reason)),
            ]
    return tuple(commands)


def _repaired(pods: Iterable[Obj]) -> Commands:
    """Adds the marks that a waiting pod has lost or never got."""
    commands: list[Command] = []
    for pod in pods:
        if is_gated(pod) and not is_deleted(pod) and (made := marks.completed(pod)) is not pod:
            commands += [Change(PODS, pod, made), Count(MISSED, (PODS.kind, REPAIRED))]
    return tuple(commands)


def _rewritten(group: PodGroup, workload: Obj, dropped: Commands) -> Commands:
    """Rewrites the Workload as its pods now require; it keeps its place in the queue. Then lets go
    the pods that no longer own it, among them those that are `dropped`.
    """
    made = group.judgement.rewrite
    assert made is not None
    try:
        priority = resolve(group, made.pod_sets, group.facts.classes)
    except PriorityClassNotFound as error:
        return (Emit(group.object, "ErrWorkloadCompose", str(error), WARNING),)
    kept = {key: value for key, value in workload["spec"].items() if key != "priorityClassRef"}
    spec = {**kept, "podSets": [entry.raw() for entry in made.pod_sets], **priority.spec()}
    if group.queue_name:
        spec["queueName"] = group.queue_name
    meta = dict(workload["metadata"])
    meta["annotations"] = {**annotations_of(workload), **made.annotations}
    known = {ref["uid"] for ref in meta.get("ownerReferences") or ()}
    known |= {each.member.uid for each in group.roster.rejected}
    added = [each for each in made.members if each.uid not in known]
    meta["ownerReferences"] = [*(meta.get("ownerReferences") or ()), *owner_references(added)]
    text = f"Updated Workload {group.key} to match the pods of the group"
    return (
        Change(
            WORKLOADS, workload, with_gates(group, {**workload, "metadata": meta, "spec": spec})
        ),
        Emit(group.object, UPDATED_WORKLOAD, text),
        *dropped,
        *_replaced(group),
    )


def _replaced(group: PodGroup) -> Commands:
    """Lets go the pods whose replacements are owners of the Workload by now."""
    return marks.released([each.pod for each in group.roster.released])


def _held_back(situation: JobSnapshot, group: PodGroup, workload: Obj) -> Commands:
    """Keeps a Workload out of its queue while pods are missing, and readmits it to the queue.

    A reservation for other pods than those that wait is taken back.
    """
    phase, now = states.phase_of(workload), situation.now
    changed, waits = workload, phase in (Phase.PENDING, Phase.RESERVED)
    if waits and group.missing:
        if phase is Phase.RESERVED:
            changed = states.cancel(workload, REASON_PENDING, group.missing, now)
        changed = states.hold_back(changed, group.missing, now)
    elif waits and states.is_held_back(workload):
        changed = states.requeue(workload, now)
    elif _reserves_for_unedited(group, phase):
        why = "The pods were changed after their quota was reserved"
        changed = states.cancel(workload, REASON_PENDING, why, now)
    return () if changed is workload else reports.status_commands(workload, changed)


def _reserves_for_unedited(group: PodGroup, phase: Phase) -> bool:
    """Whether pods were edited since quota was reserved for them, and none of the group began."""
    begun = group.roster.any(
        PodStage.STARTED, PodStage.LEAVING, PodStage.SUCCEEDED, PodStage.FAILED
    )
    if phase is not Phase.RESERVED and (phase is not Phase.ADMITTED or begun):
        return False
    return not group.roles.declared and are_edited(group.roster.kept, group.roles)


def _counted(situation: JobSnapshot, commands: Commands) -> Commands:
    """The commands, with a count after each one that removes our gate."""
    counted: list[Command] = []
    admitted = sorted(
        (
            (states.status_of(workload).get("admission") or {}).get("clusterQueue", ""),
            parse_time(states.condition(workload, ADMITTED)["lastTransitionTime"]),
        )
        for workload in situation.workloads
        if states.is_admitted(workload)
    )
    queue, since = admitted[0] if admitted else ("", situation.now)
    labels = (queue, str(isinstance(situation.job, PodGroup)).lower())
    waited = max(situation.now - since, 0.0)
    for command in commands:
        counted.append(command)
        match command:
            case Change(resource, old, new) if resource == PODS:
                if is_gated(old) and not is_gated(new):
                    counted.append(Count(UNGATED, labels, waited))
    return tuple(counted)


def situation_of(group: PodGroup, base: JobSnapshot) -> JobSnapshot:
    """The situation of a group, for the plan of every job."""
    own = () if group.workload is None else (group.workload,)
    return attrs.evolve(base, job=group, workloads=own)
