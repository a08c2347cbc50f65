"""Writes that the API server refuses, and when they no longer count."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.app.doctor.examining import examine
from kueuelib.app.doctor.snapshot import TriedStart, WebhookProbe
from kueuelib.jobs.reconcile.refusals import START_REFUSED

from .test_findings import (
    ENDING,
    LONG_AGO,
    QUOTA,
    deny,
    die,
    exceed_a_quota,
    finish_the_other,
    let_another_webhook_fail,
    refuse_the_start,
    register_another_webhook,
    suspend_for_nobody,
    told,
)


def refuse_the_status(patient: Any) -> None:
    finish_the_other(patient)
    refusal = "The admission could not be written: denied the request"
    told(patient, "Workload", "waits", "AdmissionFailed", refusal)


def test_a_resource_quota_is_named_until_the_pods_are_there(patient: Any) -> None:
    exceed_a_quota(patient)
    found = patient.only("write-refused")
    assert "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2" in found.problem
    assert found.fix.startswith("kubectl -n ns describe resourcequota few  # raise spec.hard")
    patient.get("Job")["status"]["active"] = 3
    assert patient.found() == []


def test_an_old_refusal_no_longer_counts(patient: Any) -> None:
    patient.add("Job", "job", "ns", spec={"parallelism": 3}, status={"active": 2})
    told(patient, "Job", "job", "FailedCreate", QUOTA, ago=130)
    told(patient, "Job", "job", "FailedCreate", "no node is left", ago=10)
    assert patient.found() == []


def test_a_refused_admission_explains_that_a_workload_waits(patient: Any) -> None:
    refuse_the_status(patient)
    assert patient.causes() == {"fits-but-waits": "write-refused"}


DENIED = 'jobs.batch "x" is forbidden: User "system:sa" cannot patch resource "jobs"'


@pytest.mark.parametrize(
    ("make_ill", "event", "check"),
    [
        (suspend_for_nobody, ("alone", "ErrWorkloadCompose", ""), "job-unqueued"),
        (refuse_the_start, ("held", "FailedToStart", START_REFUSED), "not-started"),
        (exceed_a_quota, ("job", "Refused", "Job ns/job could not be changed: "), "write-refused"),
    ],
)
def test_a_missing_permission_explains_what_is_refused_for_it(
    patient: Any, make_ill: Any, event: tuple[str, str, str], check: str
) -> None:
    make_ill(patient)
    name, reason, begins = event
    told(patient, "Job", name, reason, f"{begins}{DENIED}", ago=10)
    assert patient.only(check).fix.startswith("kueuelib doctor  # ")
    deny(patient)
    assert patient.causes() == {check: "permissions"}


NO_CLASS = 'Error creating: pods "job-" is forbidden: no PriorityClass with name gold was found'
NO_PODS = 'pods is forbidden: User "system:sa:job-controller" cannot create resource "pods"'


@pytest.mark.parametrize("message", [NO_CLASS, NO_PODS])
def test_what_is_refused_to_the_job_controller_stays_when_the_manager_may_write(
    patient: Any, message: str
) -> None:
    patient.add("Job", "job", "ns", spec={"parallelism": 3}, status={"active": 2})
    told(patient, "Job", "job", "FailedCreate", message)
    deny(patient)
    let_another_webhook_fail(patient)
    patient.get("CustomResourceDefinition", "workloads.kueue.x-k8s.io")["spec"]["versions"] = [
        {"name": "v1beta2", "served": True, "storage": True}
    ]
    assert {"write-refused", "permissions", "another-webhook", "crd-status"} <= {
        name for name, _ in patient.found()
    }
    assert "write-refused" not in patient.causes()


@pytest.mark.parametrize("webhook", ["theirs.dev", "mjob.kb.io"])
def test_pods_that_a_dead_webhook_refuses_are_created_once_it_answers(
    patient: Any, webhook: str
) -> None:
    patient.add("Job", "job", "ns", spec={"parallelism": 3}, status={"active": 2})
    dead = f'failed calling webhook "{webhook}": connection refused'
    told(patient, "Job", "job", "FailedCreate", f"Error creating: Internal error: {dead}")
    register_another_webhook(patient)
    patient.calls = [WebhookProbe("update Workloads", dead)]
    cause = "another-webhook" if webhook == "theirs.dev" else "webhook-unreachable"
    assert patient.causes() == {"write-refused": cause}


def test_a_start_that_a_policy_refuses_does_not_wait_for_a_manager(patient: Any) -> None:
    refuse_the_start(patient)
    patient.starts = [TriedStart("Job", "uid-held", "denied the request: no")]
    die(patient)
    assert "not-started" not in patient.causes()
    patient.starts = [TriedStart("Job", "uid-held", "")]
    assert patient.causes()["not-started"] == "leader"


FREEZE = (
    'leases.coordination.k8s.io "c1f6bfd2.kueue.x-k8s.io" is forbidden: '
    "ValidatingAdmissionPolicy 'freeze' with binding 'all-of-it' denied request: not now"
)
HOOK = 'admission webhook "theirs.dev" denied the request: not now'


@pytest.mark.parametrize(
    ("refusal", "fix"),
    [
        (FREEZE, "validatingadmissionpolicybinding all-of-it applies it: exempt the manager's acc"),
        (HOOK, "kubectl get mutatingwebhookconfiguration theirs -o yaml  # its webhook theirs.dev"),
        ("leases is forbidden: no", "kubectl get namespace kueue-system -o yaml"),
    ],
)
def test_what_refuses_the_lease_is_why_no_manager_leads(
    patient: Any, refusal: str, fix: str
) -> None:
    register_another_webhook(patient)
    exceed_a_quota(patient)
    patient.calls.append(WebhookProbe("update Leases", "", refusal=refusal))
    die(patient)
    found = next(one for name, one in patient.found() if name == "write-refused")
    assert str(found.subject) == "Lease kueue-system/c1f6bfd2.kueue.x-k8s.io"
    assert found.problem == f"no manager can renew it: {refusal}"
    assert fix in found.fix
    report = examine(patient.snapshot())
    places = {name: place for place, (name, _) in enumerate(report.findings) if name == "leader"}
    assert report.findings[report.causes[places["leader"]]][1] == found


def test_other_refused_writes_do_not_explain_that_no_manager_leads(patient: Any) -> None:
    exceed_a_quota(patient)
    die(patient)
    assert "leader" not in patient.causes()


def test_what_refuses_the_secret_is_why_there_is_no_certificate(patient: Any) -> None:
    patient.remove("Secret", "kueue-webhook-server-cert")
    refusal = 'secrets "x" is forbidden: exceeded quota: tight, requested: count/secrets=1'
    patient.calls.append(WebhookProbe("create Secrets", "", refusal=refusal, kind="Secret"))
    die(patient)
    found = dict(patient.found())["write-refused"]
    assert str(found.subject) == "Secret kueue-system/kueue-webhook-server-cert"
    assert found.problem == f"no manager can keep its certificate in it: {refusal}"
    assert found.fix.startswith("kubectl -n kueue-system describe resourcequota tight  # raise ")
    causes = patient.causes()
    assert causes["leader"] == causes["webhook-certificate"] == "write-refused"


RELEASE = (
    "Workload ns/runs could not be changed: ValidatingAdmissionPolicy 'freeze' with binding "
    "'all-of-it' denied request: not now"
)


def test_a_workload_that_is_not_released_after_its_job_is_named(patient: Any) -> None:
    told(patient, "Workload", "runs", "Refused", RELEASE)
    found = patient.only("write-refused")
    assert str(found.subject) == "Workload ns/runs"
    assert found.fix.startswith("kubectl get validatingadmissionpolicy freeze -o yaml  # ")


def test_a_policy_that_keeps_a_finished_workload_explains_its_finalizer(patient: Any) -> None:
    finished = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
    waits = patient.get("Workload", "waits")
    waits["metadata"].update(ENDING)
    waits["status"] = {"conditions": [{**finished, "lastTransitionTime": LONG_AGO}]}
    refusal = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not now"
    message = f"Workload ns/waits could not be changed: {refusal}"
    told(patient, "Workload", "waits", "Refused", message)
    found = dict(patient.found())
    assert found.keys() == {"write-refused", "finalizer-stuck"}
    assert "validatingadmissionpolicybinding b" in found["write-refused"].fix
    assert patient.causes() == {"finalizer-stuck": "write-refused"}
    del waits["metadata"]["deletionTimestamp"]
    assert patient.found() == [], "nothing is left to write for it"
