"""One cause is one finding, whatever follows from it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kueuelib.api.crd import converted_crds
from kueuelib.api.meta import format_time
from kueuelib.app.configuration import Configuration
from kueuelib.app.doctor.calls import CONVERTED
from kueuelib.app.doctor.snapshot import Review, WebhookProbe
from kueuelib.runtime.certificates import DAY, host_names, renewed
from kueuelib.runtime.webhook.trust import to_data

from .test_findings import (
    CRD,
    GRANT,
    HINT,
    MUTATING,
    NOW,
    WORKLOADS,
    break_the_calls,
    convert_elsewhere,
    convert_nothing,
    count_too_many,
    cut_off,
    delete_a_definition,
    deny,
    die,
    empty_the_secret,
    end_the_queue,
    finish_the_other,
    gate_for_nobody,
    keep_a_finalizer,
    keep_a_pod,
    lead,
    lead_with_old_values,
    leave,
    let_the_certificate_end_soon,
    lose_a_check,
    lose_a_configuration,
    lose_a_controller,
    lose_a_flavor,
    lose_both_queues,
    lose_the_account,
    lose_the_lease,
    lose_the_local_queue,
    lose_the_secret,
    name_no_cluster_queue,
    name_no_local_queue,
    run_without_election,
    say_something_else,
    suspend_for_nobody,
    trust_nobody,
)


def wait_for_our_check(patient: Any) -> None:
    lose_a_controller(patient)
    patient.get("AdmissionCheck")["spec"]["controllerName"] = "kueue.x-k8s.io/provisioning-request"


OF_NO_MANAGER = [
    trust_nobody, lose_the_secret, break_the_calls, say_something_else, keep_a_finalizer,
    keep_a_pod, count_too_many, gate_for_nobody, suspend_for_nobody, finish_the_other,
    wait_for_our_check,
]  # fmt: skip
"""What a running manager would not let happen, or mend."""


@pytest.mark.parametrize("make_ill", OF_NO_MANAGER)
def test_what_a_manager_would_mend_follows_from_its_absence(patient: Any, make_ill: Any) -> None:
    make_ill(patient)
    assert patient.causes() == {}
    die(patient)
    assert len(patient.causes()) == len(patient.found()) - 1
    assert set(patient.causes().values()) == {"leader"}


def test_before_a_manager_runs_there_is_one_cause(patient: Any) -> None:
    lose_the_lease(patient)
    for make_ill in (
        *(trust_nobody, break_the_calls, say_something_else, keep_a_finalizer, keep_a_pod),
        *(gate_for_nobody, suspend_for_nobody, finish_the_other, lose_the_secret),
    ):
        make_ill(patient)
    roots = [name for name, _ in patient.found() if name not in patient.causes()]
    assert roots == ["leader"]
    assert len(patient.causes()) == 9


def test_without_leader_election_the_webhooks_tell_that_no_manager_runs(patient: Any) -> None:
    without_election(patient)
    break_the_calls(patient)
    finish_the_other(patient)
    say_something_else(patient)
    assert patient.causes() == {
        "fits-but-waits": "webhook-unreachable",
        "queue-status": "webhook-unreachable",
    }


def test_webhooks_are_not_reached_with_a_wrong_certificate(patient: Any) -> None:
    empty_the_secret(patient)
    break_the_calls(patient)
    assert patient.causes() == {"webhook-unreachable": "webhook-certificate"}


@pytest.mark.parametrize("make_ill", [die, lose_the_lease, run_without_election])
def test_who_may_not_write_leases_cannot_lead(patient: Any, make_ill: Any) -> None:
    make_ill(patient)
    for group, resource in (("coordination.k8s.io", "leases"), ("batch", "jobs")):
        patient.reviews = [Review(group, resource, "update", "kueue-system", False, GRANT)]
        assert patient.causes() == {"leader": "permissions"}


def test_where_nothing_is_installed_that_is_the_cause(patient: Any) -> None:
    deny(patient)
    lose_the_lease(patient)
    lose_the_secret(patient)
    for kind in (MUTATING, "ValidatingWebhookConfiguration"):
        patient.remove(kind)
        patient.add(kind, "theirs")
    patient.objects = [
        obj
        for obj in patient.objects
        if obj["kind"] != CRD or not obj["metadata"]["name"].startswith("w")
    ]
    roots = [name for name, _ in patient.found() if name not in patient.causes()]
    assert roots == ["crd-missing"] * 2
    assert {*patient.causes()} == {
        "leader",
        "permissions",
        "webhook-missing",
        "webhook-certificate",
    }


def test_certificates_that_end_are_told_in_time(patient: Any) -> None:
    let_the_certificate_end_soon(patient)
    assert "the server certificate ends at" in patient.only("webhook-certificate").problem
    patient.now += 3650 * DAY
    lead(patient)
    problems = [one.problem for name, one in patient.found() if name == "webhook-authority"]
    assert problems
    assert all("the authority in caBundle ended at" in one for one in problems)


def without_election(patient: Any) -> None:
    election = attrs.evolve(Configuration().leader_election, leader_elect=False)
    patient.configuration = attrs.evolve(Configuration(), leader_election=election)


def test_without_leader_election_nobody_has_to_lead(patient: Any) -> None:
    leave(patient)
    without_election(patient)
    assert patient.found() == []


def test_without_leader_election_a_restart_may_be_needed_too(patient: Any) -> None:
    leave(patient)
    lead_with_old_values(patient)
    without_election(patient)
    found = patient.only("restart-needed")
    assert found.problem.startswith("the manager runs with old values of webhook.port: ")
    break_the_calls(patient)
    assert patient.causes() == {"restart-needed": "webhook-unreachable"}


def test_the_parents_are_what_to_edit_in_a_cycle(patient: Any) -> None:
    cut_off(patient)
    assert patient.only("cohort-cycle").fix.startswith("kubectl edit cohort a  # set another")


def test_every_kind_that_is_converted_is_tried() -> None:
    tried = {f"{one.plural}.{one.group}" for one, _ in CONVERTED}
    assert tried == set(converted_crds())


def test_one_version_needs_no_conversion(patient: Any) -> None:
    convert_nothing(patient)
    versions = patient.get(CRD, "localqueues.kueue.x-k8s.io")["spec"]["versions"]
    next(one for one in versions if one["name"] == "v1beta1")["served"] = False
    assert patient.only("crd-versions").severity is HINT


def test_a_wrong_address_of_a_conversion_explains_that_nothing_is_reached(patient: Any) -> None:
    convert_elsewhere(patient)
    patient.calls = [
        WebhookProbe("admission", "", by_manager=True),
        WebhookProbe("conversion", "refused"),
    ]
    assert patient.causes() == {"webhook-unreachable": "crd-conversion"}


SAVE = (
    "kueuelib apiserver dump --backup kueue.yaml "
    f"&& kubectl get {WORKLOADS} -A -o yaml > workloads.yaml "
    "&& kubectl get pods -A -l kueue.x-k8s.io/managed=true -o yaml > pods.yaml"
)


def test_one_command_saves_the_objects_of_all_kinds_that_are_left(patient: Any) -> None:
    patient.remove(CRD, WORKLOADS)
    for name in ("clusterqueues.kueue.x-k8s.io", "resourceflavors.kueue.x-k8s.io"):
        patient.get(CRD, name)["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    (fix,) = {found.fix for name, found in patient.found() if name == "crd-terminating"}
    assert fix.startswith("kueuelib apiserver dump --backup kueue.yaml && kubectl get pods -A")
    assert WORKLOADS not in fix, "kubectl refuses to list a kind that is gone"


@pytest.mark.parametrize(
    ("plural", "make_ill"),
    [
        ("clusterqueues", end_the_queue),
        ("clusterqueues", lose_both_queues),
        ("clusterqueues", name_no_cluster_queue),
        ("clusterqueues", say_something_else),
        ("resourceflavors", lose_a_flavor),
        ("admissionchecks", lose_a_check),
        ("localqueues", name_no_local_queue),
        ("localqueues", lose_the_local_queue),
        ("workloads", suspend_for_nobody),
    ],
)
def test_what_goes_with_a_kind_follows_from_its_deletion(
    patient: Any, plural: str, make_ill: Any
) -> None:
    make_ill(patient)
    before = {name for name, _ in patient.found()}
    assert "crd-terminating" not in {*patient.causes().values()}
    name = f"{plural}.kueue.x-k8s.io"
    patient.get(CRD, name)["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    before -= {"finalizer-stuck"}  # crd-held says what keeps the object and its kind
    assert patient.causes() == dict.fromkeys(before, "crd-terminating")
    patient.get(CRD, name)["metadata"].pop("deletionTimestamp")
    other = next(one for one in ("workloads", "cohorts") if one != plural)
    kept = patient.get(CRD, f"{other}.kueue.x-k8s.io")["metadata"]
    kept["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    ours = {"queue-inactive", "flavor-missing", "local-queue", "queue-name", "job-unqueued"}
    assert "crd-terminating" not in [patient.causes().get(one) for one in before & ours]


def test_a_deleted_kind_beside_a_missing_one_needs_an_uninstallation(patient: Any) -> None:
    delete_a_definition(patient)
    patient.remove(CRD, "localqueues.kueue.x-k8s.io")
    release = "then release what crd-held names, and once the CRD is gone: kueuelib install"
    assert release in dict(patient.found())["crd-terminating"].fix, "no manager is needed for that"
    patient.get("Workload")["metadata"]["finalizers"] = ["kueue.x-k8s.io/resource-in-use"]
    fix = dict(patient.found())["crd-terminating"].fix
    assert fix == (
        f"{SAVE}  # then, because other kinds are gone: "
        "kueuelib uninstall --force && kueuelib install; "
        "and once a manager runs: kubectl create -f kueue.yaml"
    )
    assert dict(patient.found())["crd-missing"].fix == (
        "kueuelib install  # then, if its objects were saved and a manager runs: "
        "kubectl create -f FILE"
    )
    die(patient)
    assert patient.causes() == {"crd-missing": "crd-terminating", "leader": "crd-terminating"}


def test_no_manager_is_started_while_its_account_is_missing(patient: Any) -> None:
    lose_the_account(patient)
    die(patient)
    patient.reviews = [Review("", "secrets", "get", "kueue-system", allowed=False, binding=GRANT)]
    assert patient.causes() == {"leader": "account-missing", "permissions": "account-missing"}


def test_no_manager_is_started_while_a_kind_is_being_deleted(patient: Any) -> None:
    delete_a_definition(patient)
    fix = patient.only("crd-terminating").fix
    assert fix == (
        f"{SAVE}  # before a manager starts; then, once the CRD is gone: kueuelib install; and "
        "once a manager runs: kubectl create -f kueue.yaml"
    )
    die(patient)
    keep_a_pod(patient)
    lose_a_configuration(patient)
    assert patient.causes() == {
        "leader": "crd-terminating",
        "pod-finalizer-stuck": "crd-terminating",
        "webhook-missing": "crd-terminating",
    }


def test_a_certificate_that_no_manager_can_write_is_why_none_leads(patient: Any) -> None:
    empty_the_secret(patient)
    die(patient)
    break_the_calls(patient)
    assert patient.causes() == {
        "webhook-certificate": "leader",
        "webhook-unreachable": "leader",
    }
    patient.get("Secret")["immutable"] = True
    assert patient.causes() == {
        "leader": "webhook-certificate",
        "webhook-unreachable": "webhook-certificate",
    }
    found = dict(patient.found())["webhook-certificate"]
    assert found.problem.endswith("and is immutable: no manager can write one into it")
    assert found.fix == (
        "kubectl -n kueue-system delete secret kueue-webhook-server-cert  # a manager makes a new "
        "one"
    )


def test_a_certificate_that_is_good_may_be_immutable(patient: Any) -> None:
    patient.get("Secret")["immutable"] = True
    assert patient.found() == []
    die(patient)
    assert patient.causes() == {}


def delete_a_kind(patient: Any, plural: str) -> None:
    meta = patient.get(CRD, f"{plural}.kueue.x-k8s.io")["metadata"]
    meta["deletionTimestamp"] = "2024-01-01T00:00:00Z"


def test_what_keeps_a_deleted_kind_is_named_with_the_workloads_that_use_it(patient: Any) -> None:
    delete_a_kind(patient, "clusterqueues")
    end_the_queue(patient)
    found = [one for name, one in patient.found() if name == "crd-held"]
    (held,) = found
    assert str(held.subject) == "ClusterQueue cq"
    assert held.problem.endswith("waits for it: it is in use by Workload ns/runs")
    assert held.fix.startswith('kubectl patch clusterqueue cq --type=json -p \'[{"op":"test"')
    assert held.fix.endswith("or end them: set spec.active: false in these Workloads")
    assert "crd-held" not in patient.causes(), "so that the text shows all of it"
    assert "finalizer-stuck" not in dict(patient.found()), "no command can create it again"


@pytest.mark.parametrize(("kind", "plural"), [("LocalQueue", "localqueues"), (CRD, "localqueues")])
def test_the_finalizer_of_another_program_that_keeps_a_deleted_kind_is_named(
    patient: Any, kind: str, plural: str
) -> None:
    name = "lq" if kind == "LocalQueue" else f"{plural}.kueue.x-k8s.io"
    patient.get(kind, name)["metadata"]["finalizers"] = [
        "customresourcecleanup.apiextensions.k8s.io",
        "velero.io/backup-hold",
    ]
    assert patient.found() == []
    delete_a_kind(patient, plural)
    (held,) = [one for check, one in patient.found() if check == "crd-held"]
    assert "finalizer velero.io/backup-hold of another program" in held.problem
    what = f"-n ns localqueue {name}" if kind == "LocalQueue" else f"crd {name}"
    path = '"path":"/metadata/finalizers/1"'
    assert held.fix.startswith(
        f"kubectl patch {what} --type=json -p "
        f'\'[{{"op":"test",{path},"value":"velero.io/backup-hold"}},{{"op":"remove",{path}}}]\''
    )


def test_one_command_removes_all_that_keeps_an_object_of_a_deleted_kind(patient: Any) -> None:
    delete_a_kind(patient, "clusterqueues")
    end_the_queue(patient)
    meta = patient.get("ClusterQueue")["metadata"]
    meta["finalizers"] = ["velero.io/backup-hold", *meta["finalizers"]]
    (held,) = [one for check, one in patient.found() if check == "crd-held"]
    assert held.problem.endswith(
        "it has finalizer velero.io/backup-hold of another program and is in use by "
        "Workload ns/runs"
    )
    assert held.fix.index('"value":"kueue.x-k8s.io/resource-in-use"') < held.fix.index(
        '"value":"velero.io/backup-hold"'
    ), "from the last to the first, because places move"


def test_the_authority_is_wrong_as_long_as_no_manager_can_write_the_certificate(
    patient: Any,
) -> None:
    other = renewed(None, host_names(["127.0.0.2"]), NOW)
    patient.get("Secret").update(immutable=True, data=to_data(other))
    assert patient.causes() == {"webhook-authority": "webhook-certificate"}


def test_a_secret_that_another_program_keeps_is_released_with_one_command(patient: Any) -> None:
    empty_the_secret(patient)
    secret = patient.get("Secret")
    secret["immutable"] = True
    secret["metadata"]["finalizers"] = ["vault.example.com/hold"]
    delete = "kubectl -n kueue-system delete secret kueue-webhook-server-cert"
    patch = "kubectl patch -n kueue-system secret kueue-webhook-server-cert --type=json -p '["
    told = "  # a manager makes a new one; finalizer vault.example.com/hold of another program"
    fix = dict(patient.found())["webhook-certificate"].fix
    assert fix.startswith(patch)
    assert f"]' && {delete}{told}" in fix
    secret["metadata"]["deletionTimestamp"] = format_time(NOW - 5)
    fix = dict(patient.found())["webhook-certificate"].fix
    assert fix.startswith(patch)
    assert f"]'{told}" in fix
    assert delete not in fix, "which would wait forever"
