"""What goes wrong in clusters, what `kueuelib doctor` says of it, and what its command changes."""

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
from kueuelib.runtime.webhook.certs import host_names, renewed

DOMAIN = "kueue.x-k8s.io"
TEAM = "team"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{HOOKS}/mutatingwebhookconfigurations"
OURS = f"{MUTATING}/kueue-mutating-webhook-configuration"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LEASE = "c1f6bfd2.kueue.x-k8s.io"
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


def restore(cluster: Installed) -> None:
    cluster.rest.merge(DEPLOYMENT, {"spec": {"replicas": 2}})
    cluster.follow()


def skewed(cluster: Installed) -> None:
    cluster.restart(skew=120.0)


WINDS = ("east", "west")
GHOST = typed("ResourceFlavor", "ghost", spec={"nodeLabels": {"pool": "ghost"}})
FAULTS = (
    Fault(
        "no manager leads",
        stop,
        NO_MANAGER,
        SCALE,
        {THE_DEPLOYMENT},
        in_pods=True,
    ),
    Fault(
        "finalizers stay while no manager runs",
        left_behind,
        {**NO_MANAGER, **STUCK},
        SCALE,
        {THE_DEPLOYMENT, f"Pod {TEAM}/left", f"Workload {TEAM}/left"},
        in_pods=True,
    ),
    Fault(
        "the finalizer of a pod is removed by hand",
        left_behind,
        {**STUCK, **NO_MANAGER},
        f"kubectl patch -n {TEAM} pod left --type=json "
        """-p '[{"op":"remove","path":"/metadata/finalizers/0"}]'  """
        "# a manager that manages it does the same",
        {f"Pod {TEAM}/left"},
        leaves={*NO_MANAGER, f"finalizer-stuck: Workload {TEAM}/left"},
        clean=restore,
        in_pods=True,
    ),
    Fault(
        "another authority is trusted, and no manager repairs it",
        both(stop, hooks(trust_another)),
        {**NO_MANAGER, f"webhook-authority: {OUR_HOOKS}": ERROR},
        SCALE,
        {THE_DEPLOYMENT, OUR_HOOKS},
        in_pods=True,
    ),
    Fault(
        "webhooks lead to a Service that does not exist",
        hooks(misdirect),
        {
            f"webhook-service: {OUR_HOOKS}": ERROR,
            f"webhook-unreachable: Service {SYSTEM}/kueue-webhook-service": ERROR,
        },
        INSTALL,
        {OUR_HOOKS},
        in_pods=True,
    ),
    Fault(
        "a webhook configuration is gone",
        delete(OURS),
        {f"webhook-missing: {OUR_HOOKS}": ERROR},
        INSTALL,
        {OUR_HOOKS},
    ),
    Fault(
        "a webhook is not registered",
        lose_an_entry,
        {f"webhook-missing: {OUR_HOOKS}": WARNING},
        INSTALL,
        {OUR_HOOKS},
    ),
    Fault(
        "a kind is not defined",
        delete(crd("provisioningrequestconfigs")),
        {f"crd-missing: {of_crd('provisioningrequestconfigs')}": ERROR},
        INSTALL,
        {of_crd("provisioningrequestconfigs")},
    ),
    Fault(
        "the definition of a kind is older",
        versions("admissionchecks", lose_a_field),
        {f"crd-fields: {of_crd('admissionchecks')}": WARNING},
        INSTALL,
        {of_crd("admissionchecks")},
    ),
    Fault(
        "objects are stored in the old version",
        versions("cohorts", store_v1beta1),
        {
            f"crd-versions: {of_crd('cohorts')}": WARNING,
            f"crd-stored-versions: {of_crd('cohorts')}": HINT,
        },
        INSTALL,
        {of_crd("cohorts")},
        leaves={f"crd-stored-versions: {of_crd('cohorts')}"},
        clean=merge(f"{crd('cohorts')}/status", {"status": {"storedVersions": ["v1beta2"]}}),
    ),
    Fault(
        "objects may still be stored in the old version",
        both(
            versions("resourceflavors", store_v1beta1),
            create(f"{KUEUE}/resourceflavors", typed("ResourceFlavor", "old", spec={})),
            versions("resourceflavors", store_v1beta2),
        ),
        {f"crd-stored-versions: {of_crd('resourceflavors')}": HINT},
        f"kubectl get resourceflavors.{DOMAIN} -A -o json | kubectl replace -f - && kubectl patch "
        f"crd resourceflavors.{DOMAIN} --subresource=status --type=merge "
        """-p '{"status":{"storedVersions":["v1beta2"]}}'""",
        clean=delete(f"{KUEUE}/resourceflavors/old"),
    ),
    Fault(
        "old versions of kinds without objects",
        merge(f"{crd('cohorts')}/status", {"status": {"storedVersions": ["v1beta1", "v1beta2"]}}),
        {f"crd-stored-versions: {of_crd('cohorts')}": HINT},
        f"kubectl get cohorts.{DOMAIN} -A -o json | kubectl replace -f - && kubectl patch "
        f"crd cohorts.{DOMAIN} --subresource=status --type=merge "
        """-p '{"status":{"storedVersions":["v1beta2"]}}'""",
    ),
    Fault(
        "the manager lost its permissions",
        delete(f"{RBAC}/clusterrolebindings/kueue-manager-rolebinding"),
        {f"permissions: ServiceAccount {SYSTEM}/{NAME}": ERROR},
        INSTALL,
        {"ClusterRoleBinding kueue-manager-rolebinding"},
    ),
    Fault(
        "a LocalQueue misspells its ClusterQueue",
        local_queue("lost", "mian"),
        {f"local-queue: LocalQueue {TEAM}/lost": ERROR},
        f"kubectl get -n {TEAM} localqueue lost -o yaml | "
        "sed 's|clusterQueue: mian$|clusterQueue: main|' | kubectl replace --force -f -  "
        "# or create ClusterQueue mian",
        {f"LocalQueue {TEAM}/lost"},
        clean=delete(f"{LOCAL}/lost"),
    ),
    Fault(
        "the ClusterQueue of a LocalQueue does not exist",
        local_queue("lost", "absent"),
        {f"local-queue: LocalQueue {TEAM}/lost": ERROR},
        f"kubectl get -n {TEAM} localqueue lost -o yaml  "
        "# create ClusterQueue absent, or remove this LocalQueue if nobody submits to it",
        {"ClusterQueue absent"},
        decision="create ClusterQueue absent",
        decide=queue("absent"),
        clean=delete(f"{LOCAL}/lost", f"{KUEUE}/clusterqueues/absent"),
    ),
    Fault(
        "Jobs wait in a LocalQueue without ClusterQueue",
        both(local_queue("lost", "absent"), create(JOBS, job("astray", "lost", "0"))),
        {f"local-queue: LocalQueue {TEAM}/lost": ERROR},
        f"kubectl get -n {TEAM} localqueue lost -o yaml  "
        "# create ClusterQueue absent: Workloads are in this LocalQueue",
        {"ClusterQueue absent", *started("astray")},
        decision="create ClusterQueue absent",
        decide=queue("absent"),
        clean=both(ended("astray"), delete(f"{LOCAL}/lost", f"{KUEUE}/clusterqueues/absent")),
    ),
    Fault(
        "a ClusterQueue names a flavor that does not exist",
        queue("flavored", resourceGroups=groups(absent="0")),
        {
            "flavor-missing: ResourceFlavor absent": ERROR,
            "queue-inactive: ClusterQueue flavored": ERROR,
        },
        "kubectl get resourceflavors,clusterqueues  "
        "# create absent, or take it out of spec.resourceGroups of ClusterQueue flavored",
        {"ResourceFlavor absent"},
        decision="create absent",
        decide=create(f"{KUEUE}/resourceflavors", typed("ResourceFlavor", "absent", spec={})),
        clean=delete(f"{KUEUE}/clusterqueues/flavored", f"{KUEUE}/resourceflavors/absent"),
    ),
    Fault(
        "a ClusterQueue names a check that does not exist",
        queue("checked", admissionChecksStrategy={"admissionChecks": [{"name": "absent"}]}),
        {"queue-inactive: ClusterQueue checked": ERROR},
        "kubectl edit clusterqueue checked  "
        "# AdmissionCheck absent: create it, or take it out of the queue",
        {"ClusterQueue checked"},
        decision="AdmissionCheck absent: create it, or take it out of the queue",
        editor="sed -i '/admissionChecksStrategy:/,/name: absent/d'",
        clean=delete(f"{KUEUE}/clusterqueues/checked"),
    ),
    Fault(
        "nobody serves an admission check",
        inactive_check,
        {"queue-inactive: ClusterQueue checked": ERROR},
        "run the controller of AdmissionCheck budget, so that it becomes Active",
        decision="run the controller of AdmissionCheck budget",
        decide=activate,
        clean=delete(f"{KUEUE}/clusterqueues/checked", f"{KUEUE}/admissionchecks/budget"),
        runs=False,
    ),
    Fault(
        "a flavor selects no node",
        both(
            create(f"{KUEUE}/resourceflavors", GHOST),
            queue("haunted", resourceGroups=groups(ghost="4")),
        ),
        {"quota-promised: ResourceFlavor ghost": WARNING},
        "kubectl get nodes -l pool=ghost  # add nodes, or lower nominalQuota",
        {"ClusterQueue haunted"},
        decision="add nodes, or lower nominalQuota",
        decide=merge(
            f"{KUEUE}/clusterqueues/haunted", {"spec": {"resourceGroups": groups(ghost="0")}}
        ),
        clean=delete(f"{KUEUE}/clusterqueues/haunted", f"{KUEUE}/resourceflavors/ghost"),
    ),
    Fault(
        "a Workload without owner holds quota",
        unowned,
        {f"quota-unowned: Workload {TEAM}/left": HINT},
        f"kubectl -n {TEAM} delete workload left  # unless a controller of yours finishes it",
        {f"Workload {TEAM}/left"},
    ),
    Fault(
        "the priority class of a Job does not exist",
        create(JOBS, job("urgent", **{"priority-class": "high"})),
        {f"job-unqueued: Job {TEAM}/urgent": ERROR},
        "kubectl get workloadpriorityclasses  # create high, or give Job urgent another",
        {*queued("urgent"), "WorkloadPriorityClass high"},
        decision="create high",
        decide=create(CLASSES, typed("WorkloadPriorityClass", "high", value=5)),
        clean=both(ended("urgent"), delete(f"{CLASSES}/high")),
    ),
    Fault(
        "a Job misspells its priority class",
        both(
            create(CLASSES, typed("WorkloadPriorityClass", "high", value=5)),
            create(JOBS, job("urgent", **{"priority-class": "hihg"})),
        ),
        {f"job-unqueued: Job {TEAM}/urgent": ERROR},
        f"kubectl label -n {TEAM} job urgent --overwrite {DOMAIN}/priority-class=high  "
        "# or create hihg",
        queued("urgent"),
        clean=both(ended("urgent"), delete(f"{CLASSES}/high")),
    ),
    Fault(
        "the prebuilt Workload of a Job does not exist",
        create(JOBS, job("early", **{"prebuilt-workload-name": "made"})),
        {f"job-unqueued: Job {TEAM}/early": ERROR},
        f"kubectl get -n {TEAM} workloads  # create made, or submit Job early without it",
        {f"Job {TEAM}/early", f"Workload {TEAM}/made", f"Pod {TEAM}/early-*"},
        decision="create made",
        decide=prebuilt(1),
        clean=ended("early"),
    ),
    Fault(
        "a prebuilt Workload is for other pods than its Job has",
        both(create(JOBS, job("early", **{"prebuilt-workload-name": "made"})), prebuilt(2)),
        {f"never-ran: Workload {TEAM}/made": ERROR},
        f"kubectl -n {TEAM} delete job early  # correct it, and submit it again",
        {f"Job {TEAM}/early", f"Workload {TEAM}/made"},
    ),
    Fault(
        "the parents of Cohorts form a cycle",
        both(
            *(
                create(COHORTS, typed("Cohort", one, spec={"parentName": other}))
                for one, other in zip(WINDS, reversed(WINDS), strict=True)
            ),
            queue("round", cohortName="east"),
        ),
        {"cohort-cycle: Cohort east": ERROR},
        "kubectl edit cohort east  # set another spec.parentName, here or in another one of the "
        "cycle",
        {"Cohort east"},
        decision="set another spec.parentName",
        editor="sed -i '/parentName:/d'",
        clean=delete(f"{KUEUE}/clusterqueues/round", *(f"{COHORTS}/{one}" for one in WINDS)),
    ),
    Fault(
        "the kind of a Job is not enabled",
        disable_jobs,
        {f"kind-disabled: Job {TEAM}/steady": WARNING},
        f"kubectl -n {SYSTEM} edit configmap kueue-manager-config && {INSTALL} && {RESTART}  "
        "# add batch/job to integrations.frameworks",
        {"ConfigMap kueue-system/kueue-manager-config", THE_DEPLOYMENT, "*WebhookConfiguration *"},
        decision="add batch/job to integrations.frameworks",
        editor=r"sed -i 's|frameworks: \[pod\]|frameworks: [batch/job, pod]|'",
        in_pods=True,
    ),
    Fault(
        "the Go manager is forgotten",
        go_manager,
        {"another-manager: Deployment kueue-go/kueue-go": ERROR},
        "kubectl -n kueue-go scale deployment kueue-go --replicas=0",
        {"Deployment kueue-go/kueue-go"},
        clean=delete("/api/v1/namespaces/kueue-go"),
    ),
    Fault(
        "a second manager leads from another namespace",
        second_manager,
        {f"another-leader: Lease other/{LEASE}": ERROR},
        "kubectl -n other scale deployment kueue --replicas=0",
        {"Deployment other/kueue"},
        clean=delete("/api/v1/namespaces/other"),
    ),
    Fault(
        "a foreign webhook for our kinds is dead",
        create(MUTATING, foreign("policy", "https://127.0.0.1:9/")),
        {"another-webhook: MutatingWebhookConfiguration policy": ERROR},
        "kubectl delete mutatingwebhookconfiguration policy  # if nobody needs it",
        {"MutatingWebhookConfiguration policy"},
    ),
    Fault(
        "the clock of the leader is wrong",
        skewed,
        {f"clock-skew: Lease {SYSTEM}/{LEASE}": WARNING},
        f"kubectl -n {SYSTEM} get pods -o wide  # synchronise its node's clock",
        decision="synchronise its node's clock",
        decide=lambda cluster: cluster.restart(),
        in_pods=True,
    ),
    Fault(
        "the configuration is not valid",
        both(configure(metrix={}), lambda cluster: cluster.crash()),
        {
            f"configuration-invalid: ConfigMap {SYSTEM}/kueue-manager-config": ERROR,
            **NO_MANAGER,
        },
        f"kubectl -n {SYSTEM} edit configmap kueue-manager-config && {RESTART}  # correct {KEY}",
        {"ConfigMap kueue-system/kueue-manager-config", THE_DEPLOYMENT},
        decision="unknown key metrix",
        editor="sed -i /metrix/d",
        in_pods=True,
    ),
    Fault(
        "the manager runs with old values",
        configure(controller={"groupKindConcurrency": {"Job.batch": 3}}),
        {f"restart-needed: Lease {SYSTEM}/{LEASE}": WARNING},
        RESTART,
        {THE_DEPLOYMENT},
        in_pods=True,
    ),
    Fault(
        "a ClusterQueue does not select the namespace",
        both(
            queue("red", namespaceSelector={"matchLabels": {"colour": "red"}}),
            local_queue("red", "red"),
        ),
        {f"local-queue: LocalQueue {TEAM}/red": ERROR},
        f"kubectl label namespace {TEAM} colour=red",
        {f"Namespace {TEAM}"},
        clean=both(
            delete(f"{LOCAL}/red", f"{KUEUE}/clusterqueues/red"),
            merge(f"/api/v1/namespaces/{TEAM}", {"metadata": {"labels": {"colour": None}}}),
        ),
    ),
    Fault(
        "the LocalQueue of a Job does not exist",
        create(JOBS, job("lost", "mine")),
        {f"queue-name: LocalQueue {TEAM}/mine": ERROR},
        f"kubectl -n {TEAM} get workloads  # create it, or set the label {QUEUE} to one of main",
        {f"LocalQueue {TEAM}/mine", *started("lost")},
        decision="create it",
        decide=local_queue("mine", "main"),
        clean=both(ended("lost"), delete(f"{LOCAL}/mine")),
    ),
    Fault(
        "the visibility API is not registered",
        delete(f"/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.visibility.{DOMAIN}"),
        {f"visibility-missing: APIService v1beta2.visibility.{DOMAIN}": WARNING},
        INSTALL,
        {f"APIService v1beta2.visibility.{DOMAIN}"},
        in_pods=True,
    ),
)
