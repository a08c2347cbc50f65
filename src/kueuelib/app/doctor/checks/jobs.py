"""Jobs and groups of Pods after which nothing follows: neither their Workload's end, nor pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kueuelib.api.batch import ENDS, has_ended
from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Obj, annotations_of, key_of
from kueuelib.api.names import ADMITTED, GROUP_TOTAL_COUNT
from kueuelib.api.phrases import counted, duration
from kueuelib.api.workload_state import is_finished
from kueuelib.app.doctor.finding import Finding, Severity, check, subject_of
from kueuelib.app.doctor.manager import REFUSED, STATUS_LOST, look, no_manager
from kueuelib.app.doctor.snapshot import ClusterSnapshot
from kueuelib.app.doctor.starts import PATIENCE
from kueuelib.jobs.pods.reading import PodStage, group_of, stage_of
from kueuelib.workload.states import Phase, condition, has_quota, phase_of

_CONTROLLED_BY = "kubernetes.io/job-controller"


@check("never-finished", "Job", "Pod", WORKLOADS.kind, momentary=True)
def never_finished(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Workloads that hold quota although their Job or group ended a while ago."""
    ended = [(job, snapshot.workload_of(job), _ended(job)) for job in snapshot.all("Job")]
    groups: dict[tuple[str, str], list[Obj]] = {}
    for pod in snapshot.all("Pod"):
        if name := group_of(pod):
            groups.setdefault((pod["metadata"]["namespace"], name), []).append(pod)
    for (namespace, name), pods in groups.items():
        workload = snapshot.find(WORKLOADS.kind, name, namespace)
        ended.append((pods[0], workload, _group_ended(pods)))
    stuck = [
        (job, workload, snapshot.age(at))
        for job, workload, at in ended
        if at and workload is not None and has_quota(workload) and not is_finished(workload)
    ]
    stuck = [one for one in stuck if one[2] > PATIENCE]
    if stuck:
        job, workload, age = stuck[0]
        problem = f"{key_of(job)} ended {duration(age)} ago, and it is not finished: it holds quota"
        if len(stuck) > 1:
            problem += f"; so do {len(stuck) - 1} others whose jobs have ended"
        refused = (REFUSED,) if snapshot.refusal(workload, job) else ()
        follows = (*refused, *no_manager(snapshot), STATUS_LOST)
        subject = subject_of(WORKLOADS.kind, workload)
        yield Finding(Severity.ERROR, subject, problem, look(snapshot), follows)


def _ended(job: Obj) -> str:
    """When a Job ended; empty if it has not."""
    for entry in (job.get("status") or {}).get("conditions") or ():
        if entry["type"] in ENDS and entry["status"] == "True":
            return str(entry.get("lastTransitionTime") or "")
    return ""


def _group_ended(pods: Sequence[Obj]) -> str:
    """When the last Pod of a group that has succeeded changed; empty if the group may continue."""
    wanted = {annotations_of(pod).get(GROUP_TOTAL_COUNT) for pod in pods}
    if wanted != {str(len(pods))} or any(stage_of(pod) is not PodStage.SUCCEEDED for pod in pods):
        return ""
    times = [
        str(entry.get("lastTransitionTime") or "")
        for pod in pods
        for entry in (pod.get("status") or {}).get("conditions") or ()
    ]
    return max(times, default="")


@check("job-untouched", "Job", WORKLOADS.kind, momentary=True)
def untouched(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Jobs that were started a while ago, and that their controller has not begun."""
    idle: list[tuple[Obj, float]] = []
    for job in snapshot.all("Job"):
        spec, workload = job["spec"], snapshot.workload_of(job)
        begun = {"startTime", "active"} & (job.get("status") or {}).keys()
        if workload is None or spec.get("suspend") or begun:
            continue
        if spec.get("managedBy", _CONTROLLED_BY) != _CONTROLLED_BY or has_ended(job):
            continue
        times = [entry.get("time") for entry in job["metadata"].get("managedFields") or ()]
        times = [*times, condition(workload, ADMITTED).get("lastTransitionTime")]
        age = min((snapshot.age(one) for one in times if one), default=0.0)
        if phase_of(workload) is Phase.ADMITTED and age > PATIENCE:
            idle.append((job, age))
    if idle:
        job, age = idle[0]
        problem = (
            f"it was started {duration(age)} ago, and the Job controller has not begun it: no "
            f"startTime, no pods; {counted(len(idle), 'Job')} in all. Is kube-controller-manager "
            "running?"
        )
        fix = "kubectl -n kube-system get pods -l component=kube-controller-manager"
        yield Finding(Severity.ERROR, subject_of("Job", job), problem, fix)
