"""The memory of the laws: the present state, and permanent facts of a history."""

from __future__ import annotations

import math
from collections import defaultdict

import attrs

from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.laws.law import Tolerance
from kueuelib.testing.storm.laws.ledger import QuotaLedger, cohort_of_raw, queue_of_raw
from kueuelib.testing.storm.laws.reading import (
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    EVENTS,
    FLAVORS,
    JOBS,
    LEASES,
    LOCAL_QUEUES,
    PODS,
    WORKLOADS,
    admitted,
    busy,
    condition,
    finalizers,
    group_of,
    is_group,
    job_end,
    leaving,
    may_run,
    name,
    notes,
    owner_uids,
    reserving,
    spec,
    status,
    subject_of,
    subject_of_workload,
    suspended,
    terminal,
    uid,
)

Key = tuple[str, str]
"""Namespace and name."""

LIFE = ("QuotaReserved", "Admitted", "Evicted", "Finished")
"""The conditions whose changes are steps in the life of a Workload."""


def is_manager(actor: str) -> bool:
    """Whether an actor is a manager, by its name."""
    return actor.startswith("manager")


@attrs.define
class Admissions:
    """The admissions of one job, pod or group.

    Attributes:
        ever: how often a Workload of it became Admitted.
        unused: whether an admission, or a suspension of an admitted job by a user, permits one
            start that has not happened yet.
        live: UIDs of the Workloads that permit it to run now.
        ended: when the last of them ceased to; minus infinity if none ever did.
        taken: whether that was because a user removed it, together with its finalizers.
    """

    ever: int = 0
    unused: bool = False
    live: set[str] = attrs.field(factory=set)
    ended: float = -math.inf
    taken: bool = False


@attrs.define
class Term:
    """The leader by a Lease: the actor that wrote it, since when, and its identity."""

    actor: str
    identity: str
    since: float


@attrs.define
class StepBudget:
    """Steps of managers in the life of one Workload, and what caused them.

    Attributes:
        steps: how many since it last reserved quota.
        causes: commits by others to the Workload, its job or its pods since then.
        turn: the number of changes of queues at that time.
    """

    steps: int = 0
    causes: int = 0
    turn: int = 0


@attrs.define
class WaitRecord:
    """What is known of a job's time in the queue.

    Attributes:
        since: when its Workload was first stored with a reason to wait.
        causes: how often that reason has changed.
        cause: the present one; None if there is none.
        said: how many Events about the job have said it.
    """

    since: float
    causes: int = 0
    cause: object = None
    said: int = 0


class CommitFold:
    """The fold of all commits so far.

    Laws see the memory *before* the commit that they judge, except `objects`, which already
    contains it.

    Attributes:
        tolerance: the legal delays.
        objects: the stored objects by resource and key.
        uids: every UID that ever existed, with resource, namespace and name.
        ended: UIDs of jobs and pods that ended by themselves.
        groups: UIDs of all pods that were ever in a group, by `namespace/group`.
        admissions: by the subject of `reading.subject_of`.
        by_owner: live Workloads by the UID of their controller.
        reserved_by: the writer and the time of each present reservation, by UID of the Workload.
        cut: when the quota of a ClusterQueue or Cohort may have last shrunk, or their tree changed.
            Keys are `queue:NAME`, `cohort:NAME`, and `all` for changes of flavors and checks.
        required: when the checks that a ClusterQueue requires last changed, by name.
        terms: the leader by Lease.
        leaderless: when a Lease was released, by Lease.
        renewed: when a Lease was last written, by Lease.
        busy: since when pods of a job, or a pod, have been running, by UID.
        written: what users wrote last about where the pods of a Job run, by its UID.
        meddled: UIDs of Jobs that users have suspended or started themselves.
        turns: changes of queues, Cohorts, flavors and checks by users.
        budgets: steps of managers since a Workload last reserved quota, by subject.
        changed: when the spec of a Workload or a queue changed, or its deletion was requested.
        recent: instants of recent commits of managers by object.
        waits: the jobs and pods whose Workload has ever had a reason to wait, by UID.
        leaders: the identities that have ever held a Lease.
    """

    def __init__(self, tolerance: Tolerance) -> None:
        self.tolerance = tolerance
        self.objects: dict[str, dict[Key, Obj]] = defaultdict(dict)
        self.uids: dict[str, tuple[str, str, str]] = {}
        self.ended: set[str] = set()
        self.groups: dict[str, set[str]] = defaultdict(set)
        self.admissions: dict[str, Admissions] = defaultdict(Admissions)
        self.by_owner: dict[str, set[Key]] = defaultdict(set)
        self.reserved_by: dict[str, tuple[str, float]] = {}
        self.cut: dict[str, float] = {}
        self.required: dict[str, float] = {}
        self.terms: dict[Key, Term] = {}
        self.leaderless: dict[Key, float] = {}
        self.renewed: dict[Key, float] = {}
        self.busy: dict[str, float] = {}
        self.written: dict[str, dict[str, object]] = {}
        self.meddled: set[str] = set()
        self.turns = 0
        self.budgets: dict[str, StepBudget] = defaultdict(StepBudget)
        self.changed: dict[tuple[str, str, str], float] = {}
        self.recent: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        self.waits: dict[str, WaitRecord] = {}
        self.leaders: set[str] = set()

    def get(self, resource: str, namespace: str, name: str) -> Obj | None:
        """A stored object."""
        return self.objects[resource].get((namespace, name))

    def all(self, resource: str) -> list[Obj]:
        """All stored objects of a kind."""
        return list(self.objects[resource].values())

    def ledger(self) -> QuotaLedger:
        """All ClusterQueues and Cohorts as they are stored, without usage."""
        queues = {name(raw): queue_of_raw(raw) for raw in self.all(CLUSTER_QUEUES)}
        cohorts = {name(raw): cohort_of_raw(raw) for raw in self.all(COHORTS)}
        return QuotaLedger(queues, {}, cohorts)

    def within_lag(self, then: float, now: float) -> bool:
        """Whether a decision made before `then` may still be committed `now`."""
        lag = self.tolerance.lag
        return lag > 0 and now - then <= lag

    # ---- the fold

    def store(self, commit: Commit) -> None:
        """Takes over the new state of a commit, before the laws judge it."""
        key = (commit.namespace, commit.name)
        if commit.new is None:
            self.objects[commit.resource].pop(key, None)
        else:
            self.objects[commit.resource][key] = commit.new

    def learn(self, commit: Commit) -> None:
        """Draws conclusions from a commit, after the laws have judged it."""
        self.uids.setdefault(uid(commit.present), commit.key)
        resource, ours = commit.resource, is_manager(commit.actor)
        if resource in (WORKLOADS, CLUSTER_QUEUES, LOCAL_QUEUES):
            self._learn_change(commit)
        if resource == WORKLOADS:
            self._learn_workload(commit, ours)
        elif resource == JOBS:
            self._learn_job(commit, ours)
            self._learn_activity(commit)
        elif resource == PODS:
            self._learn_pod(commit, ours)
            self._learn_activity(commit)
        elif resource == CLUSTER_QUEUES:
            self._learn_queue(commit)
        elif resource == COHORTS:
            self._learn_quota(commit, "cohort", "parentName")
        elif resource == LEASES and ours:
            self._learn_lease(commit)
        elif resource == EVENTS and ours and explains_waiting(commit):
            job = about(commit.present).get("uid", "")
            if job in self.waits:
                self.waits[job].said += 1
        if not ours and resource in (CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, FLAVORS, CHECKS):
            self.turns += 1
            if resource in (FLAVORS, CHECKS):
                self.cut["all"] = commit.at

    def _learn_change(self, commit: Commit) -> None:
        old, new = commit.old, commit.new
        same = old is not None and new is not None and spec(old) == spec(new)
        if not same or leaving(commit.present) != leaving(old or {"metadata": {}}):
            self.changed[commit.key] = commit.at

    def _learn_wait(self, commit: Commit) -> None:
        if commit.new is None:
            return
        cause = _cause(commit.new)
        for each in owner_uids(commit.new):
            if cause is not None:
                record = self.waits.setdefault(each, WaitRecord(commit.at))
                record.causes += cause != record.cause
            if each in self.waits:
                self.waits[each].cause = cause

    def _learn_workload(self, commit: Commit, ours: bool) -> None:
        old, new, identity = commit.old, commit.new, uid(commit.present)
        subject = subject_of_workload(commit.present)
        self._spend(subject, commit, ours)
        self._learn_wait(commit)
        admission = self.admissions[subject]
        if admitted(new) and not admitted(old):
            admission.ever += 1
            admission.unused = True
        if new is not None and may_run(new):
            admission.live.add(identity)
        elif identity in admission.live:
            admission.live.discard(identity)
            admission.ended = commit.at
            admission.taken = new is None and not ours
        if reserving(new) and not reserving(old):
            self.reserved_by[identity] = (commit.actor, commit.at)
        elif not reserving(new):
            self.reserved_by.pop(identity, None)
        for owner in _controllers(old):
            self.by_owner[owner].discard((commit.namespace, commit.name))
        for owner in _controllers(new):
            self.by_owner[owner].add((commit.namespace, commit.name))

    def _spend(self, subject: str, commit: Commit, ours: bool) -> None:
        budget = self.budgets[subject]
        if commit.new is None or (reserving(commit.new) and not reserving(commit.old)):
            self.budgets[subject] = StepBudget(turn=self.turns)
        elif not ours:
            budget.causes += 1
        elif life(commit.old) != life(commit.new):
            budget.steps += 1

    def _learn_job(self, commit: Commit, ours: bool) -> None:
        old, new = commit.old, commit.new
        if not ours:
            self.budgets[subject_of(commit.present)].causes += 1
            self._learn_edit(old, new)
        if new is not None and job_end(new):
            self.ended.add(uid(new))
        if old is None or new is None or suspended(old) == suspended(new):
            return
        if not ours:
            self.meddled.add(uid(new))
        admission = self.admissions[f"uid:{uid(new)}"]
        if not suspended(new):
            admission.unused = admission.unused and not ours
        elif not ours:
            admission.unused = True

    def _learn_edit(self, old: Obj | None, new: Obj | None) -> None:
        if new is None:
            return
        before, after = placement_of(old) if old else {}, placement_of(new)
        written = self.written.setdefault(uid(new), {})
        for place in before.keys() | after.keys():
            if place not in after:
                written.pop(place, None)
            elif before.get(place) != after[place]:
                written[place] = after[place]

    def _learn_pod(self, commit: Commit, ours: bool) -> None:
        pod = commit.present
        if not ours:
            self.budgets[subject_of(pod)].causes += 1
        if terminal(pod):
            self.ended.add(uid(pod))
        if group := group_of(pod):
            self.groups[f"{commit.namespace}/{group}"].add(uid(pod))

    def _learn_activity(self, commit: Commit) -> None:
        identity = uid(commit.present)
        if commit.new is None or not busy(commit.new):
            self.busy.pop(identity, None)
        else:
            self.busy.setdefault(identity, commit.at)

    def _learn_queue(self, commit: Commit) -> None:
        self._learn_quota(commit, "queue", "cohortName")
        before, after = spec(commit.old or {}), spec(commit.new or {})
        if before.get("admissionChecksStrategy") != after.get("admissionChecksStrategy"):
            self.required[commit.name] = commit.at

    def _learn_quota(self, commit: Commit, kind: str, parent: str) -> None:
        before, after = spec(commit.old or {}), spec(commit.new or {})
        same = all(before.get(part) == after.get(part) for part in ("resourceGroups", parent))
        if same and commit.old is not None and commit.new is not None:
            return
        self.cut[f"{kind}:{commit.name}"] = commit.at
        for state in (before, after):
            if cohort := state.get(parent):
                self.cut[f"cohort:{cohort}"] = commit.at

    def _learn_lease(self, commit: Commit) -> None:
        key = (commit.namespace, commit.name)
        holder = str(spec(commit.new or {}).get("holderIdentity") or "")
        term = self.terms.get(key)
        self.renewed[key] = commit.at
        if not holder:
            self.terms.pop(key, None)
            self.leaderless.setdefault(key, commit.at)
        elif term is None or term.identity != holder:
            self.leaders.add(holder)
            self.terms[key] = Term(commit.actor, holder, commit.at)
            self.leaderless.pop(key, None)


def placement_of(job: Obj) -> dict[str, object]:
    """What a Job says about where its pods run: each key of a mapping, and the affinity."""
    template = spec(job).get("template") or {}
    selector, written = (
        spec(template).get("nodeSelector") or {},
        notes({"metadata": {}, **template}),
    )
    places: dict[str, object] = {f"nodeSelector {key}": text for key, text in selector.items()}
    places |= {f"annotation {key}": text for key, text in written.items()}
    affinity = spec(template).get("affinity")
    return {**places, "affinity": affinity} if affinity else places


def life(workload: Obj | None) -> object:
    """The conditions in the life of a Workload."""
    if workload is None:
        return None
    conditions = [condition(workload, kind).get("status") for kind in LIFE]
    return conditions, status(workload).get("admission"), spec(workload), finalizers(workload)


def _controllers(workload: Obj | None) -> list[str]:
    """UIDs of the controllers of a live Workload of a single job."""
    if workload is None or workload["metadata"].get("deletionTimestamp"):
        return []
    if is_group(workload):
        return []
    owners = workload["metadata"].get("ownerReferences") or ()
    return [owner["uid"] for owner in owners if owner.get("controller")]


def about(event: Obj) -> Obj:
    """The object that an event is about."""
    return event.get("involvedObject") or event.get("regarding") or {}


def explains_waiting(commit: Commit) -> bool:
    """Whether a commit is an Event that says, perhaps again, why a job or a pod waits."""
    old, new = commit.old, commit.new
    if new is None or about(new).get("kind") not in ("Job", "Pod"):
        return False
    text = str(new.get("message") or new.get("note") or "")
    again = old is None or any(old.get(one) != new.get(one) for one in ("count", "series"))
    return again and text.startswith(("Waiting", "Cannot be admitted"))


def _cause(workload: Obj) -> object:
    """What holds a Workload; None if nothing does."""
    reserved, evicted = condition(workload, "QuotaReserved"), condition(workload, "Evicted")
    checks = [
        (each["name"], each.get("state"), each.get("message"))
        for each in status(workload).get("admissionChecks") or ()
        if each.get("state") != "Ready"
    ]
    if admitted(workload) or not (
        reserved.get("status") == "False" or evicted.get("status") == "True" or checks
    ):
        return None
    texts = [one.get(key) for one in (reserved, evicted) for key in ("status", "reason", "message")]
    return [*texts, checks, status(workload).get("requeueState"), spec(workload).get("active")]
