"""What is to be done about a finding, where it depends on what else there is."""

from __future__ import annotations

import copy
from typing import Any

import attrs
import pytest
from tests.unit.app.doctor.test_findings import (
    MUTATING,
    NOW,
    break_the_calls,
    disable_jobs,
    gate_for_a_group,
    gate_for_nobody,
    keep_a_finalizer,
    lead_elsewhere,
    leave,
    let_another_webhook_fail,
    lose_a_check,
    lose_a_controller,
    misconfigure,
    name_no_class,
    name_no_cluster_queue,
    select_other_namespaces,
    share_nothing,
    suspend_for_nobody,
)

from kueuelib.api.meta import format_time
from kueuelib.app.configuration import CONFIG_FILE, CONFIG_MAP
from kueuelib.app.doctor.snapshot import WebhookProbe

VALIDATING = "ValidatingWebhookConfiguration"

EDIT = (
    "kubectl edit clusterqueue cq  # let spec.namespaceSelector match the namespace, or change its "
    "labels (team=red)"
)


def test_a_prebuilt_workload_that_does_not_exist_is_named(patient: Any) -> None:
    suspend_for_nobody(patient)
    patient.get("Job")["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = "made"
    found = patient.only("job-unqueued")
    label = "metadata.labels[kueue.x-k8s.io/prebuilt-workload-name]"
    assert f"Workload made, which its {label} names, does not exist" in found.problem
    assert found.fix == (
        "kubectl get -n ns workloads  # create made, or submit Job alone without it"
    )


def test_a_misspelled_class_is_corrected(patient: Any) -> None:
    name_no_class(patient)
    fix = "kubectl get workloadpriorityclasses  # create urgent, or give Job alone another"
    assert patient.only("job-unqueued").fix == fix
    patient.add("WorkloadPriorityClass", "urgnt", value=1)
    label = "kueue.x-k8s.io/priority-class=urgnt"
    fix = f"kubectl label -n ns job alone --overwrite {label}  # or create urgent"
    assert patient.only("job-unqueued").fix == fix


def test_a_local_queue_whose_cluster_queue_is_lost_stays(patient: Any) -> None:
    name_no_cluster_queue(patient)
    show = "kubectl get -n ns localqueue lost -o yaml"
    fix = f"{show}  # create ClusterQueue absent, or remove this LocalQueue if nobody submits to it"
    assert patient.only("local-queue").fix == fix
    patient.get("LocalQueue", "lost")["spec"]["clusterQueue"] = "cqq"
    assert "sed 's|clusterQueue: cqq$|clusterQueue: cq|'" in patient.only("local-queue").fix
    patient.get("LocalQueue", "lost")["spec"]["clusterQueue"] = "cq2"
    assert patient.only("local-queue").fix.startswith(f"{show}  # create ClusterQueue cq2, or")
    patient.get("LocalQueue", "lost")["spec"]["clusterQueue"] = "cqq"
    patient.get("Workload", "waits")["spec"]["queueName"] = "lost"
    fix = f"{show}  # create ClusterQueue cqq: Workloads are in this LocalQueue"
    assert patient.only("local-queue").fix == fix


@pytest.mark.parametrize(
    ("labels", "fix"),
    [
        ({}, "kubectl label namespace ns team=red"),
        (
            {"team": "blue"},
            EDIT,
        ),
    ],
)
def test_a_label_that_means_something_else_is_not_overwritten(
    patient: Any, labels: dict[str, str], fix: str
) -> None:
    select_other_namespaces(patient)
    patient.get("Namespace")["metadata"]["labels"] = labels
    assert patient.only("local-queue").fix == fix


def test_what_does_not_exist_is_to_be_created_or_taken_out(patient: Any) -> None:
    lose_a_check(patient)
    what = "AdmissionCheck absent: create it, or take it out of the queue"
    assert patient.only("queue-inactive").fix == f"kubectl edit clusterqueue cq  # {what}"


def test_the_second_manager_is_stopped_if_it_can_be_seen(patient: Any) -> None:
    lead_elsewhere(patient)
    look = "kubectl -n other get deployments,pods  # stop manager-1, or the manager in kueue-system"
    assert patient.only("another-leader").fix == look
    pod = {"template": {"spec": {"containers": [{"image": "k:1", "args": ["manager"]}]}}}
    patient.add("Deployment", "second", "other", spec={"replicas": 1, **pod})
    fix = "kubectl -n other scale deployment second --replicas=0"
    assert patient.only("another-leader").fix == fix


def test_other_webhooks_of_a_foreign_configuration_stay(patient: Any) -> None:
    let_another_webhook_fail(patient)
    fix = "kubectl delete mutatingwebhookconfiguration theirs  # if nobody needs it"
    assert patient.only("another-webhook").fix == fix
    theirs = patient.get(MUTATING, "theirs")
    theirs["webhooks"].append({"name": "pods.dev", "rules": [{"apiGroups": [""]}]})
    edit = "kubectl edit mutatingwebhookconfiguration theirs  # remove theirs.dev, if nobody needs"
    assert patient.only("another-webhook").fix.startswith(edit)


def test_all_dead_webhooks_of_one_program_are_named_at_once(patient: Any) -> None:
    """The API server names the first one that does not answer, and asks no other one."""
    let_another_webhook_fail(patient)
    first = patient.get(MUTATING, "theirs")["webhooks"][0]
    first["clientConfig"] = {"service": {"namespace": "theirs", "name": "policy", "path": "/a"}}
    second = copy.deepcopy({**first, "name": "second.dev"})
    jobs = {"apiGroups": ["batch"], "resources": ["jobs"], "operations": ["CREATE"]}
    second["rules"] = [jobs]
    second["clientConfig"]["service"]["path"] = "/b"
    elsewhere = {**second, "name": "works.dev", "clientConfig": {"url": "https://other.dev/b"}}
    unasked = {**second, "name": "nodes.dev", "rules": [{**jobs, "resources": ["nodes"]}]}
    lenient = {**second, "name": "lenient.dev", "failurePolicy": "Ignore"}
    patient.add(VALIDATING, "theirs", webhooks=[second, elsewhere, unasked, lenient])
    found = patient.only("another-webhook")
    assert str(found.subject) == f"{MUTATING} theirs"
    assert found.problem.endswith("; the same server has to answer for second.dev")
    assert found.fix == (
        "kubectl delete mutatingwebhookconfiguration theirs && kubectl edit "
        "validatingwebhookconfiguration theirs  # remove second.dev, if nobody needs them"
    )
    answered = 'failed calling webhook "theirs.dev": the server could not find the requested'
    patient.calls = [WebhookProbe("admission", answered)]
    assert "second.dev" not in patient.only("another-webhook").problem, "another path may work"


def test_a_leader_that_has_just_left_has_a_successor_soon(patient: Any) -> None:
    leave(patient, ago=5)
    break_the_calls(patient)
    assert patient.found() == []


def test_a_group_may_wait_for_its_pods_for_some_minutes(patient: Any) -> None:
    gate_for_a_group(patient)
    patient.get("Pod")["metadata"]["creationTimestamp"] = format_time(NOW - 240)
    assert patient.found() == []


def test_kinds_that_another_process_queues_are_enabled_there(patient: Any) -> None:
    disable_jobs(patient)
    integrations = attrs.evolve(
        patient.configuration.integrations, external_frameworks=("Job.v1.batch",)
    )
    patient.configuration = attrs.evolve(patient.configuration, integrations=integrations)
    assert patient.found() == []


def test_the_configuration_is_changed_where_it_is(patient: Any, outside: Any) -> None:
    disable_jobs(outside)
    outside.file = "kueue.yaml"
    install = "kueuelib install --webhook-url https://127.0.0.1:9443 --config kueue.yaml"
    assert outside.only("kind-disabled").fix == (
        "add batch/job to integrations.frameworks in the manager's configuration, then run "
        f"{install} and restart the manager"
    )
    misconfigure(patient)
    where = "kubectl -n kueue-system"
    assert patient.only("configuration-invalid").fix == (
        f"{where} edit configmap {CONFIG_MAP} && {where} rollout restart deployment "
        f"kueue-controller-manager  # correct {CONFIG_FILE}"
    )


def test_young_objects_are_given_time(patient: Any) -> None:
    young = format_time(NOW - 5)
    gate_for_nobody(patient)
    suspend_for_nobody(patient)
    keep_a_finalizer(patient)
    for kind, name in (("Pod", "alone"), ("Job", "alone"), ("ResourceFlavor", "gone")):
        meta = patient.get(kind, name)["metadata"]
        meta["creationTimestamp"] = young
        if "deletionTimestamp" in meta:
            meta["deletionTimestamp"] = young
    assert patient.found() == []


def test_what_a_job_owns_or_was_queued_is_left_alone(patient: Any) -> None:
    suspend_for_nobody(patient)
    owner = {"kind": "RayCluster", "name": "r", "uid": "u", "controller": True}
    patient.get("Job")["metadata"]["ownerReferences"] = [owner]
    patient.add("Job", "free", "ns", spec={"suspend": True})
    assert patient.found() == []


def test_who_repairs_an_inactive_check_is_said_as_in_explain(patient: Any) -> None:
    lose_a_controller(patient)
    ((_, found),) = patient.found()
    assert found.fix == "run the controller of AdmissionCheck budget, so that it becomes Active"


def test_a_cohort_that_is_only_a_name_is_healthy(patient: Any) -> None:
    patient.get("ClusterQueue")["spec"]["cohortName"] = "plain"
    share_nothing(patient)
    patient.get("ClusterQueue", "poor")["spec"]["cohortName"] = "plain"
    patient.remove("ClusterQueue", "poorer")
    assert patient.found() == []
