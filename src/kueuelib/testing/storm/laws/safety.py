"""Laws that hold in every stored state, and their table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator

import attrs

from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.laws import reservations
from kueuelib.testing.storm.laws.law import COMMIT, Law
from kueuelib.testing.storm.laws.memory import (
    CommitFold,
    about,
    explains_waiting,
    is_manager,
    life,
    placement_of,
)
from kueuelib.testing.storm.laws.reading import (
    CLUSTER_QUEUES,
    EVENTS,
    JOBS,
    LEASES,
    LOCAL_QUEUES,
    PODS,
    WORKLOADS,
    admitted,
    condition,
    controller,
    finished,
    gated,
    group_of,
    holds,
    is_group,
    leaving,
    notes,
    owner_uids,
    queue_of,
    queued,
    reserving,
    spec,
    status,
    subject_of,
    subject_of_workload,
    suspended,
    terminal,
    uid,
)
from kueuelib.testing.storm.laws.reservations import no_quota_in_a_cycle, quota_not_exceeded

# ---- laws about effort: nothing is written again and again without a cause -----------------------

STEPS = 12
"""The maximum number of steps of a Workload between two reservations without outside events."""
STEPS_PER_CAUSE = 4


def no_burst(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """Managers write one object only a limited number of times within a period."""
    if not is_manager(commit.actor) or commit.resource == LEASES:
        return
    tolerance = memory.tolerance
    times = memory.recent[commit.key]
    times.append(commit.at)
    while times[0] < commit.at - tolerance.window:
        times.pop(0)
    if len(times) > tolerance.burst:
        count = len(times)
        times.clear()
        yield f"managers wrote it {count} times within {tolerance.window:g} s"


def bounded_steps(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """The number of writes between two reservations of a Workload is bounded by its events."""
    new = commit.new
    if new is None or not is_manager(commit.actor) or life(commit.old) == life(new):
        return
    if reserving(new) and not reserving(commit.old):
        return
    subject = subject_of_workload(new)
    budget = memory.budgets[subject]
    allowed = STEPS + STEPS_PER_CAUSE * (budget.causes + memory.turns - budget.turn)
    if budget.steps >= allowed:
        steps = budget.steps + 1
        budget.steps = 0
        yield f"{steps} steps since it last reserved quota; what happened explains {allowed}"


# ---- laws about what users write into the templates of their Jobs --------------------------------

NOTE = "kueuelib.dev/added-at-start"
STOPPING = "kueue.x-k8s.io/stopping"


def edits_are_kept(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """A manager keeps what users wrote into a Job, and a complete stop leaves nothing else."""
    old, new = commit.old, commit.new
    if old is None or new is None or not is_manager(commit.actor):
        return
    wanted, present = memory.written.get(uid(new)), placement_of(new)
    if wanted is None:
        return
    for place in sorted(place for place in wanted if present.get(place) != wanted[place]):
        yield f"{place} is {present.get(place)!r}, but its user wrote {wanted[place]!r}"
    if suspended(new) and not {NOTE, STOPPING} & notes(new).keys():
        for place in sorted(present.keys() - wanted.keys()):
            yield f"{place} stays, but its user did not write it"


def starts_are_of_present_templates(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """A manager starts a Job only if its Workload has the template that the user wrote last."""
    old, new = commit.old, commit.new
    if old is None or new is None or not is_manager(commit.actor):
        return
    if suspended(new) or not suspended(old):
        return
    wanted = memory.written.get(uid(new))
    for _, name in sorted(memory.by_owner[uid(new)]):
        workload = memory.get(WORKLOADS, commit.namespace, name)
        if workload is not None and _asked(workload) != wanted:
            yield f"it was started, but Workload {name} has {_asked(workload)!r}, not {wanted!r}"


def _asked(workload: Obj) -> dict[str, object]:
    (pod_set,) = spec(workload)["podSets"]
    return placement_of({"spec": pod_set})


# ---- laws about what Events say ------------------------------------------------------------------

PAUSE = 60.0
"""Seconds between two Events about why one job waits, by the clock of the manager."""


def waiting_is_explained_once(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """Events say once per reason and minute why a job waits, and never if it did not wait."""
    if not is_manager(commit.actor) or not explains_waiting(commit):
        return
    record = memory.waits.get(str(about(commit.present).get("uid")))
    if record is None:
        yield "it says why a job waits whose Workload had no reason to wait"
        return
    leaders = max(1, len(memory.leaders))
    minutes = leaders + math.floor((commit.at - record.since) * RATIO / PAUSE)
    if record.said >= min(record.causes * leaders, minutes):
        seconds, times = commit.at - record.since, record.said + 1
        yield (
            f"Events said {times} times why its job waits, after {seconds:g} s and "
            f"{record.causes} reasons"
        )


# ---- laws about leaders: only the holder of the Lease writes -------------------------------------

RATIO = 1.5
"""The largest rate of a candidate's clock relative to that of a leader."""


def only_the_leader_writes(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """A manager writes only while no other one holds the Lease.

    Requests that were under way when the Lease changed hands may be committed within the lag.
    """
    if not is_manager(commit.actor):
        return
    for lease, term in memory.terms.items():
        if term.actor != commit.actor:
            late = commit.at - term.since
            if late > memory.tolerance.lag:
                where = "/".join(lease)
                yield (
                    f"{commit.actor} wrote it {late:g} s after {term.actor} had taken the Lease"
                    f" {where}"
                )
    for lease, since in memory.leaderless.items():
        late = commit.at - since
        if late > memory.tolerance.lag:
            where = "/".join(lease)
            yield f"{commit.actor} wrote it {late:g} s after the Lease {where} was given up"


def lease_is_taken_when_free(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """No process takes a Lease that another one holds and renewed a moment ago."""
    old, new = spec(commit.old or {}), spec(commit.new or {})
    before, after = old.get("holderIdentity"), new.get("holderIdentity")
    renewed = memory.renewed.get((commit.namespace, commit.name))
    if not before or not after or before == after or renewed is None:
        return
    lasts = float(old.get("leaseDurationSeconds") or 0.0)
    passed = commit.at - renewed
    if passed < lasts / RATIO:
        yield f"{after} took it {passed:g} s after {before} had renewed it for {lasts:g} s"


# ---- laws about owners: one Workload per job, existing owners, real ends -------------------------

ENDED = ("Succeeded", "Failed", "JobFinished")
"""Reasons of Finished about how the job ended."""

ABOUT = ("Job", "Pod", "Workload")
"""Kinds whose events are checked, because all their objects are in the history."""


def one_workload_per_job(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """A job never has two live Workloads that managers created."""
    new = commit.new
    if new is None or not is_manager(commit.actor) or is_group(new) or leaving(new):
        return
    owner = controller(new).get("uid")
    others = memory.by_owner.get(str(owner), set()) - {(commit.namespace, commit.name)}
    if owner and others:
        names = ", ".join(sorted(name for _namespace, name in others))
        yield f"the job with UID {owner} already has {names}"


def owners_are_real(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """Owners that a manager writes existed, and a Workload never changes hands."""
    new, old = commit.new, commit.old
    if new is None or not is_manager(commit.actor):
        return
    known = {*owner_uids(old or {"metadata": {}})}
    members = memory.groups.get(f"{commit.namespace}/{commit.name}", set())
    for owner in owner_uids(new):
        if owner in known:
            continue
        if owner not in memory.uids:
            yield f"the owner with UID {owner} never existed"
        elif is_group(new) and owner not in members:
            yield f"the owner with UID {owner} was never in the group"
    before, after = controller(old or {"metadata": {}}), controller(new)
    if before and after and before["uid"] != after["uid"]:
        yield f"its controller changed from {before['uid']} to {after['uid']}"


def finished_with_cause(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """A Workload is Finished only if its job has ended."""
    new = commit.new
    if new is None or not is_manager(commit.actor) or not finished(new) or finished(commit.old):
        return
    reason = condition(new, "Finished").get("reason")
    if reason not in ENDED:
        return
    if is_group(new):
        members = memory.groups.get(f"{commit.namespace}/{commit.name}", set())
        if not members & memory.ended:
            yield f"Finished says {reason}, but no pod of the group has ended"
        return
    owner = controller(new)
    if owner.get("kind") in ("Job", "Pod") and owner["uid"] not in memory.ended:
        yield f"Finished says {reason}, but {owner['kind']} {owner['name']} has not ended"


def events_are_about_real_objects(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """An event names an object that existed, by the UID that it had."""
    event = commit.new
    if event is None or not is_manager(commit.actor):
        return
    named = about(event)
    known = memory.uids.get(str(named.get("uid") or ""))
    if named.get("kind") not in ABOUT or not named.get("uid"):
        return
    where = (named.get("namespace", ""), named.get("name"))
    if known is None:
        yield f"{named['kind']} {named.get('name')} never had the UID {named['uid']}"
    elif known[1:] != where:
        yield f"the UID {named['uid']} is of {known[2]}, not of {named.get('name')}"


def no_job_is_deleted(_memory: CommitFold, commit: Commit) -> Iterator[str]:
    """Managers delete no Job: it belongs to a user."""
    old, new = commit.old, commit.new
    if old is None or leaving(old) or not is_manager(commit.actor):
        return
    if new is None or leaving(new):
        yield "a manager deleted it"


# ---- laws about starts: only an admission starts a job, and only once ----------------------------


def _started(commit: Commit) -> bool:
    """Whether a manager starts a job or pod."""
    old, new = commit.old, commit.new
    if old is None or new is None or not is_manager(commit.actor):
        return False
    if commit.resource == JOBS:
        return suspended(old) and not suspended(new)
    return gated(old) and not gated(new)


def started_by_admission(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """A manager starts a job or pod only while its Workload is admitted."""
    if not _started(commit) or commit.new is None:
        return
    subject = subject_of(commit.new)
    admission = memory.admissions[subject]
    if admission.live or memory.within_lag(admission.ended, commit.at):
        return
    if group := group_of(commit.new):
        workload = memory.get(WORKLOADS, commit.namespace, group)
        if admitted(workload):
            return
    if not admission.ever:
        yield "it was started, but it was never admitted"
    else:
        yield f"it was started {commit.at - admission.ended:g} s after its admission ended"


def one_start_per_admission(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """One admission starts a job once, unless a user suspends it again."""
    if commit.resource != JOBS or not _started(commit) or commit.new is None:
        return
    admission = memory.admissions[subject_of(commit.new)]
    if admission.ever and not admission.unused:
        yield "it was started again without a new admission"


def quota_is_kept_while_pods_run(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """A manager takes a job's quota only when all its remaining pods are being deleted."""
    old, new = commit.old, commit.new
    if old is None or not is_manager(commit.actor) or is_group(old):
        return
    if not reserving(old) or not admitted(old) or reserving(new) or finished(new):
        return
    identity = str(controller(old).get("uid"))
    since = memory.busy.get(identity)
    if since is not None and not memory.within_lag(since, commit.at):
        yield f"it lost its quota, but its pods have been running for {commit.at - since:g} s"
        return
    job = memory.get(JOBS, commit.namespace, str(controller(old).get("name")))
    if job is None or not suspended(job) or identity in memory.meddled:
        return  # a manager that stopped it knows that; of a start it may not have heard
    for pod in memory.all(PODS):
        if controller(pod).get("uid") == identity and not terminal(pod) and not leaving(pod):
            yield "it lost its quota, but a pod of its Job still existed"
            return


def pods_start_on_quota(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """A pod of a queued Job is created only while a Workload of the Job holds quota."""
    if commit.old is not None or commit.new is None:
        return
    owner = controller(commit.new)
    identity = str(owner.get("uid"))
    job = memory.get(JOBS, commit.namespace, str(owner.get("name")))
    if job is None or uid(job) != identity or not queued(job) or identity in memory.meddled:
        return
    admission = memory.admissions[subject_of(job)]
    lost = admission.taken or not suspended(job)
    if lost and memory.within_lag(admission.ended, commit.at):
        return
    mine = [one for one in memory.all(WORKLOADS) if controller(one).get("uid") == identity]
    if not any(map(reserving, mine)):
        yield "its Job has no quota"


def ending_jobs_go_on(_memory: CommitFold, commit: Commit) -> Iterator[str]:
    """A manager neither suspends a Job that is about to end, nor removes its start time."""
    old, new = commit.old, commit.new
    if old is None or new is None or not is_manager(commit.actor):
        return
    if not holds(old, "SuccessCriteriaMet") and not holds(old, "FailureTarget"):
        return
    if suspended(new) and not suspended(old):
        yield "it was about to end, but it was suspended"
    if status(old).get("startTime") and not status(new).get("startTime"):
        yield "it was about to end, but its start time was removed"


# ---- laws about the status of one Workload: no contradictions ------------------------------------


def consistent_conditions(_memory: CommitFold, commit: Commit) -> Iterator[str]:
    """Admitted implies QuotaReserved, which implies an admission, and vice versa."""
    new = commit.new
    if new is None or not is_manager(commit.actor):
        return
    state = status(new)
    has_admission = bool(state.get("admission"))
    if holds(new, "Admitted") and not holds(new, "QuotaReserved"):
        yield "Admitted is True without QuotaReserved"
    if holds(new, "QuotaReserved") and not has_admission:
        yield "QuotaReserved is True without an admission"
    if has_admission and not holds(new, "QuotaReserved"):
        yield "there is an admission, but QuotaReserved is not True"
    kinds = Counter(entry["type"] for entry in state.get("conditions") or ())
    for kind, count in sorted(kinds.items()):
        if count > 1:
            yield f"condition {kind} is there {count} times"
    if holds(new, "Evicted") and reserving(new) and not reserving(commit.old):
        yield "quota was reserved, but Evicted is still True"


def finished_for_ever(_memory: CommitFold, commit: Commit) -> Iterator[str]:
    """Finished is never revoked, and a finished Workload is never admitted again."""
    old, new = commit.old, commit.new
    if old is None or new is None or not finished(old):
        return
    if not finished(new):
        yield "Finished was taken back"
    if holds(new, "QuotaReserved") and not holds(old, "QuotaReserved"):
        yield "it reserved quota after it had finished"


def admission_not_edited(_memory: CommitFold, commit: Commit) -> Iterator[str]:
    """An admission is set and cleared, but not changed while quota is held."""
    old, new = commit.old, commit.new
    if not is_manager(commit.actor) or not reserving(old) or not reserving(new):
        return
    if _core(old) != _core(new):
        yield "the admission changed while quota was held"


def _core(workload: Obj | None) -> object:
    admission = status(workload or {}).get("admission") or {}
    parts = [
        (entry["name"], entry.get("flavors"), entry.get("count"))
        for entry in admission.get("podSetAssignments") or ()
    ]
    return admission.get("clusterQueue"), parts


def checks_before_admission(memory: CommitFold, commit: Commit) -> Iterator[str]:
    """A Workload becomes Admitted only when every required admission check is Ready."""
    new = commit.new
    if new is None or not is_manager(commit.actor) or not admitted(new) or admitted(commit.old):
        return
    states = {
        entry["name"]: entry.get("state") for entry in status(new).get("admissionChecks") or ()
    }
    for check, state in sorted(states.items()):
        if state != "Ready":
            yield f"it became Admitted while admission check {check} was {state}"
    queue = memory.get(CLUSTER_QUEUES, "", queue_of(new))
    if queue is None or memory.within_lag(memory.required.get(queue_of(new), -math.inf), commit.at):
        return
    for check in sorted(_required(queue, new) - set(states)):
        yield f"it became Admitted without admission check {check}"


def answers_end_with_quota(_memory: CommitFold, commit: Commit) -> Iterator[str]:
    """Answers of checks, except `Retry`, are removed when a manager takes a Workload's quota.

    An active Workload keeps a Rejected until it is deactivated for it.
    """
    old, new = commit.old, commit.new
    if new is None or not is_manager(commit.actor) or not reserving(old) or reserving(new):
        return
    if finished(new):
        return
    for entry in status(new).get("admissionChecks") or ():
        state = entry.get("state")
        if state in ("Retry", "Rejected") and spec(new).get("active") is not False:
            continue
        left = [field for field in ("reason", "podSetUpdates") if entry.get(field)]
        if state != "Pending" or left:
            said = " with ".join((str(state), *left))
            yield f"it lost its quota, but admission check {entry['name']} is still {said}"


def _required(queue: Obj, workload: Obj) -> set[str]:
    rules = (spec(queue).get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    assigned = {
        flavor
        for entry in status(workload)["admission"].get("podSetAssignments") or ()
        for flavor in (entry.get("flavors") or {}).values()
    }
    return {
        rule["name"]
        for rule in rules
        if not rule.get("onFlavors") or assigned & set(rule["onFlavors"])
    }


# --------------------------------------------------------------------------------------------------

Check = Callable[[CommitFold, Commit], Iterator[str]]


@attrs.frozen
class SafetyLaw:
    """A law with its kinds and the function that finds violations."""

    law: Law
    resources: tuple[str, ...]
    check: Check


def _law(name: str, check: Check, *resources: str) -> SafetyLaw:
    """Makes a law whose sentence is the first line of the function's docstring."""
    sentence = (check.__doc__ or "").partition("\n")[0]
    return SafetyLaw(Law(name, COMMIT, sentence), resources, check)


LED = (WORKLOADS, JOBS, PODS, CLUSTER_QUEUES, LOCAL_QUEUES)
"""The resources that only the leader writes."""

SAFETY = (
    _law("one-workload-per-job", one_workload_per_job, WORKLOADS),
    _law("owners-are-real", owners_are_real, WORKLOADS),
    _law("finished-with-cause", finished_with_cause, WORKLOADS),
    _law("finished-for-ever", finished_for_ever, WORKLOADS),
    _law("consistent-conditions", consistent_conditions, WORKLOADS),
    _law("admission-not-edited", admission_not_edited, WORKLOADS),
    _law("checks-before-admission", checks_before_admission, WORKLOADS),
    _law("answers-end-with-quota", answers_end_with_quota, WORKLOADS),
    _law("started-by-admission", started_by_admission, JOBS, PODS),
    _law("one-start-per-admission", one_start_per_admission, JOBS),
    _law("quota-is-kept-while-pods-run", quota_is_kept_while_pods_run, WORKLOADS),
    _law("pods-start-on-quota", pods_start_on_quota, PODS),
    _law("ending-jobs-go-on", ending_jobs_go_on, JOBS),
    _law("edits-are-kept", edits_are_kept, JOBS),
    _law("starts-are-of-present-templates", starts_are_of_present_templates, JOBS),
    _law("quota-not-exceeded", quota_not_exceeded, WORKLOADS),
    _law("no-quota-in-a-cycle", no_quota_in_a_cycle, WORKLOADS),
    _law("usage-is-what-pods-request", reservations.usage_is_what_pods_request, WORKLOADS),
    _law("reserved-from-its-queue", reservations.reserved_from_its_queue, WORKLOADS),
    _law("reserved-only-if-allowed", reservations.reserved_only_if_allowed, WORKLOADS),
    _law("events-are-about-real-objects", events_are_about_real_objects, EVENTS),
    _law("waiting-is-explained-once", waiting_is_explained_once, EVENTS),
    _law("no-job-is-deleted", no_job_is_deleted, JOBS),
    _law("only-the-leader-writes", only_the_leader_writes, *LED),
    _law("lease-is-taken-when-free", lease_is_taken_when_free, LEASES),
    _law("bounded-steps", bounded_steps, WORKLOADS),
    _law("no-burst", no_burst, *LED),
)
"""The laws in the order they are checked."""
