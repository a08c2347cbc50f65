"""What keeps many objects waiting is one finding, and the object that has to change is named."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kueuelib.app.doctor.finding import Severity
from kueuelib.app.doctor.snapshot import STARTED, WITHDRAWN

from .conftest import LONG_AGO, QUEUE
from .test_findings import told


def ask(patient: Any, name: str, **resources: Any) -> None:
    """A Workload of a Job whose container has these resources."""
    waits = copy.deepcopy(patient.get("Workload", "waits"))
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-{name}"}
    waits["metadata"] |= {"name": f"job-{name}", "uid": name}
    waits["metadata"]["ownerReferences"] = [{**job, "controller": True}]
    (container,) = waits["spec"]["podSets"][0]["template"]["spec"]["containers"]
    container["resources"] = resources
    patient.objects.append(waits)


def test_a_limit_range_with_a_default_below_the_requests_is_named_once(patient: Any) -> None:
    for name in ("a", "b"):
        ask(patient, name, requests={"cpu": "1"})
    patient.remove("Workload", "waits")
    default = {"type": "Container", "default": {"cpu": "500m"}}
    patient.add("LimitRange", "small", "ns", spec={"limits": [default]})
    found = patient.only("never-fits")
    assert str(found.subject) == "LimitRange ns/small"
    assert found.problem == (
        "no pods can be created for these Workloads: ns/job-a, ns/job-b: podSets.main.containers[0]"
        "[cpu] requests exceed it's limits (LimitRange ns/small: spec.limits[0].default[cpu] is "
        "500m)"
    )
    fix = "give its containers limits of their own, or change spec.limits[0].default[cpu] of "
    assert found.fix == f"kubectl -n ns edit limitrange small  # {fix}LimitRange ns/small"


def test_limits_of_their_own_below_the_requests_are_one_finding(patient: Any) -> None:
    for name in ("a", "b"):
        ask(patient, name, requests={"cpu": "2"}, limits={"cpu": "1"})
    found = patient.only("never-fits")
    assert str(found.subject) == "Workload ns/job-a"
    assert found.problem.startswith("no pods can be created for these Workloads: ns/job-a, ns/job-")
    fix = "correct the requests and limits of its containers"
    assert found.fix == f"kubectl -n ns get job a -o yaml  # {fix}"


def test_a_runtime_class_that_adds_too_much_is_named(patient: Any) -> None:
    ask(patient, "vm", requests={"cpu": "1"})
    patient.remove("Workload", "waits")
    patient.get("Workload", "job-vm")["spec"]["podSets"][0]["template"]["spec"] |= {
        "runtimeClassName": "vm"
    }
    patient.add("RuntimeClass", "vm", handler="vm", overhead={"podFixed": {"cpu": "1500m"}})
    most = {"type": "Pod", "max": {"cpu": "2"}}
    patient.add("LimitRange", "small", "ns", spec={"limits": [most]})
    found = patient.only("never-fits")
    assert found.problem.endswith("is 2, RuntimeClass vm: overhead.podFixed[cpu] is 1500m)")
    assert "change its requests and limits, or change spec.limits[0].max[cpu]" in found.fix


SECURITY = (
    'Error creating: pods "{}-x" is forbidden: violates PodSecurity "restricted:latest": '
    'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)'
)
ENFORCED = (
    "kubectl get namespace ns -o yaml  # pod-security.kubernetes.io/enforce asks for "
    "restricted:latest: submit what it permits, or change that label"
)
NO_CLASS = 'Error creating: pods "{}-x" is forbidden: pod rejected: RuntimeClass "vm" not found'
NO_PRIORITY = 'Error creating: pods "{}-" is forbidden: no PriorityClass with name gold was found'
CREATED = "kubectl create priorityclass gold --value=VALUE  # its former value; or submit what it "


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        (
            SECURITY,
            ENFORCED,
        ),
        (NO_CLASS, "kubectl get runtimeclasses  # create vm, or submit what it permits"),
        (NO_PRIORITY, f"{CREATED}permits"),
    ],
)
def test_what_refuses_the_pods_of_many_jobs_is_one_finding(
    patient: Any, message: str, fix: str
) -> None:
    for name in ("a", "b", "c"):
        ask(patient, name, requests={"cpu": "3"})
        patient.add("Job", name, "ns", spec={"parallelism": 1}, status={})
        told(patient, "Job", name, "FailedCreate", message.format(name))
    found = patient.only("write-refused")
    assert str(found.subject) == "Job ns/a"
    assert message.format("a") in found.problem
    assert found.problem.endswith("; the same for 2 others: Job ns/b, Job ns/c")
    assert found.fix == fix


def of_runs(patient: Any, name: str, **status: Any) -> dict[str, Any]:
    """A pod of the Job `job`, whose Workload is `runs`."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "uid-job"}
    meta = {
        "labels": {
            "batch.kubernetes.io/job-name": "job",
            "batch.kubernetes.io/controller-uid": "uid-job",
            "kueue.x-k8s.io/podset": "main",
        },
        "annotations": {"kueue.x-k8s.io/workload": "runs"},
        "ownerReferences": [{**job, "controller": True}],
    }
    pod: dict[str, Any] = patient.add(STARTED, name, "ns", metadata=meta, spec={}, status=status)
    return pod


def unplaced(why: str, since: str = LONG_AGO) -> dict[str, Any]:
    """The status of a pod without a node."""
    tried = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    said = {"message": f"0/1 nodes are available: {why}.", "lastTransitionTime": since}
    return {"phase": "Pending", "conditions": [{**tried, **said}]}


def test_quota_beyond_the_nodes_is_an_error_once_pods_cannot_start(patient: Any) -> None:
    patient.get("Node")["status"]["allocatable"]["cpu"] = "2"
    pod = of_runs(patient, "job-x", **unplaced("1 Insufficient cpu"))
    found = patient.only("quota-promised")
    assert found.severity is Severity.ERROR
    assert found.problem.endswith("(nodes: 1 usable); these pods cannot start: ns/job-x")
    for status in (
        unplaced("1 Insufficient memory"),
        unplaced("1 Insufficient cpu", patient.get("Lease")["spec"]["renewTime"]),
        {"phase": "Running"},
    ):
        pod["status"] = status
        assert patient.only("quota-promised").severity is Severity.WARNING
    pod["status"] = unplaced("1 node(s) were unschedulable")
    patient.get("Node")["spec"]["unschedulable"] = True
    assert patient.only("quota-promised").severity is Severity.ERROR


def test_pods_that_a_deleted_job_left_run_without_quota(patient: Any) -> None:
    patient.remove("Workload", "waits")
    pods = [of_runs(patient, name, phase="Running") for name in ("job-x", "job-y")]
    assert patient.found() == []
    for pod in pods:
        del pod["metadata"]["ownerReferences"]
    assert patient.found() == [], "their Workload still holds quota"
    gone = {"reason": "OwnerNotFound", "message": "", "lastTransitionTime": LONG_AGO}
    end = {"type": "Finished", "status": "True", **gone}
    patient.get("Workload", "runs")["status"]["conditions"].append(end)
    patient.get("ClusterQueue")["status"] = {
        **patient.get("ClusterQueue")["status"],
        "reservingWorkloads": 0,
        "flavorsReservation": [],
    }
    found = patient.only("pod-unqueued")
    assert (found.severity, str(found.subject)) == (Severity.WARNING, "Job ns/job")
    assert found.problem.endswith("without its pods, which run on without quota: job-x, job-y")
    label = "batch.kubernetes.io/controller-uid=uid-job"
    assert found.fix == f"kubectl delete -n ns pods -l {label}  # or let them end"
    for pod in pods:
        pod["status"] = {"phase": "Succeeded"}
    assert patient.found() == []


def test_pods_of_another_kind_of_job_are_named_with_what_keeps_them(patient: Any) -> None:
    pod = of_runs(patient, "set-x", phase="Running")
    pod["metadata"]["annotations"] = {"kueue.x-k8s.io/workload": "gone"}
    assert patient.found() == [], "something else may have ended its Workload"
    pod["metadata"]["labels"] = {"kueue.x-k8s.io/podset": "main"}
    del pod["metadata"]["ownerReferences"]
    found = patient.only("pod-unqueued")
    assert str(found.subject) == "Pod ns/set-x"
    assert found.fix == "kubectl delete -n ns pods set-x  # or let them end"


def withdraw(patient: Any) -> dict[str, Any]:
    """A Job whose queue name was removed, so that the manager has deleted its Workload."""
    spec = {"suspend": True}
    job: dict[str, Any] = patient.add(WITHDRAWN, "astray", "ns", spec=spec, status={})
    lost = "Deleted Workload ns/job-astray: the job is no longer queued"
    told(patient, "Job", "astray", "DeletedWorkload", lost)
    return job


def test_a_waiting_job_that_lost_its_queue_name_is_reported(patient: Any) -> None:
    job = withdraw(patient)
    found = patient.only("job-unqueued")
    assert (found.severity, str(found.subject)) == (Severity.WARNING, "Job ns/astray")
    assert found.fix == f"kubectl label -n ns job astray {QUEUE}=lq  # or delete it"
    patient.add("LocalQueue", "other", "ns", spec={"clusterQueue": "cq"})
    fix = f"kubectl get -n ns localqueues  # label Job astray with {QUEUE}"
    assert patient.only("job-unqueued").fix == fix
    for spec in ({"suspend": False}, {"suspend": True, "labels": {QUEUE: "lq"}}):
        job["spec"], job["metadata"]["labels"] = spec, spec.get("labels", {})
        assert patient.found() == []


def test_its_workload_may_be_left_by_another_manager(patient: Any) -> None:
    ask(patient, "astray", requests={"cpu": "3"})
    patient.add(WITHDRAWN, "astray", "ns", spec={"suspend": True}, status={})
    patient.add("LocalQueue", "other", "ns", spec={"clusterQueue": "cq"})
    found = patient.only("job-unqueued")
    assert found.problem.endswith("starts it, even if Workload job-astray is admitted")
    assert found.fix == f"kubectl label -n ns job astray {QUEUE}=lq  # or delete it"
