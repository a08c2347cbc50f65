"""How faults are planted in a cluster, and the objects that they consist of."""

from __future__ import annotations

import base64
import copy
import time
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import yaml
from installed import CONFIG_MAP, DEPLOYMENT, KEY, NAME, SYSTEM, Installed
from place import GROUP, QUEUE, RUN, TOTAL, pod_spec
from rest import KUEUE, Obj, eventually, is_true

from kueuelib.api.meta import format_time
from kueuelib.runtime.certificates import host_names, renewed

DOMAIN = "kueue.x-k8s.io"
TEAM = "team"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{HOOKS}/mutatingwebhookconfigurations"
VALIDATING = f"{HOOKS}/validatingwebhookconfigurations"
OURS = f"{MUTATING}/kueue-mutating-webhook-configuration"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LEASE = "c1f6bfd2.kueue.x-k8s.io"
ACCOUNT = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{NAME}"
LOCAL = f"{KUEUE}/namespaces/{TEAM}/localqueues"
CLASSES = f"{KUEUE}/workloadpriorityclasses"
COHORTS = f"{KUEUE}/cohorts"
WORKLOADS = f"{KUEUE}/namespaces/{TEAM}/workloads"
JOBS = f"/apis/batch/v1/namespaces/{TEAM}/jobs"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
INSTALL = (
    f"kubectl -n {SYSTEM} get configmap kueue-manager-config "
    "-o jsonpath='{.data.controller_manager_config\\.yaml}' | "
    "kueuelib install --config /dev/stdin"
)
RESTART = f"kubectl -n {SYSTEM} rollout restart deployment {NAME}"
SCALE = f"kubectl -n {SYSTEM} scale deployment {NAME} --replicas=2"
ERROR, WARNING, HINT = "error", "warning", "hint"
OUR_HOOKS = "MutatingWebhookConfiguration kueue-mutating-webhook-configuration"
THE_DEPLOYMENT = f"Deployment {SYSTEM}/{NAME}"
NO_MANAGER = {
    f"leader: Lease {SYSTEM}/{LEASE}": ERROR,
    f"webhook-unreachable: Service {SYSTEM}/kueue-webhook-service": ERROR,
}


STUCK = {
    f"pod-finalizer-stuck: Pod {TEAM}/left": ERROR,
    f"finalizer-stuck: Workload {TEAM}/left": ERROR,
}


def nothing(cluster: Installed) -> None:
    """For faults that need no such step."""


@attrs.frozen
class Fault:
    """One fault.

    Attributes:
        name: of the fault.
        plant: makes it.
        found: everything that is found then, as check and object, with the severity.
        command: what the first finding says, as printed.
        changes: the objects that are other ones once the command has cured it.
        decision: what the user decides, as words of the finding; empty if the command is enough.
        editor: what the user does in the editor that the command opens.
        decide: what the user does besides.
        leaves: findings of `found` that have another cause.
        clean: removes what is left of the fault.
        runs: whether there is a command.
        in_pods: whether the manager has to run in pods.
    """

    name: str
    plant: Callable[[Installed], Any]
    found: Mapping[str, str]
    command: str
    changes: frozenset[str] = attrs.field(converter=frozenset, default=frozenset())
    decision: str = ""
    editor: str = "true"
    decide: Callable[[Installed], Any] = nothing
    leaves: frozenset[str] = attrs.field(converter=frozenset, default=frozenset())
    clean: Callable[[Installed], Any] = nothing
    runs: bool = True
    in_pods: bool = False


# --- objects


def typed(kind: str, name: str, **parts: Any) -> Obj:
    return {"apiVersion": f"{DOMAIN}/v1beta2", "kind": kind, "metadata": {"name": name}, **parts}


def groups(**cpu: str) -> list[Obj]:
    """Quota of CPUs, by flavor."""
    flavors = [
        {"name": name.replace("_", "-"), "resources": [{"name": "cpu", "nominalQuota": amount}]}
        for name, amount in cpu.items()
    ]
    return [{"coveredResources": ["cpu"], "flavors": flavors}]


def queue(name: str, **spec: Any) -> Callable[[Installed], Obj]:
    """Creates a ClusterQueue."""
    spec = {"namespaceSelector": {}, "resourceGroups": groups(on_demand="0"), **spec}
    body = typed("ClusterQueue", name, spec=spec)
    return lambda cluster: cluster.rest.create(f"{KUEUE}/clusterqueues", body)


def job(name: str, queue_name: str = "main", cpu: str = "1", **labels: str) -> Obj:
    labels = {QUEUE: queue_name, **{f"{DOMAIN}/{key}": one for key, one in labels.items()}}
    template = {"metadata": {"annotations": {RUN: "6000"}}, "spec": pod_spec(cpu)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {"backoffLimit": 0, "template": template},
    }


def gated(name: str) -> Obj:
    """A Job that another controller holds back."""
    body = job(name)
    body["metadata"]["annotations"] = {f"{DOMAIN}/admission-gated-by": "example.com/other"}
    return body


def create(path: str, *objects: Obj) -> Callable[[Installed], None]:
    def created(cluster: Installed) -> None:
        for one in objects:
            cluster.rest.create(path, one)

    return created


def delete(*paths: str) -> Callable[[Installed], None]:
    def deleted(cluster: Installed) -> None:
        for path in paths:
            cluster.rest.delete(path)

    return deleted


def merge(path: str, body: Obj) -> Callable[[Installed], Obj]:
    return lambda cluster: cluster.rest.merge(path, body)


def both(*steps: Callable[[Installed], Any]) -> Callable[[Installed], None]:
    def all_of_them(cluster: Installed) -> None:
        for step in steps:
            step(cluster)

    return all_of_them


def crd(plural: str) -> str:
    return f"{CRDS}/{plural}.{DOMAIN}"


def of_crd(plural: str) -> str:
    return f"CustomResourceDefinition {plural}.{DOMAIN}"


def hooks(change: Callable[[Obj], None]) -> Callable[[Installed], Obj]:
    """Changes every entry of our mutating webhooks."""

    def changed(cluster: Installed) -> Obj:
        entries = copy.deepcopy(cluster.rest.get(OURS)["webhooks"])
        for one in entries:
            change(one)
        return cluster.rest.merge(OURS, {"webhooks": entries})

    return changed


def versions(plural: str, change: Callable[[Obj], None]) -> Callable[[Installed], Obj]:
    """Changes every version of a definition."""

    def changed(cluster: Installed) -> Obj:
        entries = copy.deepcopy(cluster.rest.get(crd(plural))["spec"]["versions"])
        for one in entries:
            change(one)
        return cluster.rest.merge(crd(plural), {"spec": {"versions": entries}})

    return changed


def foreign(name: str, url: str, **fields: Any) -> Obj:
    """A webhook configuration of somebody else for our kinds."""
    rule = {
        "apiGroups": [DOMAIN],
        "apiVersions": ["*"],
        "resources": ["resourceflavors"],
        "operations": ["CREATE"],
    }
    hook = {
        "name": f"{name}.example.com",
        "clientConfig": {"url": url, **fields},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "timeoutSeconds": 1,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [hook],
    }


def policy() -> Obj:
    """A webhook configuration of somebody else for changes of Jobs; nobody answers."""
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"]}
    obj = foreign("policy", "https://127.0.0.1:9/")
    obj["webhooks"][0]["rules"] = [{**rule, "operations": ["UPDATE"]}]
    return obj


def dead(group: str, *resources: str, operation: str) -> Obj:
    """A webhook configuration of somebody else for some kinds; nobody answers."""
    obj = foreign("policy", "https://127.0.0.1:9/")
    rule = {"apiGroups": [group], "apiVersions": ["*"], "resources": list(resources)}
    obj["webhooks"][0]["rules"] = [{**rule, "operations": [operation]}]
    return {**obj, "kind": "ValidatingWebhookConfiguration"}


def bypass(cluster: Installed) -> None:
    """A Pod is created while our mutating webhooks do not exist."""
    before = cluster.rest.get(OURS)
    cluster.rest.delete(OURS)
    meta = {"name": "free", "labels": {QUEUE: "main"}, "annotations": {RUN: "6000"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_spec()}

    def runs() -> bool:
        """Somebody may still know the webhooks for a moment."""
        made = cluster.rest.create(PODS, pod)
        if made["spec"].get("schedulingGates"):
            cluster.rest.delete(f"{PODS}/free")
            return False
        return True

    eventually(runs)
    eventually(lambda: cluster.rest.get(f"{PODS}/free")["spec"].get("nodeName"))
    kept = {key: before[key] for key in ("apiVersion", "kind", "webhooks")}
    labels = before["metadata"].get("labels")
    cluster.rest.create(
        MUTATING, {**kept, "metadata": {"name": OURS.rpartition("/")[2], "labels": labels}}
    )


def deployment(name: str, image: str, *args: str, replicas: int = 1) -> Obj:
    labels = {"app": name}
    pod = {"containers": [{"name": "manager", "image": image, "args": list(args)}]}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    meta = {"name": name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


# --- how faults are planted


def stop(cluster: Installed) -> None:
    cluster.rest.merge(DEPLOYMENT, {"spec": {"replicas": 0}})
    cluster.follow()


def trust_another(entry: Obj) -> None:
    other = renewed(None, host_names(["127.0.0.1"]), time.time()).ca_cert
    entry["clientConfig"]["caBundle"] = base64.b64encode(other).decode()


def misdirect(entry: Obj) -> None:
    entry["clientConfig"]["service"]["name"] = "kueue"


def lose_an_entry(cluster: Installed) -> None:
    entries = cluster.rest.get(OURS)["webhooks"]
    kept = [one for one in entries if one["name"] != "mresourceflavor.kb.io"]
    cluster.rest.merge(OURS, {"webhooks": kept})


def lose_a_field(version: Obj) -> None:
    properties = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties.pop("parameters")


def store_v1beta1(version: Obj) -> None:
    version["storage"] = version["name"] == "v1beta1"


def store_v1beta2(version: Obj) -> None:
    version["storage"] = version["name"] == "v1beta2"


def configure(**keys: Any) -> Callable[[Installed], None]:
    """Changes the configuration, as a kubelet shows it to the manager."""

    def changed(cluster: Installed) -> None:
        text = cluster.rest.get(CONFIG_MAP)["data"][KEY] + yaml.safe_dump(keys)
        cluster.rest.merge(CONFIG_MAP, {"data": {KEY: text}})
        cluster.mount()

    return changed


def disable_jobs(cluster: Installed) -> None:
    text = cluster.rest.get(CONFIG_MAP)["data"][KEY].replace("[batch/job, pod]", "[pod]")
    cluster.rest.merge(CONFIG_MAP, {"data": {KEY: text}})
    cluster.run(RESTART)


def second_manager(cluster: Installed) -> None:
    cluster.rest.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    other = deployment("kueue", "kueuelib:1", "manager")
    cluster.rest.create("/apis/apps/v1/namespaces/other/deployments", other)
    cluster.follow()


def go_manager(cluster: Installed) -> None:
    cluster.rest.create("/api/v1/namespaces", {"metadata": {"name": "kueue-go"}})
    go = deployment("kueue-go", "registry.k8s.io/kueue/kueue:v0.14.1")
    cluster.rest.create("/apis/apps/v1/namespaces/kueue-go/deployments", go)


def unowned(cluster: Installed) -> None:
    pod_set = {"name": "main", "count": 1, "template": {"spec": pod_spec("1")}}
    body = typed("Workload", "left", spec={"queueName": "main", "podSets": [pod_set]})
    cluster.rest.create(WORKLOADS, body)
    eventually(lambda: is_true(cluster.rest.get(f"{WORKLOADS}/left"), "Admitted"))


def inactive_check(cluster: Installed) -> None:
    spec = {"controllerName": "example.com/budget"}
    cluster.rest.create(f"{KUEUE}/admissionchecks", typed("AdmissionCheck", "budget", spec=spec))
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}
    queue("checked", **checks)(cluster)


def activate(cluster: Installed) -> None:
    active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
    body = {"status": {"conditions": [{**active, "lastTransitionTime": format_time(time.time())}]}}
    cluster.rest.merge(f"{KUEUE}/admissionchecks/budget/status", body)


def local_queue(name: str, cluster_queue: str, namespace: str = TEAM) -> Callable[[Installed], Any]:
    body = typed("LocalQueue", name, spec={"clusterQueue": cluster_queue})
    path = f"{KUEUE}/namespaces/{namespace}/localqueues"
    return lambda cluster: cluster.rest.create(path, body)


def prebuilt(count: int) -> Callable[[Installed], None]:
    """Creates the Workload that the Job `early` names."""

    def created(cluster: Installed) -> None:
        template = {"spec": cluster.rest.get(f"{JOBS}/early")["spec"]["template"]["spec"]}
        pod_set = {"name": "main", "count": count, "template": template}
        body = typed("Workload", "made", spec={"queueName": "main", "podSets": [pod_set]})
        cluster.rest.create(WORKLOADS, body)

    return created


def started(name: str) -> frozenset[str]:
    """What changes once a Job of that name starts that has a Workload."""
    return frozenset({f"Job {TEAM}/{name}", f"Pod {TEAM}/{name}-*"})


def queued(name: str) -> frozenset[str]:
    """What changes once a Job of that name gets a Workload, and starts."""
    return started(name) | {f"Workload {TEAM}/job-{name}-*"}


def ended(*names: str) -> Callable[[Installed], None]:
    """Deletes Jobs with all they have."""

    def gone(cluster: Installed) -> None:
        for name in names:
            cluster.rest.delete(f"{JOBS}/{name}")

    return gone


def left_behind(cluster: Installed) -> None:
    """A pod of a group and a Workload are deleted while no manager runs."""
    meta = {
        "name": "left",
        "labels": {QUEUE: "main", GROUP: "gone"},
        "annotations": {TOTAL: "2"},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_spec()}
    cluster.rest.create(PODS, pod)
    unowned(cluster)
    kept = {"metadata": {"finalizers": [f"{DOMAIN}/resource-in-use"]}}
    cluster.rest.merge(f"{WORKLOADS}/left", kept)
    main = f"{KUEUE}/clusterqueues/main"
    eventually(lambda: cluster.rest.get(main)["status"]["reservingWorkloads"] == 2)
    stop(cluster)
    delete(f"{PODS}/left", f"{WORKLOADS}/left")(cluster)


def leave_pods(cluster: Installed) -> None:
    """The Job `loose` is deleted once its pod runs, and the pod is not."""
    eventually(lambda: any(one.startswith("loose-") for one in _names(cluster, PODS)))
    cluster.rest.delete(f"{JOBS}/loose", propagationPolicy="Orphan")


def forget(cluster: Installed) -> None:
    """Nothing of the Job `loose` is left."""
    for path in (PODS, WORKLOADS):
        for name in _names(cluster, path):
            if "loose-" in name:
                cluster.rest.delete(f"{path}/{name}")


def _names(cluster: Installed, path: str) -> list[str]:
    return [one["metadata"]["name"] for one in cluster.rest.items(path)]


def withdraw(cluster: Installed) -> None:
    """The Job `astray` loses its queue name, and then its Workload."""

    def waits() -> bool:
        return any(one.startswith("job-astray-") for one in _names(cluster, WORKLOADS))

    eventually(waits)
    cluster.rest.merge(f"{JOBS}/astray", {"metadata": {"labels": {QUEUE: None}}})
    eventually(lambda: not waits())


def restore(cluster: Installed) -> None:
    cluster.rest.merge(DEPLOYMENT, {"spec": {"replicas": 2}})
    cluster.follow()


def skewed(cluster: Installed) -> None:
    cluster.restart(skew=120.0)
