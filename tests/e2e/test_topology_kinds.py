"""Jobs of every kind in racks: placed, started in order, preempted, moved away from a failed node.

Controllers of other projects are played: pods come from the templates in the job as it is stored,
with the labels that the real controllers give them (KEP-2724).
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import attrs
import httpx
import pytest
from place import QUEUE, Place, gates, name_of, phase, pod_spec, uid_of
from rest import KUEUE, Obj, Rest, condition, eventually, is_true
from test_topology import HOST, OS, RACK, RACKS, hosts_of, rack_of, report

sys.path.insert(0, str(Path(__file__).parents[1] / "kinds"))

from samples import Sample, definition, samples

T = TypeVar("T")
DOMAIN = "kueue.x-k8s.io"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PRIORITY = f"{DOMAIN}/priority-class"
GATE = f"{DOMAIN}/topology"
IN_ONE_RACK = {f"{DOMAIN}/podset-required-topology": RACK}
ANY = {"spec": "any", "status": "any"}
WORKERS = 4
COMPLETION = "batch.kubernetes.io/job-completion-index"
TRAINING = "training.kubeflow.org"
LWS = "leaderworkerset.sigs.k8s.io"
JOB_SET = "jobset.sigs.k8s.io"
RAY = "ray.io"
INDEX = f"{DOMAIN}/pod-group-pod-index"


class Made(NamedTuple):
    """A pod that a controller makes: the end of its name, its template, more labels."""

    suffix: str
    template: Obj
    labels: dict[str, str]


def template(cpu: str) -> Obj:
    return {"metadata": {"annotations": {**IN_ONE_RACK}}, "spec": pod_spec(cpu)}


LEADER, WORKER = template("500m"), template("3500m")
"""Two workers fill a node of 8 CPUs, and leave room for leaders."""


@attrs.frozen
class Kind:
    """A kind of jobs.

    Attributes:
        framework: its name in the configuration.
        spec: of a job with `WORKERS` workers.
        pods: what its controller makes of the stored job; None if the cluster has its controller.
        rank: of a worker, by its labels; None if workers have no order.
        suspend: the path of the field that suspends; empty if it has none.
        is_worker: whether a pod with these labels is a worker.
    """

    framework: str
    spec: Callable[[], Obj]
    pods: Callable[[Obj], Iterable[Made]] | None = None
    rank: Callable[[dict[str, str]], int] | None = None
    suspend: str = "suspend"
    is_worker: Callable[[dict[str, str]], bool] = lambda _: True


def batch() -> Obj:
    return {
        "parallelism": WORKERS,
        "completions": WORKERS,
        "completionMode": "Indexed",
        "backoffLimit": 20,
        "template": WORKER,
    }


def by_completion(labels: dict[str, str]) -> int:
    return int(labels[COMPLETION])


def job_set() -> Obj:
    one = {"spec": {"parallelism": 1, "completions": 1, "template": LEADER}}
    two = {"spec": {"parallelism": 2, "completions": 2, "template": WORKER}}
    return {
        "replicatedJobs": [
            {"name": "driver", "replicas": 1, "template": one},
            {"name": "workers", "replicas": 2, "template": two},
        ]
    }


def pods_of_job_set(obj: Obj) -> Iterator[Made]:
    for part in obj["spec"]["replicatedJobs"]:
        for job in range(part["replicas"]):
            spec = part["template"]["spec"]
            for index in range(spec["parallelism"]):
                labels = {
                    f"{JOB_SET}/jobset-name": name_of(obj),
                    f"{JOB_SET}/replicatedjob-name": part["name"],
                    f"{JOB_SET}/job-index": str(job),
                    COMPLETION: str(index),
                }
                yield Made(f"{part['name']}-{job}-{index}", spec["template"], labels)


def replicated(kind: str, field: str, leader: str = "Master") -> Kind:
    """MPIJob, and the training jobs of Kubeflow."""

    def spec() -> Obj:
        roles = {leader: {"replicas": 1, "template": LEADER}} if leader else {}
        return {field: {**roles, "Worker": {"replicas": WORKERS, "template": WORKER}}}

    def pods(obj: Obj) -> Iterator[Made]:
        for role, part in obj["spec"][field].items():
            for index in range(part["replicas"]):
                labels = {
                    f"{TRAINING}/job-name": name_of(obj),
                    f"{TRAINING}/replica-type": role.lower(),
                    f"{TRAINING}/replica-index": str(index),
                }
                yield Made(f"{role.lower()}-{index}", part["template"], labels)

    return Kind(
        f"kubeflow.org/{kind}",
        spec,
        pods,
        lambda labels: int(labels[f"{TRAINING}/replica-index"]),
        "runPolicy.suspend",
        lambda labels: labels.get(f"{TRAINING}/replica-type") == "worker",
    )


def ray_cluster() -> Obj:
    return {
        "headGroupSpec": {"template": LEADER},
        "workerGroupSpecs": [
            {"groupName": "small", "replicas": 2, "numOfHosts": 2, "template": WORKER}
        ],
    }


def pods_of_ray(obj: Obj) -> Iterator[Made]:
    spec = obj["spec"].get("rayClusterSpec") or obj["spec"]
    head = {f"{RAY}/cluster": name_of(obj), f"{RAY}/node-type": "head"}
    yield Made("head", spec["headGroupSpec"]["template"], head)
    for group in spec["workerGroupSpecs"]:
        labels = {**head, f"{RAY}/node-type": "worker", f"{RAY}/group": group["groupName"]}
        for index in range(group["replicas"] * group["numOfHosts"]):
            yield Made(f"{group['groupName']}-{index}", group["template"], labels)
    if submitter := obj["spec"].get("submitterPodTemplate"):
        yield Made("submitter", submitter, {"job-name": name_of(obj)})


def is_ray_worker(labels: dict[str, str]) -> bool:
    return labels.get(f"{RAY}/node-type") == "worker"


def ray_job() -> Obj:
    return {
        "shutdownAfterJobFinishes": True,
        "submissionMode": "K8sJobMode",
        "submitterPodTemplate": LEADER,
        "rayClusterSpec": ray_cluster(),
    }


def leader_worker_set() -> Obj:
    parts = {"size": WORKERS + 1, "leaderTemplate": LEADER, "workerTemplate": WORKER}
    return {"replicas": 1, "leaderWorkerTemplate": parts}


def pods_of_leader_worker_set(obj: Obj) -> Iterator[Made]:
    parts = obj["spec"]["leaderWorkerTemplate"]
    for index in range(parts["size"]):
        made = copy.deepcopy(parts["workerTemplate" if index else "leaderTemplate"])
        made["metadata"]["annotations"][f"{LWS}/size"] = str(parts["size"])
        labels = {
            f"{LWS}/name": name_of(obj),
            f"{LWS}/group-index": "0",
            f"{LWS}/worker-index": str(index),
        }
        yield Made(f"0-{index}" if index else "0", made, labels)


def stateful_set() -> Obj:
    made = copy.deepcopy(WORKER)
    made["metadata"]["labels"] = {"app": "s"}
    made["spec"]["restartPolicy"] = "Always"
    return {
        "replicas": WORKERS,
        "serviceName": "s",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": "s"}},
        "template": made,
    }


def wrapped() -> Obj:
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": batch()}
    return {"components": [{"template": job}]}


KINDS: dict[str, Kind] = {
    "Job": Kind("batch/job", batch, rank=by_completion),
    "JobSet": Kind(
        "jobset.x-k8s.io/jobset",
        job_set,
        pods_of_job_set,
        lambda labels: 2 * int(labels[f"{JOB_SET}/job-index"]) + by_completion(labels),
        is_worker=lambda labels: labels.get(f"{JOB_SET}/replicatedjob-name") == "workers",
    ),
    "PyTorchJob": replicated("pytorchjob", "pytorchReplicaSpecs"),
    "TFJob": replicated("tfjob", "tfReplicaSpecs", "Chief"),
    "XGBoostJob": replicated("xgboostjob", "xgbReplicaSpecs"),
    "PaddleJob": replicated("paddlejob", "paddleReplicaSpecs"),
    "JAXJob": replicated("jaxjob", "jaxReplicaSpecs", ""),
    "MPIJob": replicated("mpijob", "mpiReplicaSpecs", "Launcher"),
    "RayCluster": Kind("ray.io/raycluster", ray_cluster, pods_of_ray, is_worker=is_ray_worker),
    "RayJob": Kind("ray.io/rayjob", ray_job, pods_of_ray, is_worker=is_ray_worker),
    "LeaderWorkerSet": Kind(
        "leaderworkerset.x-k8s.io/leaderworkerset",
        leader_worker_set,
        pods_of_leader_worker_set,
        lambda labels: int(labels[f"{LWS}/worker-index"]) - 1,
        "",
        lambda labels: labels.get(f"{LWS}/worker-index", "0") != "0",
    ),
    "StatefulSet": Kind(
        "statefulset",
        stateful_set,
        rank=lambda labels: int(labels["apps.kubernetes.io/pod-index"]),
        suspend="",
    ),
    "AppWrapper": Kind("workload.codeflare.dev/appwrapper", wrapped, rank=by_completion),
    "pod group": Kind("pod", dict, rank=lambda labels: int(labels[INDEX]), suspend=""),
    "Pod": Kind("pod", dict, suspend=""),
}
OF_THE_CLUSTER = {"Job": "/apis/batch/v1", "StatefulSet": "/apis/apps/v1"}
FRAMEWORKS = tuple(sorted({kind.framework for kind in KINDS.values()}))
PODS = ("Pod", "pod group")


@pytest.fixture(scope="module", params=RACKS)
def racks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rest]:
    """Two racks of three nodes with 8 CPUs each."""
    folder = tmp_path_factory.mktemp("racks")
    with request.param(folder, "2x3", FRAMEWORKS) as cluster, Rest(cluster.kubeconfig) as rest:
        cluster.install()
        cluster.start_manager()
        cluster.wait_for_manager()
        known = samples()
        known["leaderworkerset.x-k8s.io/leaderworkerset"] = leader_worker_sets()
        for name, kind in KINDS.items():
            if kind.framework in known:
                resource = known[kind.framework].resource
                rest.create(CRDS, definition(resource, name, "Namespaced", ANY))
        levels = {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]}
        head = {"apiVersion": f"{DOMAIN}/v1beta2", "kind": "Topology"}
        rest.create(f"{KUEUE}/topologies", {**head, "metadata": {"name": "racks"}, "spec": levels})
        yield rest


def leader_worker_sets() -> Sample:
    from kueuelib.jobs.builtin import builtin_registry

    name = "leaderworkerset.x-k8s.io/leaderworkerset"
    (found,) = [one for one in builtin_registry().integrations if one.name == name]
    return Sample(found, {})


class Life:
    """Jobs of one kind in a namespace of their own, and what their controller does."""

    def __init__(self, rest: Rest, name: str) -> None:
        self.rest, self.name, self.kind = rest, name, KINDS[name]
        self.place = Place(rest)
        self.sample: Sample | None = samples().get(self.kind.framework)
        if name in OF_THE_CLUSTER:
            root = OF_THE_CLUSTER[name]
        elif name == "LeaderWorkerSet":
            root = f"/apis/{leader_worker_sets().resource.api_version}"
        else:
            root = f"/apis/{self.sample.resource.api_version}" if self.sample else "/api/v1"
        self.api_version = root.removeprefix("/apis/").removeprefix("/api/")
        self.path = f"{root}/namespaces/{self.place.ns}/{name.lower()}s"
        for base, value in (("low", 1), ("high", 2)):
            self.place.priority(value, base)
        spec = {"nodeLabels": {OS: "linux"}, "topologyName": "racks"}
        flavor = self.place.create("ResourceFlavor", "hosts", spec=spec)
        row = {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": "1000"}]}
        group = {"coveredResources": ["cpu"], "flavors": [row]}
        spec = {"namespaceSelector": {}, "resourceGroups": [group], **self.place.preempting()}
        self.place.create("ClusterQueue", "q", spec=spec)
        self.place.local_queue()
        self.workers = 1 if name == "Pod" else WORKERS
        self.made = 0
        """How many pods of the group were made."""

    # ---- the user

    def create(self) -> None:
        labels = {QUEUE: "q", PRIORITY: self.place.named("low")}
        if self.name in PODS:
            for index in range(self.workers):
                self._pod(index)
            return
        head = {"apiVersion": self.api_version, "kind": self.name}
        meta = {"name": "low", "labels": labels}
        job = {**head, "metadata": meta, "spec": copy.deepcopy(self.kind.spec())}
        eventually(lambda: self.rest.create(self.path, job))

    def _pod(self, index: int) -> None:
        notes, labels = dict(IN_ONE_RACK), {PRIORITY: self.place.named("low")}
        group, total = ("", None) if self.name == "Pod" else ("g", WORKERS)
        if group:
            labels[INDEX] = str(index)
        name, self.made = f"low-{self.made}", self.made + 1
        parts = {"group": group, "total": total, "labels": labels, "notes": notes}
        made = self.place.pod(name, "q", "3500m", **parts)
        assert GATE in gates(made)

    # ---- the controller

    def step(self) -> None:
        """One look: the pods that are missing are made, those of a suspended job end."""
        if self.name == "pod group":
            there = {pod["metadata"]["labels"][INDEX] for pod in self.pods() if is_alive(pod)}
            if there and (missing := {str(one) for one in range(WORKERS)} - there):
                for index in sorted(missing):
                    self._pod(int(index))
        elif self.name == "AppWrapper":
            self._unwrap()
        elif self.kind.pods is not None:
            self._make()

    def _stored(self) -> Obj:
        return self.rest.get(f"{self.path}/low")

    def _is_suspended(self, obj: Obj) -> bool:
        spec: Obj = obj["spec"]
        *parents, last = self.kind.suspend.split(".")
        for key in parents:
            spec = spec.get(key) or {}
        return bool(spec.get(last))

    def _make(self) -> None:
        assert self.kind.pods is not None
        stored = self._stored()
        there = {name_of(pod): pod for pod in self.pods()}
        suspended = self._is_suspended(stored)
        wanted = {} if suspended else {f"low-{m.suffix}": m for m in self.kind.pods(stored)}
        for name, pod in there.items():
            if name not in wanted or not is_alive(pod):
                self.end(pod)
        for name, made in wanted.items():
            if name not in there:
                found = self._from_template(stored, name, made)
                assert GATE in gates(found), f"{name} has no gate"
        self._say(stored, "stopped" if suspended else "running")

    def _from_template(self, owner: Obj, name: str, made: Made) -> Obj:
        meta = made.template.get("metadata") or {}
        ref = {"apiVersion": self.api_version, "kind": self.name, "name": "low"}
        full = {
            "name": name,
            "labels": {**(meta.get("labels") or {}), **made.labels},
            "annotations": meta.get("annotations") or {},
            "ownerReferences": [{**ref, "uid": uid_of(owner), "controller": True}],
        }
        obj = {"apiVersion": "v1", "kind": "Pod", "metadata": full, "spec": made.template["spec"]}
        return self.rest.create(self.place.pods, obj)

    def _unwrap(self) -> None:
        stored = self._stored()
        jobs = {name_of(job): job for job in self.rest.items(self.place.jobs)}
        if self._is_suspended(stored):
            if "low-job" in jobs:
                self.rest.delete(f"{self.place.jobs}/low-job")
            self._say(stored, "stopped" if not self.pods() else "running")
            return
        if "low-job" not in jobs:
            (part,) = stored["spec"]["components"]
            (info,) = part["podSetInfos"]
            made = copy.deepcopy(part["template"])
            pod = made["spec"]["template"]
            for key in ("labels", "annotations"):
                pod["metadata"][key] = {**pod["metadata"].get(key, {}), **info.get(key, {})}
            for key in ("nodeSelector", "tolerations", "schedulingGates"):
                if key in info:
                    pod["spec"][key] = info[key]
            ref = {"apiVersion": self.api_version, "kind": self.name, "name": "low"}
            owner = {**ref, "uid": uid_of(stored), "controller": True}
            made["metadata"] = {"name": "low-job", "ownerReferences": [owner]}
            self.rest.create(self.place.jobs, made)
        self._say(stored, "running")

    def _say(self, stored: Obj, state: str) -> None:
        if self.sample is None:
            return
        status = self.sample.status(state)
        if any(stored.get("status", {}).get(key) != part for key, part in status.items()):
            self.rest.merge(f"{self.path}/low/status", {"status": status})

    def end(self, pod: Obj) -> None:
        """The pod is gone at once, as after a forced deletion."""
        self._delete(f"{self.place.pods}/{name_of(pod)}", gracePeriodSeconds="0")

    def _delete(self, path: str, **options: str) -> None:
        try:
            self.rest.delete(path, **options)
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.NOT_FOUND:
                raise

    # ---- what is there

    def pods(self) -> list[Obj]:
        """All but those of `big`."""
        return [
            pod
            for pod in self.rest.items(self.place.pods)
            if not pod["metadata"]["labels"].get("job-name", "").startswith("high")
        ]

    def until(self, fact: Callable[[], T]) -> T:
        def so() -> T:
            self.step()
            return fact()

        return eventually(so, pause=0.2)

    def run(self) -> list[Obj]:
        """The workers, once all pods run where they belong."""

        def there() -> list[Obj]:
            pods = [pod for pod in self.pods() if is_alive(pod)]
            assert all(phase(pod) == "Running" for pod in pods), [*map(summary, pods)]
            workers = [pod for pod in pods if self.kind.is_worker(labels_of(pod))]
            assert len(workers) == self.workers, [*map(summary, pods)]
            return workers

        workers = self.until(there)
        for pod in workers:
            assert gates(pod) == []
            assert pod["spec"]["nodeSelector"][HOST] == pod["spec"]["nodeName"]
        assert len({rack_of(host_of(pod)) for pod in workers}) == 1, [*map(summary, workers)]
        return workers

    def workload(self) -> Obj:
        (found,) = [
            one
            for one in self.rest.items(self.place.workloads)
            if not name_of(one).startswith("job-high")
        ]
        return found

    def remove(self) -> None:
        """Everything, so that the next test has the nodes for itself."""
        if self.name not in PODS:
            self.rest.delete(f"{self.path}/low")
        for job in self.rest.items(self.place.jobs):
            self._delete(f"{self.place.jobs}/{name_of(job)}")

        def gone() -> bool:
            for pod in self.rest.items(self.place.pods):
                if pod["metadata"].get("finalizers") and "deletionTimestamp" in pod["metadata"]:
                    body = {"metadata": {"finalizers": None}}
                    self.rest.merge(f"{self.place.pods}/{name_of(pod)}", body)
                self.end(pod)
            return not self.rest.items(self.place.pods)

        eventually(gone, pause=0.2)
        eventually(lambda: not self.rest.items(self.place.workloads))


def is_alive(pod: Obj) -> bool:
    return phase(pod) not in ("Failed", "Succeeded") and "deletionTimestamp" not in pod["metadata"]


def labels_of(pod: Obj) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}


def host_of(pod: Obj) -> str:
    return str(pod["spec"].get("nodeName", ""))


def summary(pod: Obj) -> tuple[str, ...]:
    leaving = "leaving" if "deletionTimestamp" in pod["metadata"] else ""
    return name_of(pod), phase(pod), host_of(pod), leaving, *gates(pod)


@pytest.fixture(params=KINDS)
def life(racks: Rest, request: pytest.FixtureRequest) -> Iterator[Life]:
    found = Life(racks, request.param)
    yield found
    found.remove()


def test_pods_start_in_order_and_leave_a_failed_node(life: Life, racks: Rest) -> None:
    life.create()
    before = life.run()
    placed = hosts_of(life.workload())
    assert Counter(map(host_of, before)) <= placed
    if life.kind.rank is not None:
        rank = life.kind.rank
        hosts = [host_of(pod) for pod in sorted(before, key=lambda pod: rank(labels_of(pod)))]
        assert hosts == sorted(hosts)
    if life.name == "Pod":
        return  # a plain pod ends with its node
    failed = host_of(before[0])
    report(racks, failed, "False")
    try:
        for pod in life.pods():
            if host_of(pod) == failed:
                life.end(pod)
        after = life.until(lambda: [p for p in [life.run()] if failed not in map(host_of, p)])[0]
        left = {uid_of(pod): host_of(pod) for pod in before if host_of(pod) != failed}
        assert left.items() <= {uid_of(pod): host_of(pod) for pod in after}.items()
        assert rack_of(host_of(after[0])) == rack_of(failed)
        workload = life.workload()
        assert failed not in hosts_of(workload)
        assert not workload["status"].get("unhealthyNodes")
    finally:
        report(racks, failed, "True")


def test_a_more_important_job_gets_the_nodes(life: Life, racks: Rest) -> None:
    place = life.place
    life.create()
    life.run()
    labels = {PRIORITY: place.named("high")}
    asked = {"metadata": {"annotations": IN_ONE_RACK}, "spec": pod_spec("3500m")}
    for name in ("high-0", "high-1"):
        place.job(name, labels=labels, parallelism=6, completions=6, template=asked)
    if life.name != "Pod":  # whose Workload goes with it
        life.until(lambda: condition(life.workload(), "Evicted").get("reason") == "Preempted")
    for name in ("high-0", "high-1"):
        path = f"{place.pods}?labelSelector=job-name={name}"

        def all_run(path: str = path) -> bool:
            pods = racks.items(path)
            assert [phase(pod) for pod in pods] == ["Running"] * 6, [*map(summary, pods)]
            return len({rack_of(host_of(pod)) for pod in pods}) == 1

        life.until(all_run)
    assert not [pod for pod in life.pods() if host_of(pod) and is_alive(pod)]
    for name in ("high-0", "high-1"):
        racks.delete(f"{place.jobs}/{name}")
    if life.name not in PODS:  # what was deleted does not come back
        life.run()
        assert is_true(life.workload(), "Admitted")
