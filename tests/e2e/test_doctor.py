"""`kueuelib doctor` on a real cluster that is broken in every way, one after the other."""

from __future__ import annotations

import base64
import copy
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml
from rest import JOBS, KUEUE, PODS, WORKLOADS, Obj, Rest, eventually, job, queues
from ward import (
    ACTIVE,
    API,
    BINDINGS,
    CRDS,
    DOMAIN,
    ELASTIC,
    HOOKS,
    LATER,
    LEASE,
    LEASES,
    MUTATING,
    OUR_MUTATING,
    OWN_LEASE,
    SECRET,
    SINCE,
    VERSIONS,
    Found,
    Ward,
    cohort,
    doctor,
    groups,
    lease,
    micro_time,
    of_crd,
    typed,
    workload,
)
from warm import Processes

from kueuelib.api.meta import format_time
from kueuelib.app.configuration import VisibilityConfiguration
from kueuelib.app.doctor.finding import all_checks
from kueuelib.app.reloading import RESTART_NEEDED
from kueuelib.testing.processes import READY_SECONDS, LocalCluster


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, Rest]]:
    """A cluster that obeys roles, with a manager, a Job that runs and one that waits."""
    with Processes(tmp_path_factory.mktemp("doctor")) as processes:
        cluster = LocalCluster(processes, frameworks=("batch/job", "pod"))
        args = ["--port", "0", "--kubeconfig", str(cluster.kubeconfig), "--simulate"]
        processes.start("apiserver", "apiserver", *args, "--authorization", "rbac")
        processes.wait_for_file(cluster.kubeconfig, "apiserver", READY_SECONDS)
        cluster.install()
        cluster.start_manager()
        cluster.wait_for_manager()
        with Rest(cluster.kubeconfig) as rest:
            queues(rest, cpu=2)
            rest.create(JOBS, job("first", seconds=6000, pods=2))
            eventually(lambda: not rest.get(f"{JOBS}/first")["spec"]["suspend"])
            rest.create(JOBS, job("second", seconds=6000, pods=2))
            queue = f"{KUEUE}/clusterqueues/team"
            eventually(lambda: rest.get(queue)["status"]["pendingWorkloads"] == 1)
            eventually(lambda: rest.get(queue)["status"]["admittedWorkloads"] == 1)
            yield cluster, rest


@pytest.fixture(scope="module")
def healthy(living: tuple[LocalCluster, Rest]) -> subprocess.CompletedProcess[str]:
    """What the command says of the cluster while its manager runs."""
    cluster, _ = living
    config = cluster.processes.folder / "config.yaml"
    return doctor(cluster.kubeconfig, "--config", str(config), "-o", "json")


@pytest.fixture(scope="module")
def ward(living: tuple[LocalCluster, Rest], healthy: subprocess.CompletedProcess[str]) -> Ward:
    cluster, rest = living
    assert healthy.stdout
    cluster.processes.kill("manager")
    for path in (
        OUR_MUTATING,
        f"{HOOKS}/validatingwebhookconfigurations/kueue-validating-webhook-configuration",
    ):
        hooks = rest.get(path)["webhooks"]
        rest.merge(path, {"webhooks": [{**one, "failurePolicy": "Ignore"} for one in hooks]})
    rest.merge(OWN_LEASE, lease("kueue-system", "by-hand"))
    # What was written before can be read in every version; from now on nothing is converted.
    rest.create(f"{KUEUE}/clusterqueues", {**typed("ClusterQueue", "new"), "spec": {}})
    status = {"status": {"conditions": [{**ACTIVE, **SINCE}]}}
    rest.merge(f"{KUEUE}/clusterqueues/new/status", status)
    return Ward(cluster, rest)


@pytest.fixture(scope="module")
def before(ward: Ward) -> Found:
    """What is found before a test breaks anything."""
    found = ward.found()
    assert {name for name, _ in found} == {"capacity-unused", "webhook-unreachable"}
    return found


def test_a_healthy_cluster_has_nothing_but_hints(
    healthy: subprocess.CompletedProcess[str],
) -> None:
    assert healthy.returncode == 0, healthy.stdout
    report = json.loads(healthy.stdout)
    assert {one["check"] for one in report["findings"]} == {"capacity-unused"}
    assert report["notChecked"] == []
    assert set(report["checked"]) == {one.name for one in all_checks()}


# --- what breaks it, and what is found then


def crd(kind: str) -> str:
    return f"{CRDS}/{kind}.{DOMAIN}"


@contextmanager
def with_deleted_kind(ward: Ward) -> Iterator[None]:
    path = crd("provisioningrequestconfigs")
    ward.rest.merge(path, {"metadata": {"finalizers": ["example.com/slow"]}})
    with ward.without(path):
        yield
        ward.rest.merge(path, {"metadata": {"finalizers": None}})


def not_established(ward: Ward) -> Any:
    conditions = copy.deepcopy(ward.rest.get(crd("cohorts"))["status"]["conditions"])
    for one in conditions:
        one["status"] = "False" if one["type"] == "NamesAccepted" else one["status"]
    return ward.changed(f"{crd('cohorts')}/status", {"status": {"conditions": conditions}})


def without_served(ward: Ward) -> Any:
    versions = copy.deepcopy(ward.rest.get(crd("workloadpriorityclasses"))["spec"]["versions"])
    for one in versions:
        one["served"] = one["name"] != "v1beta1"
    return ward.changed(crd("workloadpriorityclasses"), {"spec": {"versions": versions}})


def without_field(ward: Ward) -> Any:
    versions = copy.deepcopy(ward.rest.get(crd("admissionchecks"))["spec"]["versions"])
    for one in versions:
        del one["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["parameters"]
    return ward.changed(crd("admissionchecks"), {"spec": {"versions": versions}})


def with_rubbish(ward: Ward) -> Any:
    hooks = copy.deepcopy(ward.rest.get(OUR_MUTATING)["webhooks"])
    other = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    for one in hooks:
        one["clientConfig"]["caBundle"] = other.decode()
    return ward.changed(OUR_MUTATING, {"webhooks": hooks})


def with_deployment(ward: Ward) -> Any:
    obj = deployment("theirs", "registry.k8s.io/kueue/kueue:v0.14.1")
    return ward.with_one("/apis/apps/v1/namespaces/default/deployments", obj)


def with_pods_of_before(ward: Ward) -> Any:
    obj = deployment("kueue-controller-manager", "kueuelib:1")
    return ward.with_one("/apis/apps/v1/namespaces/kueue-system/deployments", obj)


@contextmanager
def with_visibility_asked_for(ward: Ward) -> Iterator[None]:
    before = ward.configuration
    ward.configuration = attrs.evolve(before, visibility_server=VisibilityConfiguration())
    try:
        yield
    finally:
        ward.configuration = before


@contextmanager
def with_an_api_that_nobody_serves(ward: Ward) -> Iterator[None]:
    group, _, domain = API.partition(".")
    spec = {
        "group": domain,
        "version": group,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "service": {"namespace": "kueue-system", "name": "kueue-visibility-server", "port": 443},
    }
    obj = {"metadata": {"name": API}, "spec": spec}
    said = {**SINCE, "type": "Available", "status": "False", "reason": "FailedDiscoveryCheck"}
    with ward.with_one("/apis/apiregistration.k8s.io/v1/apiservices", obj) as path:
        ward.rest.merge(f"{path}/status", {"status": {"conditions": [{**said, "message": "m"}]}})
        yield


def deployment(name: str, image: str) -> Obj:
    pod = {"containers": [{"name": "m", "image": image}]}
    labels = {"app": "kueue"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": spec,
    }


@contextmanager
def with_lease(ward: Ward, body: Obj) -> Iterator[None]:
    """A Lease with other values, renewed when they are written and when they are undone."""
    with ward.changed(OWN_LEASE, body):
        ward.rest.merge(OWN_LEASE, {"spec": {"renewTime": micro_time()}})
        yield
    ward.rest.merge(OWN_LEASE, {"spec": {"renewTime": micro_time()}})


@contextmanager
def with_stranger(ward: Ward) -> Iterator[None]:
    obj = {
        "metadata": {"name": "odd"},
        "involvedObject": {"kind": "Workload", "name": "odd", "namespace": "default"},
        "reason": "ReservedByAnother",
        "type": "Warning",
        "lastTimestamp": format_time(time.time()),
    }
    over = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
    with (
        ward.with_one(WORKLOADS, workload("odd", "none")) as where,
        ward.with_one("/api/v1/namespaces/default/events", obj),
    ):
        ward.rest.merge(f"{where}/status", {"status": {"conditions": [{**over, **SINCE}]}})
        yield


def with_webhook(ward: Ward) -> Any:
    rule = {
        "apiGroups": [DOMAIN],
        "apiVersions": ["*"],
        "resources": ["cohorts"],
        "operations": ["CREATE"],
    }
    hook = {
        "name": "theirs.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/x"},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
    }
    obj = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "theirs"},
        "webhooks": [hook],
    }
    return ward.with_one(MUTATING, obj)


@contextmanager
def with_stopped_queue(ward: Ward) -> Iterator[None]:
    with ward.cluster_queue("held", stopPolicy="Hold"):
        stopped = {"conditions": [{**ACTIVE, **SINCE, "status": "False"}]}
        ward.rest.merge(f"{KUEUE}/clusterqueues/held/status", {"status": stopped})
        yield


@contextmanager
def with_broken_queue(ward: Ward) -> Iterator[None]:
    with ward.cluster_queue("nonsense"):
        too_long = f"{'a' * 254}/team"  # what the schema of the kind cannot say
        selector = {"matchExpressions": [{"key": too_long, "operator": "Exists"}]}
        path = f"{KUEUE}/clusterqueues/nonsense"
        ward.rest.merge(path, {"spec": {"namespaceSelector": selector}})
        yield


@contextmanager
def with_ghosts(ward: Ward) -> Iterator[None]:
    flavor = {**typed("ResourceFlavor", "ghost"), "spec": {"nodeLabels": {"pool": "ghost"}}}
    with (
        ward.with_one(f"{KUEUE}/resourceflavors", flavor),
        ward.cluster_queue("haunted", **groups("ghost", "4")),
    ):
        yield


@contextmanager
def with_waiting(ward: Ward, queue: str, obj: Obj) -> Iterator[None]:
    """A Workload in a queue of 1 CPU."""
    local = {**typed("LocalQueue", queue), "spec": {"clusterQueue": queue}}
    with (
        ward.cluster_queue(queue, **groups("on-demand", "1")),
        ward.with_one(f"{KUEUE}/namespaces/default/localqueues", local),
        ward.with_one(WORKLOADS, obj),
    ):
        yield


@contextmanager
def with_refused_admission(ward: Ward) -> Iterator[None]:
    with with_waiting(ward, "strict", workload("refused", "strict")):
        about = ward.rest.get(f"{WORKLOADS}/refused")
        meta = {name: about["metadata"][name] for name in ("name", "namespace", "uid")}
        event = {
            "metadata": {"name": "refused"},
            "involvedObject": {"kind": "Workload", **meta},
            "reason": "AdmissionFailed",
            "message": "The admission could not be written: exceeded quota: few, limited: x=1",
            "lastTimestamp": format_time(time.time() + LATER),
        }
        with ward.with_one("/api/v1/namespaces/default/events", event):
            yield


@contextmanager
def with_quota(ward: Ward, cluster_queue: str) -> Iterator[None]:
    """A Workload that holds quota of a ClusterQueue with less, or of one that does not exist."""
    assigned = {"name": "main", "flavors": {"cpu": "on-demand"}, "resourceUsage": {"cpu": "2"}}
    held = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}
    admission = {"clusterQueue": cluster_queue, "podSetAssignments": [{**assigned, "count": 1}]}
    since = {"lastTransitionTime": format_time(time.time())}
    with with_waiting(ward, "small", workload("held", "small")):
        status = {"admission": admission, "conditions": [{**held, **since}]}
        ward.rest.merge(f"{WORKLOADS}/held/status", {"status": status})
        yield


@contextmanager
def with_failed_start(ward: Ward) -> Iterator[None]:
    with ward.with_one(WORKLOADS, workload("ended", "none")) as where:
        end = {"type": "Finished", "status": "True", "reason": "FailedToStart", "message": "no"}
        since = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        ward.rest.merge(f"{where}/status", {"status": {"conditions": [{**end, **since}]}})
        yield


@contextmanager
def with_deleted(ward: Ward, path: str, obj: Obj) -> Iterator[None]:
    with ward.with_one(path, obj) as where:
        ward.rest.delete(where)
        yield


def pod(name: str, **meta: Any) -> Obj:
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "schedulingGates": [{"name": f"{DOMAIN}/admission"}],
        "terminationGracePeriodSeconds": 0,
    }
    labels = {"labels": {f"{DOMAIN}/managed": "true"}}
    meta = {"name": name, **labels, **meta}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def bypassing(name: str) -> Obj:
    obj = pod(name, labels={f"{DOMAIN}/queue-name": "team"})
    del obj["spec"]["schedulingGates"]
    return obj


def kept(kind: str, name: str, finalizer: str) -> Obj:
    obj = typed(kind, name)
    obj["metadata"]["finalizers"] = [f"{DOMAIN}/{finalizer}"]
    return obj


def queue_status(**status: Any) -> Callable[[Ward], Any]:
    return lambda ward: ward.changed(f"{KUEUE}/clusterqueues/team/status", {"status": status})


COHORTS = f"{KUEUE}/cohorts"
LOCAL = f"{KUEUE}/namespaces/default/localqueues"
ACCOUNT = "/api/v1/namespaces/kueue-system/serviceaccounts/kueue-controller-manager"
NOT_ACTIVE = {**ACTIVE, **SINCE, "status": "False"}
OLD_VALUES: Obj = {"metadata": {"annotations": {RESTART_NEEDED: "webhook.port"}}}
CASES: dict[str, tuple[Callable[[Ward], Any], set[tuple[str, str]]]] = {
    "a kind is not defined": (
        lambda ward: ward.without(crd("provisioningrequestconfigs")),
        {("crd-missing", of_crd("provisioningrequestconfigs"))},
    ),
    "a kind is being deleted": (
        with_deleted_kind,
        {
            ("crd-terminating", of_crd("provisioningrequestconfigs")),
            ("crd-held", of_crd("provisioningrequestconfigs")),
        },
    ),
    "the manager has no account": (
        lambda ward: ward.without(ACCOUNT),
        {("account-missing", "ServiceAccount kueue-system/kueue-controller-manager")},
    ),
    "a kind is not served": (
        not_established,
        {("crd-established", of_crd("cohorts"))},
    ),
    "a version is not served": (
        without_served,
        {("crd-versions", of_crd("workloadpriorityclasses"))},
    ),
    "nothing converts": (
        lambda ward: ward.changed(
            crd("localqueues"), {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
        ),
        {("crd-conversion", of_crd("localqueues"))},
    ),
    "an old version may be stored": (
        lambda ward: ward.changed(
            f"{crd('cohorts')}/status", {"status": {"storedVersions": ["v1beta1", "v1beta2"]}}
        ),
        {("crd-stored-versions", of_crd("cohorts"))},
    ),
    "a field is dropped": (without_field, {("crd-fields", of_crd("admissionchecks"))}),
    "a webhook configuration is gone": (
        lambda ward: ward.without(OUR_MUTATING),
        {("webhook-missing", "MutatingWebhookConfiguration kueue-mutating-webhook-configuration")},
    ),
    "another authority is trusted": (
        with_rubbish,
        {
            (
                "webhook-authority",
                "MutatingWebhookConfiguration kueue-mutating-webhook-configuration",
            )
        },
    ),
    "the certificate is gone": (
        lambda ward: ward.without(SECRET),
        {("webhook-certificate", "Secret kueue-system/kueue-webhook-server-cert")},
    ),
    "the manager lost its permissions": (
        lambda ward: ward.without(f"{BINDINGS}/kueue-manager-rolebinding"),
        {("permissions", "ServiceAccount kueue-system/kueue-controller-manager")},
    ),
    "nobody leads": (
        lambda ward: with_lease(ward, {"spec": {"holderIdentity": ""}}),
        {("leader", f"Lease kueue-system/{LEASE}")},
    ),
    "the leader uses old values": (
        lambda ward: with_lease(ward, OLD_VALUES),
        {("restart-needed", f"Lease kueue-system/{LEASE}")},
    ),
    "another one leads": (
        lambda ward: ward.with_one(LEASES.format("default"), lease("default", "theirs")),
        {("another-leader", f"Lease default/{LEASE}")},
    ),
    "another one decides": (with_stranger, {("another-decides", "Workload default/odd")}),
    "the Go manager is deployed": (
        with_deployment,
        {("another-manager", "Deployment default/theirs")},
    ),
    "pods of an earlier installation run": (
        with_pods_of_before,
        {("deployment-left", "Deployment kueue-system/kueue-controller-manager")},
    ),
    "the visibility API is not registered": (
        with_visibility_asked_for,
        {
            ("visibility-missing", f"APIService {each}")
            for each in (
                *(f"{version}.visibility.{DOMAIN}" for version in VERSIONS),
                "v1alpha1.visibility.kueuelib.dev",
            )
        },
    ),
    "nobody serves the visibility API": (
        with_an_api_that_nobody_serves,
        {("visibility-unavailable", f"APIService {API}")},
    ),
    "others have webhooks": (
        with_webhook,
        {("another-webhook", "MutatingWebhookConfiguration theirs")},
    ),
    "a queue is stopped": (with_stopped_queue, {("queue-inactive", "ClusterQueue held")}),
    "a status is wrong": (
        queue_status(conditions=[NOT_ACTIVE]),
        {("queue-status", "ClusterQueue team")},
    ),
    "a Cohort is its own parent": (
        lambda ward: ward.with_one(COHORTS, cohort("ouroboros", "ouroboros")),
        {("cohort-cycle", "Cohort ouroboros")},
    ),
    "a Cohort has a parent without an object": (
        lambda ward: ward.with_one(COHORTS, cohort("orphan", "nobody")),
        {("cohort-absent", "Cohort nobody")},
    ),
    "a LocalQueue leads nowhere": (
        lambda ward: ward.with_one(
            LOCAL, {**typed("LocalQueue", "lost"), "spec": {"clusterQueue": "absent"}}
        ),
        {("local-queue", "LocalQueue default/lost")},
    ),
    "a queue name is misspelled": (
        lambda ward: ward.with_one(WORKLOADS, workload("astray", "taem")),
        {("queue-name", "LocalQueue default/taem")},
    ),
    "an object is nonsense": (with_broken_queue, {("object-unreadable", "ClusterQueue nonsense")}),
    "quota that no node has": (
        with_ghosts,
        {("quota-promised", "ResourceFlavor ghost")},
    ),
    "a policy is idle": (
        lambda ward: ward.changed(
            f"{KUEUE}/clusterqueues/team", {"spec": {"preemption": {"reclaimWithinCohort": "Any"}}}
        ),
        {("policy-idle", "ClusterQueue team")},
    ),
    "a finalizer stays": (
        lambda ward: with_deleted(
            ward, f"{KUEUE}/resourceflavors", kept("ResourceFlavor", "gone", "resource-in-use")
        ),
        {("finalizer-stuck", "ResourceFlavor gone")},
    ),
    "the finalizer of a pod stays": (
        lambda ward: with_deleted(ward, PODS, pod("over", finalizers=[f"{DOMAIN}/managed"])),
        {("pod-finalizer-stuck", "Pod default/over")},
    ),
    "more is counted than is held": (
        queue_status(reservingWorkloads=7),
        {("assumption-orphaned", "ClusterQueue team")},
    ),
    "a pod has bypassed the webhook": (
        lambda ward: ward.with_one(PODS, bypassing("free")),
        {("pod-unqueued", "Pod default/free")},
    ),
    "a pod waits for nobody": (
        lambda ward: ward.with_one(PODS, pod("gated")),
        {("pod-gated", "Pod default/gated")},
    ),
    "a Job waits for nobody": (
        lambda ward: ward.with_one(
            JOBS,
            {**job("alone", seconds=1), "spec": {**job("", seconds=1)["spec"], "suspend": True}},
        ),
        {("job-unqueued", "Job default/alone")},
    ),
    "a Workload asks for more than there is": (
        lambda ward: with_waiting(ward, "small", workload("asks", "small", 9)),
        {("never-fits", "Workload default/asks")},
    ),
    "a Workload asks for what does not exist": (
        lambda ward: with_waiting(ward, "small", workload("asks", "small", notes=ELASTIC)),
        {("feature-missing", "Workload default/asks")},
    ),
    "a Workload holds quota of no queue": (
        lambda ward: with_quota(ward, "absent"),
        {("quota-lost", "ClusterQueue absent")},
    ),
    "a Workload holds quota that its queue does not have": (
        lambda ward: with_quota(ward, "small"),
        {("quota-exceeded", "ClusterQueue small")},
    ),
    "a job could not start": (with_failed_start, {("never-ran", "Workload default/ended")}),
    "an admission is refused": (
        with_refused_admission,
        {
            ("write-refused", "Workload default/refused"),
            ("fits-but-waits", "Workload default/refused"),
        },
    ),
    "nobody admits what fits": (
        lambda ward: with_waiting(ward, "free", workload("lonely", "free")),
        {("fits-but-waits", "Workload default/lonely")},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_broken_cluster_has_exactly_that_finding(ward: Ward, before: Found, case: str) -> None:
    make_ill, expected = CASES[case]
    with make_ill(ward):
        assert ward.found() - before == expected
    assert ward.found() == before


def test_every_check_is_seen_to_find_something(before: Found) -> None:
    seen = {name for _, expected in CASES.values() for name, _ in expected}
    # See `test_doctor_alive.py`, `test_doctor_clock.py`, `test_doctor_cures.py`, and for topologies
    # `test_missing_features.py`.
    others = {"check-pending", "quota-unowned", "clock-skew", "not-started"}
    others |= {"crd-status", "job-untouched", "never-finished"}  # see `test_ended.py`
    others |= {"configuration-invalid", "kind-disabled", "webhook-service", "flavor-missing"}
    others |= {"flavor-topology", "topology-levels", "topology-overlap"}  # see `test_topologies.py`
    others |= {"placement-stale", "topology-ignored"}
    others |= {"namespace-stuck"}  # which kube-controller-manager reports
    assert seen | {name for name, _ in before} | others == {one.name for one in all_checks()}


def test_the_command_says_it_and_ends_with_the_code_of_the_worst(
    ward: Ward, before: Found, living: tuple[LocalCluster, Rest]
) -> None:
    del ward, before
    cluster, _ = living
    config = str(cluster.processes.folder / "config.yaml")
    done = doctor(cluster.kubeconfig, "--config", config)
    assert done.returncode == 4, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("error: Service kueue-system/kueue-webhook-service (webhook-unr")
    assert "the API server does not reach the conversion webhook" in lines[1]
    own = "--kubeconfig KUBECONFIG  # the manager's own"
    start = f"  -> kueuelib manager --config {config} {own}, on the machine that https:"
    assert lines[2].startswith(start)
    many = len(all_checks())
    assert lines[-1] == f"1 error, 2 hints in {many} of {many} checks."
    own = doctor(cluster.kubeconfig, "--config", config, "--self", "-o", "json")
    assert (own.returncode, json.loads(own.stdout)["notChecked"]) == (4, [])


def test_before_a_migration_other_things_matter(
    ward: Ward, living: tuple[LocalCluster, Rest]
) -> None:
    cluster, _ = living
    spec = {"controllerName": "kueue.x-k8s.io/multikueue"}
    far = {**typed("AdmissionCheck", "far"), "spec": spec}
    args = ["--before-migration", "--config", str(cluster.processes.folder / "config.yaml")]
    assert "Nothing found in 9 of 9 checks." in doctor(cluster.kubeconfig, *args).stdout
    with ward.with_one(f"{KUEUE}/admissionchecks", far):
        done = doctor(cluster.kubeconfig, *args)
    assert done.returncode == 4, done.stderr
    assert done.stdout.startswith("error: AdmissionCheck far (migration-check)")


def test_kinds_that_were_not_installed_lack_permissions(
    living: tuple[LocalCluster, Rest], tmp_path: Path
) -> None:
    cluster, _ = living
    config = yaml.safe_load((cluster.processes.folder / "config.yaml").read_text())
    config["integrations"]["frameworks"] = ["batch/job", "trainer.kubeflow.org/trainjob"]
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    report = json.loads(doctor(cluster.kubeconfig, "--config", str(path), "-o", "json").stdout)
    found = [one for one in report["findings"] if one["check"] == "permissions"]
    again = f"kueuelib install --webhook-url https://127.0.0.1:{cluster.webhook_port}"
    assert {one["fix"] for one in found} == {f"{again} --config {path}"}
    problems = " ".join(one["problem"] for one in found)
    assert "list, watch, patch, delete trainjobs.trainer.kubeflow.org" in problems
    assert "get clustertrainingruntimes.trainer.kubeflow.org" in problems
