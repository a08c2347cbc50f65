"""Every check finds what it is for, and no other check finds anything then."""

from __future__ import annotations

import base64
import copy
import time
from typing import Any

import attrs
import pytest

from kueuelib.api.meta import Obj, ObjectKey, format_time
from kueuelib.app.configuration import (
    CONFIG_FILE,
    CONFIG_MAP,
    Configuration,
    VisibilityConfiguration,
)
from kueuelib.app.deployment import CONFIGURATION
from kueuelib.app.doctor.finding import Severity, all_checks
from kueuelib.app.doctor.snapshot import BYPASSING, Review, WebhookProbe
from kueuelib.app.reloading import RESTART_NEEDED
from kueuelib.runtime.certificates import DAY, ServerNames, renewed
from kueuelib.scheduler.explain.problems import problems_of

NOW = float(int(time.time()))
LONG_AGO = format_time(NOW - 600)
GRANT = "ClusterRoleBinding kueue-manager-rolebinding"
ENDING = {"deletionTimestamp": LONG_AGO, "finalizers": ["kueue.x-k8s.io/resource-in-use"]}
HINT, WARNING, ERROR = Severity.HINT, Severity.WARNING, Severity.ERROR
SECRET = "kueue-webhook-server-cert"
MUTATING = "MutatingWebhookConfiguration"
WORKLOADS = "workloads.kueue.x-k8s.io"
CRD = "CustomResourceDefinition"
HOOKS = (MUTATING, "ValidatingWebhookConfiguration")
CONVERTED = ("clusterqueues", "localqueues", "workloads")
ELASTIC, FORCED = "kueue.x-k8s.io/elastic-job", "kueue.x-k8s.io/safe-to-forcefully-delete"


def test_a_healthy_cluster_has_no_findings(patient: Any) -> None:
    assert patient.found() == []


# --- what breaks a cluster, by the name of the check


def lose_a_definition(patient: Any) -> None:
    patient.remove(CRD, WORKLOADS)


def delete_a_definition(patient: Any) -> None:
    patient.get(CRD, WORKLOADS)["metadata"]["deletionTimestamp"] = LONG_AGO


def unestablish(patient: Any) -> None:
    patient.get(CRD, WORKLOADS)["status"]["conditions"][1] |= {
        "status": "False",
        "message": "another kind has the name",
    }


def stop_serving(patient: Any) -> None:
    versions = patient.get(CRD, WORKLOADS)["spec"]["versions"]
    next(one for one in versions if one["name"] == "v1beta1")["served"] = False


def store_the_old_version(patient: Any) -> None:
    crd = patient.get(CRD, WORKLOADS)
    for one in crd["spec"]["versions"]:
        one["storage"] = one["name"] == "v1beta1"
    crd["status"]["storedVersions"] = ["v1beta1"]


def _converted(patient: Any, name: str = "localqueues") -> Obj:
    conversion: Obj = patient.get(CRD, f"{name}.kueue.x-k8s.io")["spec"]["conversion"]
    return conversion


def convert_nothing(patient: Any) -> None:
    _converted(patient).clear()
    _converted(patient)["strategy"] = "None"


def convert_elsewhere(patient: Any) -> None:
    config = _converted(patient)["webhook"]["clientConfig"]
    config.pop("service", None)
    config["url"] = "https://127.0.0.1:19998/convert"


def have_stored_an_old_version(patient: Any) -> None:
    patient.get(CRD, WORKLOADS)["status"]["storedVersions"] = ["v1beta1", "v1beta2"]


def have_stored_a_version_that_is_gone(patient: Any) -> None:
    patient.get(CRD, WORKLOADS)["status"]["storedVersions"] = ["v1alpha1", "v1beta2"]


def lose_a_field(patient: Any) -> None:
    versions = patient.get(CRD, WORKLOADS)["spec"]["versions"]
    (one,) = (each for each in versions if each["name"] == "v1beta2")
    spec = one["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["podSets"]["items"]["properties"]["minCount"]


def lose_a_configuration(patient: Any) -> None:
    patient.remove(MUTATING)


def lose_an_entry(patient: Any) -> None:
    del patient.get(MUTATING)["webhooks"][0]


def lose_the_service(patient: Any) -> None:
    config = patient.get(MUTATING)["webhooks"][0]["clientConfig"]
    config.pop("url", None)
    config["service"] = {"name": "absent", "namespace": "kueue-system", "path": "/x"}


def misconfigure(patient: Any) -> None:
    text = CONFIGURATION + "metrics: {bindAdress: x}\n"
    patient.add("ConfigMap", CONFIG_MAP, "kueue-system", data={CONFIG_FILE: text})


def disable_jobs(patient: Any) -> None:
    other = attrs.evolve(Configuration().integrations, frameworks=("pod",))
    patient.configuration = attrs.evolve(Configuration(), integrations=other)
    labels = {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}
    patient.add("Job", "runs", "ns", metadata=labels, spec={})


def disable_a_job_that_waits(patient: Any) -> None:
    disable_jobs(patient)
    job = patient.get("Job")
    job["spec"]["suspend"], job["metadata"]["creationTimestamp"] = True, format_time(NOW)


def trust_nobody(patient: Any) -> None:
    for one in patient.get(MUTATING)["webhooks"]:
        del one["clientConfig"]["caBundle"]


def trust_rubbish(patient: Any) -> None:
    for one in patient.get(MUTATING)["webhooks"]:
        one["clientConfig"]["caBundle"] = base64.b64encode(b"rubbish").decode()


def trust_another(patient: Any) -> None:
    other = renewed(None, ServerNames({"other"}), NOW).ca_cert
    for one in patient.get(MUTATING)["webhooks"]:
        one["clientConfig"]["caBundle"] = base64.b64encode(other).decode()


def lose_the_secret(patient: Any) -> None:
    patient.get("Secret")["metadata"]["name"] = "another"
    patient.objects = [obj for obj in patient.objects if obj["kind"] != "Secret"]


def empty_the_secret(patient: Any) -> None:
    patient.get("Secret")["data"] = {"tls.crt": ""}


def lead_to(patient: Any, url: str) -> None:
    """All webhooks, also those for conversions, lead to a URL."""
    hooks = [
        *(one for kind in HOOKS for one in patient.get(kind)["webhooks"]),
        *(_converted(patient, name)["webhook"] for name in CONVERTED),
    ]
    for one in hooks:
        one["clientConfig"].pop("service", None)
        one["clientConfig"]["url"] = url


def name_another_host(patient: Any) -> None:
    lead_to(patient, "https://10.0.0.1:9443/x")


def let_the_certificate_end_soon(patient: Any) -> None:
    patient.now += 340 * DAY
    lead(patient)


def lead(patient: Any) -> None:
    """The Lease stays fresh however late it is."""
    patient.get("Lease")["spec"]["renewTime"] = format_time(patient.now)


def break_the_calls(patient: Any) -> None:
    patient.calls = [
        WebhookProbe("admission", "connection refused"),
        WebhookProbe("conversion", ""),
    ]


def deny(patient: Any) -> None:
    patient.reviews = [
        Review("", "events", "create", "", allowed=True, binding=GRANT),
        Review("kueue.x-k8s.io", "workloads", "list", "", allowed=False, binding=GRANT),
        Review("kueue.x-k8s.io", "workloads", "watch", "", allowed=False, binding=GRANT),
    ]


def run_without_election(patient: Any) -> None:
    """As a program of one's own does, whose webhooks answer."""
    patient.remove("Lease")
    patient.objects.append({"kind": "Lease", "metadata": {"name": "x", "namespace": "y"}})
    patient.calls = [WebhookProbe("admission", "", by_manager=True)]


def lose_the_lease(patient: Any) -> None:
    run_without_election(patient)
    patient.calls = [WebhookProbe("admission", ""), WebhookProbe("conversion", "")]


def leave(patient: Any, ago: float = 20) -> None:
    spec = {"holderIdentity": "", "renewTime": format_time(patient.now - ago)}
    patient.get("Lease")["spec"] |= spec


def die(patient: Any) -> None:
    patient.get("Lease")["spec"]["renewTime"] = format_time(patient.now - 100)


def lead_with_old_values(patient: Any) -> None:
    patient.get("Lease")["metadata"]["annotations"] = {RESTART_NEEDED: "webhook.port"}


def be_behind(patient: Any) -> None:
    lease = patient.get("Lease")
    lease["spec"]["renewTime"] = format_time(patient.now - 600)
    entry = {"time": format_time(patient.now), "fieldsV1": {"f:spec": {"f:renewTime": {}}}}
    lease["metadata"]["managedFields"] = [entry]


def lead_elsewhere(patient: Any) -> None:
    lease = patient.get("Lease")
    patient.add("Lease", lease["metadata"]["name"], "other", spec=lease["spec"])


def bypass_the_webhook(patient: Any, **meta: Any) -> Any:
    enabled = attrs.evolve(Configuration().integrations, frameworks=("batch/job", "pod"))
    patient.configuration = attrs.evolve(Configuration(), integrations=enabled)
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    return patient.add(BYPASSING, "free", "ns", metadata={"labels": labels, **meta}, spec={})


def run_the_go_manager(patient: Any) -> None:
    pod = {"containers": [{"image": "registry.k8s.io/kueue/kueue:v0.14.1"}]}
    patient.add("Deployment", "kueue", "other", spec={"replicas": 2, "template": {"spec": pod}})


def notice_another(patient: Any, ago: float = 60) -> None:
    about = {"kind": "Workload", "name": "runs", "namespace": "ns"}
    at = format_time(NOW - ago)
    reason = "ReservedByAnother"
    patient.add("Event", "e", "ns", involvedObject=about, reason=reason, lastTimestamp=at)


def keep_the_pods_of_before(patient: Any) -> None:
    lead_to(patient, "https://kueue-webhook-service.kueue-system.svc:9443/x")
    spec = {"replicas": 2, "template": {"spec": {"containers": [{"image": "kueuelib:1"}]}}}
    patient.add("Deployment", "kueue-controller-manager", "kueue-system", spec=spec)


VISIBILITY = "v1beta2.visibility.kueue.x-k8s.io"
OTHER_APIS = ("v1beta1.visibility.kueue.x-k8s.io", "v1alpha1.visibility.kueuelib.dev")


def ask_for_visibility(patient: Any) -> None:
    patient.configuration = Configuration(visibility_server=VisibilityConfiguration())


def register(patient: Any, *names: str, **condition: str) -> None:
    for name in names:
        said = {
            "type": "Available",
            "status": "True",
            "reason": "Passed",
            "message": "",
            **condition,
        }
        patient.add("APIService", name, spec={}, status={"conditions": [said]})


def lose_an_api(patient: Any) -> None:
    ask_for_visibility(patient)
    register(patient, *OTHER_APIS)


def leave_an_api_behind(patient: Any) -> None:
    said = {"status": "False", "reason": "FailedDiscoveryCheck", "message": "connection refused"}
    register(patient, VISIBILITY, **said)


def let_another_webhook_fail(patient: Any) -> None:
    register_another_webhook(patient)
    patient.calls = [WebhookProbe("admission", 'failed calling webhook "theirs.dev": no endpoints')]


def register_another_webhook(patient: Any) -> None:
    rule = {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"]}
    patient.add(MUTATING, "theirs", webhooks=[{"name": "theirs.dev", "rules": [rule]}])


def lose_a_flavor(patient: Any) -> None:
    group = patient.get("ClusterQueue")["spec"]["resourceGroups"][0]
    group["flavors"].append({**group["flavors"][0], "name": "absent"})
    group["flavors"][1]["resources"] = [{"name": "cpu", "nominalQuota": "0"}]
    _inactive(patient)


def lose_a_check(patient: Any) -> None:
    checks = {"admissionChecks": [{"name": "absent"}]}
    patient.get("ClusterQueue")["spec"]["admissionChecksStrategy"] = checks
    _inactive(patient)


def end_the_queue(patient: Any) -> None:
    patient.get("ClusterQueue")["metadata"].update(ENDING)
    _inactive(patient)


def _checked(patient: Any, active: str) -> None:
    said = {"type": "Active", "status": active, "reason": "Active", "message": ""}
    said["lastTransitionTime"] = LONG_AGO
    meta = {"name": "budget", "uid": "uid-budget", "creationTimestamp": LONG_AGO}
    spec, status = {"controllerName": "example.com/b"}, {"conditions": [said]}
    found = {"kind": "AdmissionCheck", "metadata": meta, "spec": spec, "status": status}
    patient.objects.append(found)
    strategy = {"admissionChecks": [{"name": "budget"}]}
    patient.get("ClusterQueue")["spec"]["admissionChecksStrategy"] = strategy


def lose_a_controller(patient: Any) -> None:
    _checked(patient, "False")
    _inactive(patient)


def wait_for_a_check(patient: Any) -> None:
    _checked(patient, "True")
    status = patient.get("Workload", "runs")["status"]
    status["conditions"] = status["conditions"][:1]
    check = {"name": "budget", "state": "Pending", "message": "", "lastTransitionTime": LONG_AGO}
    status["admissionChecks"] = [check]


def stop(patient: Any) -> None:
    patient.get("ClusterQueue")["spec"]["stopPolicy"] = "Hold"
    _inactive(patient)


def _inactive(patient: Any) -> None:
    patient.get("ClusterQueue")["status"]["conditions"][0]["status"] = "False"


def say_something_else(patient: Any) -> None:
    _inactive(patient)


def hold_a_local_queue(patient: Any) -> None:
    patient.get("LocalQueue")["spec"]["stopPolicy"] = "Hold"


def name_no_cluster_queue(patient: Any) -> None:
    patient.add("LocalQueue", "lost", "ns", spec={"clusterQueue": "absent"})


def select_other_namespaces(patient: Any) -> None:
    patient.get("ClusterQueue")["spec"]["namespaceSelector"] = {"matchLabels": {"team": "red"}}


def name_no_local_queue(patient: Any) -> None:
    patient.get("Workload", "waits")["spec"]["queueName"] = "absent"


def name_no_queue(patient: Any) -> None:
    patient.get("Workload", "waits")["spec"]["queueName"] = ""


def store_nonsense(patient: Any) -> None:
    quota = {"name": "cpu", "nominalQuota": "much"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}
    patient.add("ClusterQueue", "nonsense", spec={"resourceGroups": [group]})


def promise_too_much(patient: Any) -> None:
    patient.get("Node")["status"]["allocatable"]["cpu"] = "3"


def cordon(patient: Any) -> None:
    patient.get("Node")["spec"]["unschedulable"] = True


def have_more(patient: Any) -> None:
    patient.get("Node")["status"]["allocatable"]["nvidia.com/gpu"] = "8"


def have_a_node_for_nobody(patient: Any) -> None:
    node = patient.get("Node")
    patient.add("Node", "lonely", spec={}, status=node["status"])


def have_a_tainted_node(patient: Any) -> None:
    node = patient.get("Node")
    taint = {"key": "maintenance", "effect": "NoSchedule"}
    labels = {"labels": {"pool": "f"}}
    status = node["status"]
    patient.add("Node", "tainted", metadata=labels, spec={"taints": [taint]}, status=status)


def reclaim_alone(patient: Any) -> None:
    patient.get("ClusterQueue")["spec"]["preemption"] = {"reclaimWithinCohort": "Any"}


def reclaim_in_an_empty_cohort(patient: Any) -> None:
    reclaim_alone(patient)
    patient.get("ClusterQueue")["spec"]["cohortName"] = "alone"


def close_a_cycle(patient: Any) -> None:
    for name, parent in (("a", "b"), ("b", "c"), ("c", "a"), ("below", "a")):
        patient.add("Cohort", name, spec={"parentName": parent})


def cut_off(patient: Any) -> None:
    close_a_cycle(patient)
    queue = patient.get("ClusterQueue")
    queue["spec"]["cohortName"] = "below"
    queue["status"]["conditions"][0] |= {"status": "False", "reason": "CohortCycle"}


def lose_a_cohort(patient: Any) -> None:
    patient.add("Cohort", "left", spec={"parentName": "owner"})


def share_nothing(patient: Any) -> None:
    spec = {"cohortName": "owner", "namespaceSelector": {}}
    status = patient.get("ClusterQueue")["status"]
    for name in ("poor", "poorer"):
        patient.add("ClusterQueue", name, spec=spec, status={"conditions": status["conditions"]})


def prefer_among_one_flavor(patient: Any) -> None:
    patient.get("ClusterQueue")["spec"]["flavorFungibility"] = {"whenCanBorrow": "TryNextFlavor"}


def keep_a_finalizer(patient: Any) -> None:
    patient.add("ResourceFlavor", "gone", metadata=ENDING, spec={})


def delete_what_is_used(patient: Any) -> None:
    patient.get("ResourceFlavor")["metadata"].update(ENDING)


def keep_a_pod(patient: Any) -> None:
    meta = {"deletionTimestamp": LONG_AGO, "finalizers": ["kueue.x-k8s.io/managed"]}
    patient.add("Pod", "over", "ns", metadata=meta, spec={}, status={"phase": "Succeeded"})


def drain_a_group(patient: Any) -> None:
    patient.get("Workload", "runs")["metadata"]["name"] = "g"
    meta = {"deletionTimestamp": LONG_AGO, "finalizers": ["kueue.x-k8s.io/managed"]}
    meta["labels"] = {"kueue.x-k8s.io/pod-group-name": "g"}
    for name in ("one", "two"):
        patient.add("Pod", name, "ns", metadata=meta, spec={}, status={"phase": "Failed"})


def count_too_many(patient: Any) -> None:
    patient.get("ClusterQueue")["status"]["reservingWorkloads"] = 2


def count_too_much(patient: Any) -> None:
    status = patient.get("ClusterQueue")["status"]
    status["flavorsReservation"][0]["resources"][0]["total"] = "4"


def _gated(patient: Any, name: str, **meta: Any) -> Obj:
    gates = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}], "containers": [{}]}
    return patient.add("Pod", name, "ns", metadata=meta, spec=gates)


def gate_for_nobody(patient: Any) -> None:
    _gated(patient, "alone")


def gate_for_a_group(patient: Any) -> None:
    labels = {"kueue.x-k8s.io/pod-group-name": "g", "kueue.x-k8s.io/queue-name": "lq"}
    notes = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    _gated(patient, "one", labels=labels, annotations=notes)


def gate_for_a_bad_group(patient: Any) -> None:
    gate_for_a_group(patient)
    patient.get("Pod")["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "x"}


def gate_for_what_has_finished(patient: Any) -> None:
    _gated(patient, "late")
    done = {"type": "Finished", "status": "True", "reason": "x", "lastTransitionTime": LONG_AGO}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "late", "uid": "uid-late"}
    spec = patient.get("Workload", "waits")["spec"]
    status = {"conditions": [{**done, "message": ""}]}
    refs = {"ownerReferences": [{**owner, "controller": True}]}
    patient.add("Workload", "pod-late", "ns", metadata=refs, spec=spec, status=status)


def suspend_for_nobody(patient: Any) -> None:
    labels = {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}
    patient.add("Job", "alone", "ns", metadata=labels, spec={"suspend": True})


def lose_the_account(patient: Any) -> None:
    patient.remove("ServiceAccount", "kueue-controller-manager")


def refuse_the_start(patient: Any) -> None:
    patient.add("Job", "held", "ns", spec={"suspend": True})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "held", "uid": "uid-held"}
    runs = patient.get("Workload", "runs")
    runs["metadata"]["ownerReferences"] = [{**owner, "controller": True}]


QUOTA = (
    'Error creating: pods "runs-x" is forbidden: exceeded quota: few, requested: pods=1, used: '
    "pods=2, limited: pods=2"
)


def told(patient: Any, kind: str, name: str, reason: str, message: str, ago: float = 30) -> None:
    about = {"kind": kind, "name": name, "namespace": "ns", "uid": f"uid-{name}"}
    at = format_time(patient.now - ago)
    event = {"involvedObject": about, "reason": reason, "message": message, "lastTimestamp": at}
    patient.add("Event", f"{name}-{ago:g}", "ns", **event)


def exceed_a_quota(patient: Any) -> None:
    patient.add("Job", "job", "ns", spec={"parallelism": 3}, status={"active": 2})
    told(patient, "Job", "job", "FailedCreate", QUOTA)


def name_no_class(patient: Any) -> None:
    suspend_for_nobody(patient)
    patient.get("Job", "alone")["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "urgent"


def lose_both_queues(patient: Any) -> None:
    for kind, name in (("Workload", "waits"), ("LocalQueue", "lq"), ("ClusterQueue", "cq")):
        patient.remove(kind, name)
    patient.get("Node")["metadata"]["labels"] = {"pool": "g"}


def lose_the_local_queue(patient: Any) -> None:
    patient.remove("Workload", "waits")
    patient.remove("LocalQueue")


def lower_the_quota(patient: Any, amount: str = "2") -> None:
    patient.remove("Workload", "waits")
    flavor = patient.get("ClusterQueue")["spec"]["resourceGroups"][0]["flavors"][0]
    flavor["resources"][0]["nominalQuota"] = amount
    patient.get("Node")["status"]["allocatable"]["cpu"] = "2"


def rename_the_flavor(patient: Any) -> None:
    patient.remove("Workload", "waits")
    patient.add("ResourceFlavor", "g", spec={"nodeLabels": {"pool": "f"}})
    patient.get("ClusterQueue")["spec"]["resourceGroups"][0]["flavors"][0]["name"] = "g"


def shrink_the_cohort(patient: Any) -> None:
    """The queue borrows what no member of the cohort has any longer."""
    lower_the_quota(patient, "1")
    queue = patient.get("ClusterQueue")
    queue["spec"]["cohortName"] = "all"
    other = copy.deepcopy(queue)
    other["metadata"]["name"] = "other"
    other["status"] |= {"reservingWorkloads": 0, "flavorsReservation": []}
    patient.objects.append(other)


def finish_the_other(patient: Any) -> None:
    patient.remove("Workload", "runs")
    status = patient.get("ClusterQueue")["status"]
    status |= {"reservingWorkloads": 0, "flavorsReservation": []}


def ask_for_too_much(patient: Any) -> None:
    spec = copy.deepcopy(patient.get("Workload", "waits")["spec"])
    spec["podSets"][0]["count"] = 2
    patient.get("Workload", "waits")["spec"] = spec


def want_other_nodes(patient: Any) -> None:
    spec = copy.deepcopy(patient.get("Workload", "waits")["spec"])
    spec["podSets"][0]["template"]["spec"]["nodeSelector"] = {"pool": "g"}
    patient.get("Workload", "waits")["spec"] = spec


def ask_for_force(patient: Any) -> None:
    workload = patient.get("Workload", "waits")
    workload["spec"] = copy.deepcopy(workload["spec"])
    template = workload["spec"]["podSets"][0]["template"]
    template.setdefault("metadata", {})["annotations"] = {FORCED: "true"}


def place_by_a_topology(patient: Any) -> None:
    off = {"TopologyAwareScheduling": False}
    patient.configuration = attrs.evolve(patient.configuration, feature_gates=off)
    patient.get("ResourceFlavor")["spec"] |= {"topologyName": "racks", "nodeLabels": {"a": "b"}}


def run_with_devices(patient: Any) -> None:
    spec = copy.deepcopy(patient.get("Workload", "runs")["spec"])
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    spec["podSets"][0]["template"]["spec"]["resourceClaims"] = claims
    patient.get("Workload", "runs")["spec"] = spec


def lose_the_job(patient: Any) -> None:
    del patient.get("Workload", "runs")["metadata"]["ownerReferences"]


def fail_to_start(patient: Any) -> None:
    end = {"type": "Finished", "status": "True", "reason": "FailedToStart", "message": "no way"}
    waits = patient.get("Workload", "waits")
    waits["status"] = {"conditions": [{**end, "lastTransitionTime": LONG_AGO}]}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train"}
    waits["metadata"]["ownerReferences"] = [{**owner, "controller": True}]


OURS = "kueue-mutating-webhook-configuration"
QUEUE = "ClusterQueue cq"
CASES = [
    (lose_a_definition, "crd-missing", ERROR, f"{CRD} {WORKLOADS}", "Workload is not defined"),
    (delete_a_definition, "crd-terminating", ERROR, f"{CRD} {WORKLOADS}",
     "or the next one that starts, suspends their Jobs and deletes their Pods"),
    (unestablish, "crd-established", ERROR, f"{CRD} {WORKLOADS}", "another kind has the name"),
    (stop_serving, "crd-versions", HINT, f"{CRD} {WORKLOADS}", "v1beta1 is not served"),
    (store_the_old_version, "crd-versions", WARNING, f"{CRD} {WORKLOADS}", "stored in v1beta1"),
    (convert_nothing, "crd-conversion", ERROR, f"{CRD} localqueues.kueue.x-k8s.io",
     "v1beta1 and v1beta2 are served, and no webhook converts them"),
    (convert_elsewhere, "crd-conversion", ERROR, f"{CRD} localqueues.kueue.x-k8s.io",
     "is at https://127.0.0.1:19998, the others at Service kueue-system/kueue-webhook-service"),
    (have_stored_an_old_version, "crd-stored-versions", HINT, f"{CRD} {WORKLOADS}", "v1beta1"),
    (have_stored_a_version_that_is_gone, "crd-stored-versions", ERROR, f"{CRD} {WORKLOADS}",
     "v1alpha1 is no longer defined"),
    (lose_a_field, "crd-fields", WARNING, f"{CRD} {WORKLOADS}",
     "v1beta2 drops spec.podSets[].minCount"),
    (lose_a_configuration, "webhook-missing", ERROR, f"{MUTATING} {OURS}", "does not exist"),
    (lose_the_service, "webhook-service", ERROR, f"{MUTATING} {OURS}",
     "leads to Service kueue-system/absent, which does not exist"),
    (misconfigure, "configuration-invalid", ERROR, "ConfigMap kueue-system/kueue-manager-config",
     "unknown key metrics.bindAdress; did you mean bindAddress?"),
    (disable_jobs, "kind-disabled", WARNING, "Job ns/runs", "1 Job with a queue name"),
    (disable_a_job_that_waits, "kind-disabled", ERROR, "Job ns/runs", "does not list batch/job"),
    (lose_an_entry, "webhook-missing", WARNING, f"{MUTATING} {OURS}", "it lacks m"),
    (trust_nobody, "webhook-authority", ERROR, f"{MUTATING} {OURS}", "caBundle is empty"),
    (trust_rubbish, "webhook-authority", ERROR, f"{MUTATING} {OURS}", "holds no certificate"),
    (trust_another, "webhook-authority", ERROR, f"{MUTATING} {OURS}", "is not the authority"),
    (lose_the_secret, "webhook-certificate", ERROR, f"Secret kueue-system/{SECRET}",
     "no manager has made"),
    (empty_the_secret, "webhook-certificate", ERROR, f"Secret kueue-system/{SECRET}",
     "does not hold ca.crt"),
    (name_another_host, "webhook-certificate", ERROR, f"Secret kueue-system/{SECRET}",
     "is not for 10.0.0.1"),
    (break_the_calls, "webhook-unreachable", ERROR, "Service kueue-system/kueue-webhook-service",
     "does not reach the admission webhook: connection refused"),
    (deny, "permissions", ERROR, "ServiceAccount kueue-system/kueue-controller-manager",
     f"it may not list, watch workloads.kueue.x-k8s.io: {GRANT} has to grant it to Serv"),
    (lose_the_lease, "leader", ERROR, "Lease kueue-system/c1f6bfd2.kueue.x-k8s.io",
     "no manager leads: it does not exist"),
    (run_without_election, "leader", HINT, "Lease kueue-system/c1f6bfd2.kueue.x-k8s.io",
     "it runs without leader election"),
    (leave, "leader", ERROR, "Lease kueue-system/c1f6bfd2.kueue.x-k8s.io", "the last one has left"),
    (die, "leader", ERROR, "Lease kueue-system/c1f6bfd2.kueue.x-k8s.io",
     "manager-1 renewed it 100s ago, for 15 s"),
    (lead_with_old_values, "restart-needed", WARNING,
     "Lease kueue-system/c1f6bfd2.kueue.x-k8s.io", "leads with old values of webhook.port"),
    (be_behind, "clock-skew", WARNING, "Lease kueue-system/c1f6bfd2.kueue.x-k8s.io", "10m behind"),
    (lead_elsewhere, "another-leader", ERROR, "Lease other/c1f6bfd2.kueue.x-k8s.io",
     "a second manager"),
    (notice_another, "another-decides", ERROR, "Workload ns/runs", "ago that it has quota"),
    (run_the_go_manager, "another-manager", ERROR, "Deployment other/kueue",
     "registry.k8s.io/kueue/kueue:v0.14.1"),
    (keep_the_pods_of_before, "deployment-left", WARNING,
     "Deployment kueue-system/kueue-controller-manager", "it keeps 2 pods although the webhooks"),
    (lose_an_api, "visibility-missing", WARNING, f"APIService {VISIBILITY}",
     "the configuration has visibilityServer"),
    (leave_an_api_behind, "visibility-unavailable", WARNING, f"APIService {VISIBILITY}",
     "(FailedDiscoveryCheck: connection refused)"),
    (let_another_webhook_fail, "another-webhook", ERROR, f"{MUTATING} theirs", "does not answer"),
    (register_another_webhook, "another-webhook", HINT, f"{MUTATING} theirs", "theirs.dev"),
    (lose_a_check, "queue-inactive", ERROR, QUEUE, "missing AdmissionCheck(s): absent"),
    (lose_a_controller, "queue-inactive", ERROR, QUEUE, "AdmissionCheck"),
    (wait_for_a_check, "check-pending", HINT, "AdmissionCheck budget", "controller example.com/b"),
    (stop, "queue-inactive", HINT, QUEUE, "is stopped"),
    (close_a_cycle, "cohort-cycle", WARNING, "Cohort a", "a cycle: a -> b -> c -> a"),
    (cut_off, "cohort-cycle", ERROR, "Cohort a", "nothing is admitted in ClusterQueue cq"),
    (lose_a_cohort, "cohort-absent", HINT, "Cohort owner", "Cohort left has it as parent"),
    (share_nothing, "cohort-absent", HINT, "Cohort owner", "owns any either: ClusterQueue poor"),
    (say_something_else, "queue-status", WARNING, QUEUE, "Active is False, and should be True"),
    (hold_a_local_queue, "local-queue", HINT, "LocalQueue ns/lq", "stopPolicy is Hold"),
    (name_no_cluster_queue, "local-queue", ERROR, "LocalQueue ns/lost",
     "ClusterQueue absent does not exist; there are: cq"),
    (select_other_namespaces, "local-queue", ERROR, "LocalQueue ns/lq",
     "does not admit namespace ns"),
    (name_no_local_queue, "queue-name", ERROR, "LocalQueue ns/absent",
     "does not exist, and these Workloads name it: waits"),
    (name_no_queue, "queue-name", ERROR, "Workload ns/waits", "names no queue"),
    (store_nonsense, "object-unreadable", ERROR, "ClusterQueue nonsense", "nominalQuota"),
    (promise_too_much, "quota-promised", WARNING, "ResourceFlavor f",
     "4 of cpu, and its nodes have 3 (nodes: 1 usable)"),
    (cordon, "quota-promised", WARNING, "ResourceFlavor f", "1 cordoned or not ready"),
    (have_more, "capacity-unused", HINT, "ResourceFlavor f", "8 of 8 nvidia.com/gpu"),
    (have_a_node_for_nobody, "capacity-unused", HINT, "Node lonely", "no flavor with quota"),
    (have_a_tainted_node, "capacity-unused", HINT, "Node tainted", "no flavor with quota"),
    (reclaim_alone, "policy-idle", HINT, QUEUE, "is in no cohort"),
    (reclaim_in_an_empty_cohort, "policy-idle", HINT, QUEUE, "tree of cohort alone"),
    (prefer_among_one_flavor, "policy-idle", HINT, QUEUE, "no next flavor"),
    (keep_a_finalizer, "finalizer-stuck", ERROR, "ResourceFlavor gone", "nothing uses it"),
    (delete_what_is_used, "finalizer-stuck", HINT, "ResourceFlavor f", "by ClusterQueue cq"),
    (keep_a_pod, "pod-finalizer-stuck", ERROR, "Pod ns/over", "does not run"),
    (drain_a_group, "pod-finalizer-stuck", HINT, "Workload ns/g", "its pod one was deleted"),
    (count_too_many, "assumption-orphaned", WARNING, QUEUE, "2 Workloads, and 1 do"),
    (count_too_much, "assumption-orphaned", WARNING, QUEUE, "4 of cpu in flavor f, and 3 is held"),
    (gate_for_nobody, "pod-gated", ERROR, "Pod ns/alone", "no Workload represents it"),
    (gate_for_a_group, "pod-gated", HINT, "Pod ns/one",
     "its group g has no Workload: The group has 1 of 2 pods"),
    (gate_for_a_bad_group, "pod-gated", ERROR, "Pod ns/one", "its group g has no Workload"),
    (gate_for_what_has_finished, "pod-gated", ERROR, "Pod ns/late", "pod-late has finished"),
    (suspend_for_nobody, "job-unqueued", ERROR, "Job ns/alone", "names the queue lq"),
    (bypass_the_webhook, "pod-unqueued", WARNING, "Pod ns/free", "runs without quota"),
    (refuse_the_start, "not-started", ERROR, "Job ns/held", "Workload runs was admitted"),
    (exceed_a_quota, "write-refused", ERROR, "Job ns/job",
     "its pods are not created: Error creating: pods"),
    (lose_the_account, "account-missing", HINT,
     "ServiceAccount kueue-system/kueue-controller-manager", "it does not exist"),
    (name_no_class, "job-unqueued", ERROR, "Job ns/alone", "urgent does not exist"),
    (ask_for_too_much, "never-fits", ERROR, "Workload ns/waits", "6 requested, at most 4"),
    (want_other_nodes, "never-fits", ERROR, "Workload ns/waits", "f: node affinity differs"),
    (ask_for_force, "feature-missing", ERROR, "Workload ns/waits",
     "it waits: this version has no forced deletion of pods that do not terminate"),
    (run_with_devices, "feature-missing", WARNING, "Workload ns/runs", "of resource claims (DRA)"),
    (fail_to_start, "never-ran", ERROR, "Workload ns/waits", "FailedToStart: no way"),
    (lose_the_job, "quota-unowned", HINT, "Workload ns/runs", "held quota for 10m"),
    (lose_both_queues, "quota-lost", WARNING, QUEUE,
     "nothing counts the quota of these Workloads: ns/runs; they hold 3 of cpu in flavor f"),
    (lose_the_local_queue, "quota-lost", HINT, "LocalQueue ns/lq", "that name it hold quota"),
    (lower_the_quota, "quota-exceeded", HINT, QUEUE,
     "it holds 3 of cpu in flavor f, and may hold 2: Workload ns/runs"),
    (rename_the_flavor, "quota-exceeded", HINT, QUEUE,
     "it holds 3 of cpu in flavor f, which it does not offer: Workload ns/runs"),
    (shrink_the_cohort, "quota-exceeded", HINT, "Cohort all",
     "it holds 3 of cpu in flavor f, but the quota of its tree is 2: Workload ns/runs"),
    (finish_the_other, "fits-but-waits", ERROR, "Workload ns/waits", "nothing stands in its way"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make_ill", "check", "severity", "subject", "words"),
    CASES,
    ids=[one[0].__name__ for one in CASES],
)
def test_one_illness_has_exactly_one_finding(
    patient: Any, make_ill: Any, check: str, severity: Severity, subject: str, words: str
) -> None:
    make_ill(patient)
    found = patient.only(check)
    assert (found.severity, str(found.subject)) == (severity, subject)
    assert words in found.problem
    assert found.fix


def test_every_check_has_a_case() -> None:
    others = {"crd-status", "job-untouched", "never-finished"}  # see test_ended
    others |= {"flavor-missing", "flavor-topology", "crd-held", "namespace-stuck"}  # see test_lost
    others |= {"topology-levels", "topology-overlap", "topology-ignored"}  # see test_topologies
    others |= {"placement-stale"}  # see test_topologies as well
    assert {one.name for one in all_checks()} == {check for _, check, *_ in CASES} | others


@pytest.mark.parametrize("name", ["absent", "", "No Name"])
def test_a_wrong_queue_name_is_described_as_explain_does(patient: Any, name: str) -> None:
    patient.get("Workload", "waits")["spec"]["queueName"] = name
    (told,) = problems_of(patient.snapshot().world, ObjectKey("ns", "waits"), None)
    found = patient.only("queue-name")
    assert str(found.subject) == told.subject
    assert found.problem.startswith(told.problem)
    assert found.fix == f"kubectl -n ns get workloads  # {told.fix}"


def test_the_command_for_a_dead_webhook_spares_one_that_works(patient: Any) -> None:
    let_another_webhook_fail(patient)
    configuration = patient.get(MUTATING, "theirs")
    (dead,) = configuration["webhooks"]
    configuration["webhooks"].append({**dead, "name": "works.dev"})
    (fix,) = [one.fix for name, one in patient.found() if name == "another-webhook"]
    assert fix.startswith("kubectl edit ")
    assert "# remove theirs.dev, " in fix
