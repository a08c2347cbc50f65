"""Laws about starts: only an admission starts a job, and only once."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.laws.memory import Memory, is_manager
from kueuelib.testing.storm.laws.reading import (
    JOBS,
    PODS,
    WORKLOADS,
    admitted,
    controller,
    finished,
    gated,
    group_of,
    holds,
    is_group,
    leaving,
    queued,
    reserving,
    status,
    subject_of,
    suspended,
    terminal,
    uid,
)


def _started(commit: Commit) -> bool:
    """Whether a manager starts a job or pod."""
    old, new = commit.old, commit.new
    if old is None or new is None or not is_manager(commit.actor):
        return False
    if commit.resource == JOBS:
        return suspended(old) and not suspended(new)
    return gated(old) and not gated(new)


def started_by_admission(memory: Memory, commit: Commit) -> Iterator[str]:
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


def one_start_per_admission(memory: Memory, commit: Commit) -> Iterator[str]:
    """One admission starts a job once, unless a user suspends it again."""
    if commit.resource != JOBS or not _started(commit) or commit.new is None:
        return
    admission = memory.admissions[subject_of(commit.new)]
    if admission.ever and not admission.unused:
        yield "it was started again without a new admission"


def quota_is_kept_while_pods_run(memory: Memory, commit: Commit) -> Iterator[str]:
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


def pods_start_on_quota(memory: Memory, commit: Commit) -> Iterator[str]:
    """A pod of a queued Job is created only while a Workload of the Job holds quota."""
    if commit.old is not None or commit.new is None:
        return
    owner = controller(commit.new)
    identity = str(owner.get("uid"))
    job = memory.get(JOBS, commit.namespace, str(owner.get("name")))
    if job is None or uid(job) != identity or not queued(job) or identity in memory.meddled:
        return
    if not suspended(job) and memory.within_lag(
        memory.admissions[subject_of(job)].ended, commit.at
    ):
        return
    mine = [one for one in memory.all(WORKLOADS) if controller(one).get("uid") == identity]
    if not any(map(reserving, mine)):
        yield "its Job has no quota"


def ending_jobs_go_on(_memory: Memory, commit: Commit) -> Iterator[str]:
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
