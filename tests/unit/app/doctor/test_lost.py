"""What is lost, deleted or held elsewhere: one cause each, and commands that bring it back."""

from __future__ import annotations

import copy
import re
from typing import Any

import attrs
import pytest
from tests.unit.app.doctor.test_findings import (
    CRD,
    ERROR,
    HINT,
    LONG_AGO,
    NOW,
    QUEUE,
    WARNING,
    WORKLOADS,
    bypass_the_webhook,
    die,
    drain_a_group,
    end_the_queue,
    lose_a_flavor,
    notice_another,
    shrink_the_cohort,
    suspend_for_nobody,
)

from kueuelib.api.meta import format_time
from kueuelib.api.names import workload_name
from kueuelib.app.configuration import Configuration
from kueuelib.app.doctor.snapshot import WebhookProbe


def test_a_flavor_that_does_not_exist_is_one_cause(patient: Any) -> None:
    lose_a_flavor(patient)
    queue = copy.deepcopy(patient.get("ClusterQueue"))
    queue["metadata"]["name"] = "second"
    queue["status"] |= {"reservingWorkloads": 0, "flavorsReservation": []}
    patient.objects.append(queue)
    (found,) = (one for name, one in patient.found() if name == "flavor-missing")
    assert (found.severity, str(found.subject)) == (ERROR, "ResourceFlavor absent")
    assert found.problem.endswith("nothing is admitted in ClusterQueue cq, second, which names it")
    assert "create absent, or take it out" in found.fix
    assert patient.causes() == {"queue-inactive": "flavor-missing"}


def test_a_topology_that_does_not_exist_is_one_cause(patient: Any) -> None:
    patient.get("ResourceFlavor")["spec"] |= {"topologyName": "racks", "nodeLabels": {"a": "b"}}
    (found,) = (one for name, one in patient.found() if name == "flavor-topology")
    assert (found.severity, str(found.subject)) == (ERROR, "ResourceFlavor f")
    assert found.problem == (
        'spec.topologyName is "racks", but there is no such Topology, so nothing is admitted in '
        "ClusterQueue cq, which names the flavor"
    )
    assert patient.causes()["queue-inactive"] == "flavor-topology"


def test_quota_of_a_queue_that_a_local_queue_names_is_one_cause(patient: Any) -> None:
    patient.remove("ClusterQueue")
    patient.remove("Node")
    assert patient.causes() == {"quota-lost": "local-queue"}


def test_a_cohort_does_not_repeat_what_its_queue_holds_too_much(patient: Any) -> None:
    shrink_the_cohort(patient)
    for name in ("cq", "other"):
        flavor = patient.get("ClusterQueue", name)["spec"]["resourceGroups"][0]["flavors"][0]
        flavor["resources"][0]["borrowingLimit"] = "1"
    assert str(patient.only("quota-exceeded").subject) == QUEUE


def test_what_another_manager_did_to_a_workload_that_is_gone_is_over(patient: Any) -> None:
    notice_another(patient)
    event = patient.get("Event")
    event["involvedObject"]["name"] = "gone"
    assert patient.found() == []
    patient.unseen = {"Workload": "workloads is forbidden"}
    assert "another-decides" in [name for name, _ in patient.found()]


def test_another_manager_is_over_once_the_lease_has_changed_hands(patient: Any) -> None:
    """The one that led has left, or another one leads since; without a Lease, an Event counts."""
    notice_another(patient, ago=60)
    spec = patient.get("Lease")["spec"]
    election = attrs.evolve(Configuration().leader_election, leader_elect=False)
    patient.configuration = attrs.evolve(Configuration(), leader_election=election)
    for changes, over in (
        ({"acquireTime": format_time(NOW - 300)}, False),
        ({"acquireTime": format_time(NOW - 30)}, True),
        ({"holderIdentity": "", "renewTime": format_time(NOW - 30)}, True),
        ({"holderIdentity": "", "renewTime": format_time(NOW - 90)}, False),
        ({"holderIdentity": "gone", "renewTime": format_time(NOW - 70)}, True),
        ({"holderIdentity": "gone", "renewTime": format_time(NOW - 80)}, False),
        ({"renewTime": None}, False),
    ):
        spec.update(changes)
        assert [name for name, _ in patient.found()] == ([] if over else ["another-decides"])
    end = format_time(NOW - 60 + 600)
    fix = patient.only("another-decides").fix
    assert fix.endswith(
        f"reported until {end}, or until the Event is deleted: kubectl -n ns delete event e"
    )


def test_only_pods_that_nothing_queues_have_bypassed_the_webhook(patient: Any) -> None:
    pod = bypass_the_webhook(patient)
    again = "kubectl get -n ns pod free -o yaml | sed '/^  nodeName:/d' | kubectl replace --force"
    assert patient.only("pod-unqueued").fix.startswith(again)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    assert patient.only("pod-unqueued").fix.startswith("kubectl delete -n ns pod free  # Replica")
    for change in (
        {"ownerReferences": [{**owner, "apiVersion": "batch/v1", "kind": "Job"}]},
        {"finalizers": ["kueue.x-k8s.io/managed"]},
        {"namespace": "kube-system"},
    ):
        before = dict(pod["metadata"])
        pod["metadata"].update(change)
        assert patient.found() == []
        pod["metadata"] = before
    pod["spec"] = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    assert patient.found() == []
    pod["spec"], pod["status"] = {}, {"phase": "Succeeded"}
    assert patient.found() == []
    pod["status"] = {}
    patient.configuration = Configuration()
    assert patient.found() == [], "Pods are not queued"


def test_a_kind_that_has_come_back_is_given_time(patient: Any) -> None:
    suspend_for_nobody(patient)
    (established, _) = patient.get(CRD, WORKLOADS)["status"]["conditions"]
    established["lastTransitionTime"] = format_time(NOW - 30)
    assert patient.found() == []
    established["lastTransitionTime"] = LONG_AGO
    patient.only("job-unqueued")


def test_no_pod_is_created_in_a_namespace_that_is_deleted(patient: Any) -> None:
    drain_a_group(patient)
    end = "kubectl delete workload g -n ns"
    fix = patient.only("pod-finalizer-stuck").fix
    assert fix == f"create a pod in its place; or, to end the group and its other pods: {end}"
    patient.get("Namespace")["metadata"]["deletionTimestamp"] = LONG_AGO
    assert patient.only("pod-finalizer-stuck").fix.startswith(f"{end}  # ")


def test_a_queue_that_is_deleted_while_workloads_wait_is_an_error(patient: Any) -> None:
    end_the_queue(patient)
    found = dict(patient.found())
    assert found.keys() == {"queue-inactive", "finalizer-stuck"}
    assert found["queue-inactive"].severity is ERROR
    assert found["queue-inactive"].problem.endswith(
        "is terminating; these Workloads wait in it: ns/waits"
    )
    assert found["finalizer-stuck"].severity is HINT
    save = "(set -C; kubectl get clusterqueue cq -o yaml > clusterqueue-cq.yaml)"
    again = f"{save} && kubectl replace --force --timeout=24h -f clusterqueue-cq.yaml  # "
    assert all(one.fix.startswith(again) for one in found.values())
    assert patient.causes() == {"finalizer-stuck": "queue-inactive"}
    patient.remove("Workload", "waits")
    assert {one.severity for _, one in patient.found()} == {HINT}


def test_a_lost_local_queue_is_said_to_have_led_where_something_still_tells(patient: Any) -> None:
    patient.remove("LocalQueue")
    found = dict(patient.found())
    led = "; it led to ClusterQueue cq"
    assert found["queue-name"].problem.endswith(f"these Workloads name it: waits{led}")
    assert found["quota-lost"].problem.endswith(led)
    patient.remove("Workload", "runs")
    assert "it led" not in dict(patient.found())["queue-name"].problem
    about = {"kind": "Workload", "namespace": "ns", "name": "waits"}
    said = "Quota reserved in ClusterQueue old, wait time since queued was 3s"
    patient.add("Event", "e", "ns", reason="QuotaReserved", involvedObject=about, message=said)
    assert dict(patient.found())["queue-name"].problem.endswith("; it led to ClusterQueue old")
    patient.remove("Event")
    labels = {f"kueue.x-k8s.io/{one}-queue-name": f"{one}-1" for one in ("local", "cluster")}
    patient.add("Pod", "p", "ns", metadata={"labels": labels}, spec={}, status={})
    assert "it led" not in dict(patient.found())["queue-name"].problem, "of another queue"
    labels["kueue.x-k8s.io/local-queue-name"] = "lq"
    assert dict(patient.found())["queue-name"].problem.endswith("to ClusterQueue cluster-1")


HELD = ["kueue.x-k8s.io/resource-in-use", "velero.io/hold"]


@pytest.mark.parametrize(
    ("kind", "name", "finalizers", "user"),
    [
        ("ClusterQueue", "cq", HELD[1:], "LocalQueue ns/lq"),
        ("ClusterQueue", "cq", HELD, ""),
        ("ResourceFlavor", "f", HELD, "ClusterQueue cq"),
        ("ResourceFlavor", "f", HELD[1:], "ClusterQueue cq"),
        ("LocalQueue", "lq", HELD[1:], "Workload ns/waits"),
        ("Cohort", "all", HELD[1:], "ClusterQueue cq"),
        ("WorkloadPriorityClass", "high", HELD[1:], "Workload ns/waits"),
    ],
)
def test_every_command_for_what_is_needed_saves_it_first_and_creates_it_again(
    patient: Any, kind: str, name: str, finalizers: list[str], user: str
) -> None:
    patient.remove("Workload", "runs")
    patient.get("ClusterQueue")["spec"]["cohortName"] = "all"
    patient.get("Workload")["spec"]["priorityClassRef"] = {
        "group": "kueue.x-k8s.io",
        "kind": "WorkloadPriorityClass",
        "name": "high",
    }
    patient.add("WorkloadPriorityClass", "high", value=1)
    patient.add("Cohort", "all", spec={})
    meta = patient.get(kind, name)["metadata"]
    meta.update(deletionTimestamp=format_time(patient.now - 600), finalizers=finalizers)
    where = "-n ns " if kind == "LocalQueue" else ""
    what, file = f"{where}{kind.lower()} {name}", f"{kind.lower()}-{name}.yaml"
    found = [one for one in patient.found() if one[0] in ("queue-inactive", "finalizer-stuck")]
    fixes = [one.fix for _, one in found if one.subject.name == name]
    stuck = [one for check, one in found if check == "finalizer-stuck"]
    assert len(fixes) == len(stuck) + (kind == "ClusterQueue")
    assert "queue-status" not in dict(patient.found()), "nobody writes it any longer"
    assert all(user in one.problem for one in stuck)
    for fix in fixes:
        save, patch, again = fix.partition("  # ")[0].split(" && ")
        assert save == f"(set -C; kubectl get {what} -o yaml > {file})"
        removed = re.findall('"remove","path":"/metadata/finalizers/([0-9])"', patch)
        assert patch.startswith(f"kubectl patch {what} --type=json -p '[")
        assert sorted(map(int, removed)) == [*range(len(finalizers))]
        assert again.startswith("sed '")
        assert again.endswith(f"' {file} | {AGAIN} -f -")
        assert all(rf"\|^  - {one}$|d" in again for one in finalizers)


AGAIN = "kubectl replace --force --timeout=24h"


@pytest.mark.parametrize(
    ("kind", "name", "what"),
    [("Workload", "waits", "-n ns workload waits"), ("LocalQueue", "lq", "-n ns localqueue lq")],
)
def test_what_only_another_program_keeps_is_named_and_misses_no_queue(
    patient: Any, kind: str, name: str, what: str
) -> None:
    patient.get("Namespace")["metadata"]["deletionTimestamp"] = LONG_AGO
    meta = patient.get(kind, name)["metadata"]
    if kind == "Workload":
        patient.get(kind, name)["spec"]["queueName"] = "gone with the namespace"
    meta.update(deletionTimestamp=format_time(patient.now - 30), finalizers=["velero.io/hold"])
    assert "finalizer-stuck" not in dict(patient.found())
    meta["deletionTimestamp"] = format_time(patient.now - 600)
    found = dict(patient.found())
    assert "queue-name" not in found
    assert found["finalizer-stuck"].severity is WARNING
    assert found["finalizer-stuck"].problem == (
        "it was deleted 10m ago, and finalizer velero.io/hold of another program keeps it, and "
        "with it its namespace"
    )
    assert found["finalizer-stuck"].fix.startswith(f"kubectl patch {what} --type=json -p '[")


def keep_a_namespace(patient: Any, name: str) -> None:
    """An API that does not answer keeps it."""
    unseen = {"type": "NamespaceDeletionDiscoveryFailure", "status": "True", "message": "stale: x"}
    gone = {"deletionTimestamp": format_time(patient.now - 600)}
    patient.add("Namespace", name, metadata=gone, status={"conditions": [unseen]})
    silent = {"type": "Available", "status": "False", "reason": "ServiceNotFound"}
    patient.add("APIService", "v1beta1.metrics.k8s.io", spec={}, status={"conditions": [silent]})


def test_an_api_that_does_not_answer_keeps_a_namespace(patient: Any) -> None:
    keep_a_namespace(patient, "team-c")
    found = patient.only("namespace-stuck")
    assert (found.severity, str(found.subject)) == (WARNING, "Namespace team-c")
    assert found.problem == "it was deleted 10m ago and stays: stale: x"
    assert found.fix == (
        "kubectl describe apiservice v1beta1.metrics.k8s.io  # repair its server; or, if nothing "
        "needs the API: kubectl delete apiservice v1beta1.metrics.k8s.io"
    )
    patient.get("Namespace", "team-c")["metadata"]["deletionTimestamp"] = format_time(patient.now)
    assert patient.found() == []


def test_what_keeps_the_namespace_of_the_manager_is_why_it_cannot_lead(patient: Any) -> None:
    keep_a_namespace(patient, "kueue-system")
    patient.remove("ServiceAccount", "kueue-controller-manager")
    ends = "unable to create new content in namespace kueue-system because it is being terminated"
    refusal = f'leases.coordination.k8s.io "kueuelib-doctor" is forbidden: {ends}'
    patient.calls.append(WebhookProbe("create Leases", "", refusal=refusal))
    die(patient)
    assert dict(patient.found())["namespace-stuck"].severity is ERROR
    causes = patient.causes()
    assert causes["account-missing"] == causes["write-refused"] == "namespace-stuck"
    assert set(causes.values()) == {"namespace-stuck"}, "so that one error is shown"
    patient.remove("APIService", "v1beta1.metrics.k8s.io")
    left = {"type": "NamespaceContentRemaining", "status": "True", "message": "pods. has 1"}
    patient.get("Namespace", "kueue-system")["status"]["conditions"] = [left]
    found = dict(patient.found())["namespace-stuck"]
    assert found.problem.endswith(" and stays: pods. has 1")
    assert found.fix == "kubectl describe namespace kueue-system  # says what is left in it"


def test_a_workload_that_has_the_name_of_the_one_of_a_job_is_named(patient: Any) -> None:
    suspend_for_nobody(patient)
    name = workload_name("Job", "batch", "alone", "uid-alone")
    taken = patient.add("Workload", name, "ns", spec=patient.get("Workload", "waits")["spec"])
    found = dict(patient.found())["job-unqueued"]
    whose = f"its Workload would be {name}, and there is one of this name that has no owner"
    assert found.problem.endswith(f"no Workload was made for it: {whose}")
    assert found.fix == f"kubectl delete -n ns workload {name}  # if nothing needs it"
    taken["metadata"]["labels"] = {"kueue.x-k8s.io/job-uid": "uid-alone"}
    assert "job-unqueued" not in dict(patient.found()), "the Job takes it back"
    end = {"type": "Finished", "status": "True", "reason": "OwnerNotFound", "message": ""}
    taken["status"] = {"conditions": [{**end, "lastTransitionTime": LONG_AGO}]}
    found = patient.only("never-ran")
    assert found.problem.startswith("it is finished (OwnerNotFound), and Job ns/alone is suspended")
    assert found.fix.startswith(f"kubectl -n ns delete workload {name}")
