"""A namespace with queues, jobs and pods of one test, in a cluster that tests share."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from rest import KUEUE, PATIENCE, Obj, Rest, condition, eventually, is_true
from warm import Processes

from kueuelib.testing.processes import READY_SECONDS, LocalCluster, free_port

DOMAIN = "kueue.x-k8s.io"
QUEUE = f"{DOMAIN}/queue-name"
MANAGED = f"{DOMAIN}/managed"
GATE = f"{DOMAIN}/admission"
GATES = [GATE, f"{DOMAIN}/topology"]
"""What a pod gets that is queued."""
GROUP = f"{DOMAIN}/pod-group-name"
TOTAL = f"{DOMAIN}/pod-group-total-count"
SETS = f"{DOMAIN}/pod-group-sets"
ROLE = f"{DOMAIN}/pod-group-role"
RETRIABLE = f"{DOMAIN}/retriable-in-group"
PREBUILT = f"{DOMAIN}/prebuilt-workload-name"
PARENT = f"{DOMAIN}/parent-workload"
RUN, EXIT = "kueuelib.dev/run-seconds", "kueuelib.dev/exit-code"
TIME = "2024-01-01T00:00:00Z"
QUIET = 0.7
"""Seconds for which something must not happen."""
INSTALLED = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
visibilityServer: {}
"""
_NUMBERS = itertools.count(1)
_GLOBAL = {
    "ResourceFlavor": "resourceflavors",
    "ClusterQueue": "clusterqueues",
    "AdmissionCheck": "admissionchecks",
    "WorkloadPriorityClass": "workloadpriorityclasses",
}


@contextmanager
def shared_cluster(folder: Path, **fields: Any) -> Iterator[tuple[LocalCluster, Rest]]:
    """A cluster for many tests, with Jobs and Pods enabled."""
    with Processes(folder) as processes:
        fields = {"frameworks": ("batch/job", "pod"), "metrics_port": free_port(), **fields}
        cluster = LocalCluster(processes, **fields)
        cluster.start()
        with Rest(cluster.kubeconfig) as rest:
            yield cluster, rest


@contextmanager
def aggregating_cluster(
    folder: Path, port: int | None = None, **fields: Any
) -> Iterator[tuple[LocalCluster, Rest]]:
    """A cluster that asks for permissions and aggregates the visibility API, served at a port."""
    port = port or free_port()
    with Processes(folder) as processes:
        where = f"visibilityServer: {{bindAddress: 127.0.0.1, bindPort: {port}}}"
        cluster = LocalCluster(processes, settings=where, version="v1beta2", **fields)
        args = ["--port", "0", "--kubeconfig", str(cluster.kubeconfig), "--simulate"]
        mapped = {"visibility-server": port, "kueue-webhook-service": cluster.webhook_port}
        services = [
            part
            for name, number in mapped.items()
            for part in ("--service", f"kueue-system/{name}=127.0.0.1:{number}")
        ]
        processes.start("apiserver", "apiserver", *args, "--authorization", "rbac", *services)
        processes.wait_for_file(cluster.kubeconfig, "apiserver", READY_SECONDS)
        config = processes.folder / "install.yaml"
        config.write_text(INSTALLED)
        install = ["--kubeconfig", str(cluster.kubeconfig), "--config", str(config)]
        processes.finish("install", "install", *install, seconds=READY_SECONDS)
        with Rest(cluster.kubeconfig) as rest:
            cluster.start_manager()
            cluster.wait_for_manager()
            yield cluster, rest


def container(cpu: str = "1", **fields: Any) -> Obj:
    return {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}, **fields}


def pod_spec(cpu: str = "1", **fields: Any) -> Obj:
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    return {**spec, "containers": [container(cpu)], **fields}


def gates(pod: Obj) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


def phase(pod: Obj) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def name_of(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def uid_of(obj: Obj) -> str:
    return str(obj["metadata"]["uid"])


class Place:
    """One test's namespace; cluster-scoped objects have its name before theirs.

    Args:
        rest: the cluster.
        labels: of the namespace.
    """

    def __init__(self, rest: Rest, metrics_port: int = 0, labels: dict | None = None) -> None:
        self.rest = rest
        self.ns = f"p{next(_NUMBERS)}"
        self._metrics_port = metrics_port
        self.rest.create("/api/v1/namespaces", {"metadata": {"name": self.ns, "labels": labels}})
        space = f"namespaces/{self.ns}"
        self.jobs = f"/apis/batch/v1/{space}/jobs"
        self.pods = f"/api/v1/{space}/pods"
        self.workloads = f"{KUEUE}/{space}/workloads"
        self._events = f"/api/v1/{space}/events"

    def named(self, base: str) -> str:
        return f"{self.ns}-{base}"

    # ---- queues

    def create(self, kind: str, base: str, **parts: Any) -> str:
        """A cluster-scoped object of ours; its name."""
        obj = {"apiVersion": f"{DOMAIN}/v1beta2", "kind": kind, **parts}
        obj["metadata"] = {"name": self.named(base)}
        return name_of(self.rest.create(f"{KUEUE}/{_GLOBAL[kind]}", obj))

    def queue(
        self,
        cpu: int,
        base: str = "q",
        *,
        flavors: dict[str, dict[str, str]] | None = None,
        checks: tuple[str, ...] = (),
        local: bool = True,
        **spec: Any,
    ) -> str:
        """A LocalQueue over a ClusterQueue with that many CPUs of each flavor."""
        rows = []
        for flavor, labels in (flavors or {base: {}}).items():
            self.create("ResourceFlavor", flavor, spec={"nodeLabels": labels})
            quota = [{"name": "cpu", "nominalQuota": str(cpu)}]
            rows.append({"name": self.named(flavor), "resources": quota})
        groups = [{"coveredResources": ["cpu"], "flavors": rows}]
        if checks:
            rules = [{"name": self.named(check)} for check in checks]
            spec["admissionChecksStrategy"] = {"admissionChecks": rules}
        spec = {"namespaceSelector": {}, "resourceGroups": groups, **spec}
        self.create("ClusterQueue", base, spec=spec)
        if local:
            self.local_queue(base)
        return base

    def local_queue(self, base: str = "q", namespace: str = "") -> None:
        spec = {"clusterQueue": self.named(base)}
        obj = {"apiVersion": f"{DOMAIN}/v1beta2", "kind": "LocalQueue", "spec": spec}
        path = f"{KUEUE}/namespaces/{namespace or self.ns}/localqueues"
        self.rest.create(path, {**obj, "metadata": {"name": base}})

    def preempting(self) -> Obj:
        return {"preemption": {"withinClusterQueue": "LowerPriority"}}

    def priority(self, value: int, base: str) -> str:
        return self.create("WorkloadPriorityClass", base, value=value)

    def check(self, base: str) -> None:
        spec = {"controllerName": "example.com/by-hand", "retryDelayMinutes": 60}
        name = self.create("AdmissionCheck", base, spec=spec)
        active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
        body = {"status": {"conditions": [{**active, "lastTransitionTime": TIME}]}}
        self.rest.merge(f"{KUEUE}/admissionchecks/{name}/status", body)

    def answer(
        self, workload: Obj, check: str, state: str, *, after: int = 0, **updates: Any
    ) -> None:
        """A check answers; `updates` are those of the pod set `main`, `after` delays a retry."""
        path = f"{self.workloads}/{name_of(workload)}"

        def answered() -> bool:
            newest = self.rest.get(path)
            entries = newest["status"]["admissionChecks"]
            (entry,) = [one for one in entries if one["name"] == self.named(check)]
            now = condition(newest, "QuotaReserved")["lastTransitionTime"]
            entry.update(state=state, message="by hand", lastTransitionTime=now)
            if after:
                entry["requeueAfterSeconds"] = after
            if updates:
                names = [one["name"] for one in newest["spec"]["podSets"]]
                entry["podSetUpdates"] = [{"name": name, **updates} for name in names]
            meta = {"resourceVersion": newest["metadata"]["resourceVersion"]}
            body = {"metadata": meta, "status": {"admissionChecks": entries}}
            self.rest.merge(f"{path}/status", body)
            return True

        eventually(answered)

    # ---- jobs and pods

    def job(
        self,
        base: str = "job",
        queue: str | None = "q",
        cpu: str = "1",
        *,
        run: float | None = None,
        exit_code: int = 0,
        labels: dict[str, str] | None = None,
        notes: dict[str, str] | None = None,
        owner: Obj | None = None,
        pod: Obj | None = None,
        **spec: Any,
    ) -> Obj:
        """A Job of one pod that runs until `finish`, unless `run` says how long."""
        meta = self._meta(base, queue, labels, notes, owner)
        template = {"metadata": {"annotations": self._life(run, exit_code)}}
        template["spec"] = pod_spec(cpu, **(pod or {}))
        full = {"backoffLimit": 0, "template": template, **spec}
        obj = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": full}
        return self.rest.create(self.jobs, obj)

    def pod(
        self,
        base: str = "pod",
        queue: str | None = "q",
        cpu: str = "1",
        *,
        group: str = "",
        total: int | str | None = None,
        sets: str = "",
        role: str = "",
        run: float | None = None,
        exit_code: int = 0,
        labels: dict[str, str] | None = None,
        notes: dict[str, str] | None = None,
        owner: Obj | None = None,
        meta: Obj | None = None,
        **spec: Any,
    ) -> Obj:
        more = {GROUP: group, ROLE: role}
        labels = {**{key: text for key, text in more.items() if text}, **(labels or {})}
        notes = {**self._life(run, exit_code), **(notes or {})}
        if total is not None:
            notes[TOTAL] = str(total)
        if sets:
            notes[SETS] = sets
        made = {**self._meta(base, queue, labels, notes, owner), **(meta or {})}
        obj = {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": pod_spec(cpu, **spec)}
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.rest.create(self.pods, obj)
            except httpx.HTTPStatusError as error:  # a namespace may be younger than its watch
                if "are not known yet" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def group(self, name: str = "g", size: int = 2, cpu: str = "1", **fields: Any) -> list[Obj]:
        """A whole group of equal pods."""
        return [
            self.pod(f"{name}-{number}", cpu=cpu, group=name, total=size, **fields)
            for number in range(size)
        ]

    @staticmethod
    def _life(run: float | None, exit_code: int) -> dict[str, str]:
        annotations = {EXIT: str(exit_code)} if exit_code else {}
        return annotations if run is None else {**annotations, RUN: str(run)}

    def _meta(
        self,
        base: str,
        queue: str | None,
        labels: dict[str, str] | None,
        notes: dict[str, str] | None,
        owner: Obj | None,
    ) -> Obj:
        meta: Obj = {"name": base, "annotations": notes or {}}
        meta["labels"] = {**({QUEUE: queue} if queue else {}), **(labels or {})}
        if owner is not None:
            ref = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
            meta["ownerReferences"] = [{**ref, "name": name_of(owner), "uid": uid_of(owner)}]
        return meta

    # ---- reading and changing

    def path(self, obj: Obj) -> str:
        kinds = {"Job": self.jobs, "Pod": self.pods, "Workload": self.workloads}
        return f"{kinds[obj['kind']]}/{name_of(obj)}"

    def get(self, obj: Obj) -> Obj:
        return self.rest.get(self.path(obj))

    def merge(self, obj: Obj, body: Obj, sub: str = "") -> Obj:
        return self.rest.merge(self.path(obj) + sub, body)

    def delete(self, *objects: Obj) -> None:
        for obj in objects:
            self.rest.delete(self.path(obj))

    def annotate(self, obj: Obj, **notes: str) -> Obj:
        return self.merge(obj, {"metadata": {"annotations": notes}})

    def finish(self, *objects: Obj, exit_code: int = 0) -> None:
        """Lets pods end, or those of Jobs."""
        for obj in objects:
            pods = self.pods_of(obj) if obj["kind"] == "Job" else [obj]
            for pod in pods:
                self.annotate(pod, **{RUN: "0", EXIT: str(exit_code)})

    def pods_of(self, job: Obj) -> list[Obj]:
        key = "batch.kubernetes.io/job-name"
        pods = self.rest.items(self.pods)
        mine = [pod for pod in pods if pod["metadata"]["labels"].get(key) == name_of(job)]
        return [{"kind": "Pod", **pod} for pod in mine]

    def workloads_of(self, owner: Obj) -> list[Obj]:
        return [
            {"kind": "Workload", **wl}
            for wl in self.rest.items(self.workloads)
            if uid_of(owner) in [ref["uid"] for ref in wl["metadata"].get("ownerReferences", ())]
            and "deletionTimestamp" not in wl["metadata"]
        ]

    def workload(self, owner: Obj) -> Obj:
        """The Workload of a Job or Pod, as soon as there is one."""
        return eventually(lambda: self.workloads_of(owner))[0]

    def evict(self, owner: Obj, *, back: bool = False) -> None:
        """Deactivates the Workload (or activates it again)."""
        self.merge(self.workload(owner), {"spec": {"active": back}})

    # ---- waiting

    def eventually(self, true: Callable[[], Any]) -> Any:
        return eventually(true)

    def quiet(self, holds: Callable[[], Any]) -> None:
        """Checks that something stays as it is."""
        deadline = time.monotonic() + QUIET
        while time.monotonic() < deadline:
            assert holds()
            time.sleep(0.1)

    def when(self, owner: Obj, type_: str, status: str = "True", reason: str = "") -> Obj:
        """The Workload of a Job or Pod once it has a condition."""

        def reached() -> Obj:
            workload = self.workload(owner)
            got = condition(workload, type_)
            assert got.get("status") == status, f"{type_} of {name_of(owner)} is {got}"
            assert reason in ("", got["reason"]), f"{type_} of {name_of(owner)} is {got}"
            return workload

        return eventually(reached)

    def admitted(self, owner: Obj) -> Obj:
        return self.when(owner, "Admitted")

    def waits(self, owner: Obj) -> Obj:
        """The Workload once it was looked at and got nothing."""
        return self.when(owner, "QuotaReserved", "False")

    def finished(self, owner: Obj, reason: str = "") -> Obj:
        return self.when(owner, "Finished", reason=reason)

    def runs(self, *objects: Obj) -> None:
        """Waits until Jobs are not suspended and have active pods, or pods run."""

        def running(obj: Obj) -> bool:
            newest = self.get(obj)
            if obj["kind"] == "Pod":
                return phase(newest) == "Running"
            active = newest["status"].get("active") or 0
            return not newest["spec"]["suspend"] and bool(active)

        for obj in objects:
            eventually(lambda obj=obj: running(obj))

    def suspended(self, job: Obj) -> None:
        def stopped() -> bool:
            newest = self.get(job)
            return newest["spec"]["suspend"] and not newest["status"].get("active")

        eventually(stopped)

    def gone(self, *objects: Obj) -> None:
        """Waits until objects of these UIDs are gone."""

        def away(obj: Obj) -> bool:
            try:
                return uid_of(self.get(obj)) != uid_of(obj)
            except httpx.HTTPStatusError as error:
                return error.response.status_code == httpx.codes.NOT_FOUND

        for obj in objects:
            eventually(lambda obj=obj: away(obj))

    def released(self, *pods: Obj) -> None:
        """Waits until pods have no finalizer of ours."""
        for pod in pods:
            eventually(
                lambda pod=pod: MANAGED not in self.get(pod)["metadata"].get("finalizers", ())
            )

    def event(self, obj: Obj, reason: str, text: str = "") -> None:
        """Waits for an event about an object."""

        def told() -> bool:
            events = [
                event
                for event in self.rest.items(self._events)
                if event["involvedObject"].get("uid") == uid_of(obj)
            ]
            matching = [one for one in events if one["reason"] == reason and text in one["message"]]
            assert matching, [(one["reason"], one["message"]) for one in events]
            return True

        eventually(told)

    def counted(self, line: str) -> None:
        """Waits for a line of the manager's metrics."""
        eventually(lambda: line in self.rest.metrics(self._metrics_port))

    def refused(self, act: Callable[[], Any], *words: str) -> None:
        """Checks that the API server refuses, naming the words."""
        with pytest.raises(httpx.HTTPStatusError) as caught:
            act()
        response = caught.value.response
        assert response.status_code in (400, 403, 422), response.text
        for word in words:
            assert word in response.json()["message"], response.text


def is_admitted(workload: Obj) -> bool:
    return is_true(workload, "Admitted")
