"""Laws about starts: only an admission starts a job, and only once."""

from __future__ import annotations

from collections.abc import Iterator

from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.laws.memory import Memory, is_manager
from kueuelib.testing.storm.laws.reading import (
    JOBS,
    WORKLOADS,
    admitted,
    controller,
    finished,
    gated,
    group_of,
    is_group,
    reserving,
    subject_of,
    suspended,
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
    """A manager takes quota from a Workload only when its job has no pods but leaving ones."""
    old, new = commit.old, commit.new
    if old is None or not is_manager(commit.actor) or is_group(old):
        return
    if not reserving(old) or not admitted(old) or reserving(new) or finished(new):
        return
    since = memory.busy.get(str(controller(old).get("uid")))
    if since is not None and not memory.within_lag(since, commit.at):
        yield f"it lost its quota, but its pods have been running for {commit.at - since:g} s"
