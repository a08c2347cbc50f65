"""Clusters in which nothing is wrong, although they look as if something were."""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import attrs
from installed import Installed
from place import EXIT, GROUP, QUEUE, RUN, TOTAL, gates, phase, pod_spec
from planting import (
    COHORTS,
    HINT,
    JOBS,
    LOCAL,
    MUTATING,
    PODS,
    TEAM,
    WORKLOADS,
    activate,
    both,
    crd,
    create,
    deployment,
    ended,
    foreign,
    gated,
    groups,
    inactive_check,
    job,
    local_queue,
    of_crd,
    queue,
    store_v1beta1,
    store_v1beta2,
    typed,
    unowned,
    versions,
)
from rest import KUEUE, Obj, eventually, is_true

from kueuelib.runtime.certificates import host_names, renewed

PAUSE = 3.0
"""Seconds for which a manager is stopped, less than its Lease lasts."""


@attrs.frozen
class Unusual:
    """A healthy cluster.

    Attributes:
        name: what is unusual.
        makes: makes it so, until the end of the context.
        hints: what is worth knowing about it, as check and object.
        later: what is, if it stays so for minutes.
        lasts: whether it may stay so.
    """

    name: str
    makes: Callable[[Installed], AbstractContextManager[Any]]
    hints: Mapping[str, str] = attrs.field(factory=dict)
    later: Mapping[str, str] = attrs.field(factory=dict)
    lasts: bool = True


Step = Callable[[Installed], Any]


def until(clean: Step, *steps: Step) -> Callable[[Installed], AbstractContextManager[Any]]:
    """Takes steps, and at the end another one."""

    @contextmanager
    def made(cluster: Installed) -> Iterator[None]:
        try:
            both(*steps)(cluster)
            eventually(lambda: _is_counted(cluster))
            yield
        finally:
            clean(cluster)

    return made


def _is_counted(cluster: Installed) -> bool:
    """Whether every ClusterQueue counts the Workloads that have quota from it."""
    workloads = cluster.rest.items(f"{KUEUE}/workloads")
    homes = [
        one["status"]["admission"]["clusterQueue"]
        for one in workloads
        if is_true(one, "QuotaReserved") and not is_true(one, "Finished")
    ]
    return all(
        one["status"]["reservingWorkloads"] == homes.count(one["metadata"]["name"])
        for one in cluster.rest.items(f"{KUEUE}/clusterqueues")
    )


def deleted(*paths: str) -> Step:
    def gone(cluster: Installed) -> None:
        for path in paths:
            cluster.rest.delete(path)

    return gone


def pod(name: str, group: str, total: int) -> Obj:
    meta = {
        "name": name,
        "labels": {QUEUE: "main", GROUP: group},
        "annotations": {TOTAL: str(total)},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_spec()}


def wait_for(path: str, holds: Callable[[Obj], Any]) -> Step:
    return lambda cluster: eventually(lambda: holds(cluster.rest.get(path)))


def reserved(cluster: Installed) -> None:
    """Waits until a Workload has quota and its check has not answered."""
    eventually(lambda: any(_waits(one) for one in cluster.rest.items(WORKLOADS)))


def _waits(workload: Obj) -> bool:
    return is_true(workload, "QuotaReserved") and not is_true(workload, "Admitted")


def workload_of(cluster: Installed, name: str) -> str:
    """The path of the Workload of a Job."""

    def found() -> list[str]:
        names = [one["metadata"]["name"] for one in cluster.rest.items(WORKLOADS)]
        return [one for one in names if one.startswith(f"job-{name}-")]

    return f"{WORKLOADS}/{eventually(found)[0]}"


def deactivate(cluster: Installed) -> None:
    cluster.rest.merge(workload_of(cluster, "off"), {"spec": {"active": False}})
    eventually(lambda: cluster.rest.get(f"{JOBS}/off")["spec"]["suspend"])


def lose_a_pod(cluster: Installed) -> None:
    """One pod of a group fails, and is deleted."""
    path = f"{PODS}/g-0"
    for name in ("g-0", "g-1"):
        eventually(lambda name=name: phase(cluster.rest.get(f"{PODS}/{name}")) == "Running")
    cluster.rest.merge(path, {"metadata": {"annotations": {RUN: "0", EXIT: "1"}}})
    eventually(lambda: phase(cluster.rest.get(path)) == "Failed")
    cluster.rest.delete(path)
    eventually(lambda: "deletionTimestamp" in cluster.rest.get(path)["metadata"])


def end_group(cluster: Installed) -> None:
    cluster.rest.delete(f"{WORKLOADS}/g")
    eventually(lambda: not cluster.rest.items(PODS) or all("g-" not in n for n in _names(cluster)))


def _names(cluster: Installed) -> list[str]:
    return [one["metadata"]["name"] for one in cluster.rest.items(PODS)]


@contextmanager
def paused(cluster: Installed) -> Iterator[None]:
    """The manager does not run for some seconds."""
    process = cluster.processes.pid("manager")
    os.kill(process, signal.SIGSTOP)
    timer = threading.Timer(PAUSE, os.kill, (process, signal.SIGCONT))
    timer.start()
    try:
        yield
    finally:
        timer.join()


@contextmanager
def restarting(cluster: Installed) -> Iterator[None]:
    """The manager has ended, and the next one is about to start."""
    cluster.processes.stop("manager")
    try:
        yield
    finally:
        cluster.start()


class _Answering(BaseHTTPRequestHandler):
    """A webhook that allows everything."""

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"uid": review["request"]["uid"], "allowed": True}
        head = {key: review[key] for key in ("apiVersion", "kind")}
        body = json.dumps({**head, "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Writes nothing."""


@contextmanager
def answering(cluster: Installed) -> Iterator[None]:
    """A policy engine has a webhook for our kinds, and answers."""
    certificates = renewed(None, host_names(["127.0.0.1"]), time.time())
    folder = Path(cluster.processes.folder)
    pem = folder / "foreign.pem"
    pem.write_bytes(certificates.tls_cert + certificates.tls_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server = HTTPServer(("127.0.0.1", 0), _Answering)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    with ExitStack() as stack:
        thread.start()
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        bundle = base64.b64encode(certificates.ca_cert).decode()
        url = f"https://127.0.0.1:{server.server_port}/"
        cluster.rest.create(MUTATING, foreign("policy", url, caBundle=bundle))
        stack.callback(cluster.rest.delete, f"{MUTATING}/policy")
        yield


def terminating(cluster: Installed) -> None:
    """A namespace that somebody's finalizer keeps."""
    cluster.rest.create("/api/v1/namespaces", {"metadata": {"name": "leaving"}})
    local_queue("main", "main", "leaving")(cluster)
    kept = {"metadata": {"name": "kept", "finalizers": ["example.com/keep"]}}
    cluster.rest.create("/api/v1/namespaces/leaving/configmaps", kept)
    cluster.rest.delete("/api/v1/namespaces/leaving")
    path = "/api/v1/namespaces/leaving"
    eventually(lambda: cluster.rest.get(path)["status"]["phase"] == "Terminating")


def let_go(cluster: Installed) -> None:
    path = "/api/v1/namespaces/leaving/configmaps/kept"
    cluster.rest.merge(path, {"metadata": {"finalizers": None}})


def unqueued(name: str, **spec: Any) -> Obj:
    body = job(name)
    del body["metadata"]["labels"]
    return {**body, "spec": {**body["spec"], **spec}}


QUEUES = f"{KUEUE}/clusterqueues"
UNUSUAL = (
    Unusual(
        "a group has half of its pods",
        until(
            deleted(f"{PODS}/half-0"),
            create(PODS, pod("half-0", "half", 2)),
            wait_for(f"{PODS}/half-0", gates),
        ),
        later={f"pod-gated: Pod {TEAM}/half-0": HINT},
    ),
    Unusual(
        "queues are on hold",
        until(
            both(ended("held"), deleted(f"{LOCAL}/held", f"{QUEUES}/held")),
            queue("held", stopPolicy="HoldAndDrain"),
            create(LOCAL, typed("LocalQueue", "held", spec={"clusterQueue": "held"})),
            lambda cluster: cluster.rest.merge(f"{LOCAL}/held", {"spec": {"stopPolicy": "Hold"}}),
            create(JOBS, job("held", "held", "0")),
            lambda cluster: workload_of(cluster, "held"),
        ),
        {
            "queue-inactive: ClusterQueue held": HINT,
            f"local-queue: LocalQueue {TEAM}/held": HINT,
        },
    ),
    Unusual(
        "a check has not answered yet",
        until(
            both(
                ended("checked"),
                deleted(f"{LOCAL}/checked", f"{QUEUES}/checked", f"{KUEUE}/admissionchecks/budget"),
            ),
            inactive_check,
            activate,
            local_queue("checked", "checked"),
            create(JOBS, job("checked", "checked", "0")),
            reserved,
        ),
        later={"check-pending: AdmissionCheck budget": HINT},
    ),
    Unusual(
        "objects are stored in two versions",
        until(
            both(
                deleted(f"{COHORTS}/old", f"{COHORTS}/new"),
                lambda cluster: cluster.rest.merge(
                    f"{crd('cohorts')}/status", {"status": {"storedVersions": ["v1beta2"]}}
                ),
            ),
            versions("cohorts", store_v1beta1),
            create(COHORTS, typed("Cohort", "old", spec={})),
            versions("cohorts", store_v1beta2),
            create(COHORTS, typed("Cohort", "new", spec={})),
        ),
        {f"crd-stored-versions: {of_crd('cohorts')}": HINT},
    ),
    Unusual("the manager pauses", paused, lasts=False),
    Unusual("the manager restarts", restarting, lasts=False),
    Unusual(
        "a foreign webhook answers",
        answering,
        {"another-webhook: MutatingWebhookConfiguration policy": HINT},
    ),
    Unusual(
        "a user has deactivated a Workload",
        until(ended("off"), create(JOBS, job("off")), deactivate),
    ),
    Unusual(
        "a group waits for the replacement of a pod",
        until(end_group, create(PODS, pod("g-0", "g", 2), pod("g-1", "g", 2)), lose_a_pod),
        later={f"pod-finalizer-stuck: Workload {TEAM}/g": HINT},
    ),
    Unusual(
        "the job of a prebuilt Workload is still to come",
        until(deleted(f"{WORKLOADS}/left"), unowned),
        later={f"quota-unowned: Workload {TEAM}/left": HINT},
    ),
    Unusual(
        "another controller holds a Job back",
        until(
            ended("gated"),
            create(JOBS, gated("gated")),
            lambda cluster: workload_of(cluster, "gated"),
        ),
    ),
    Unusual(
        "Cohorts are below each other, and no queue is",
        until(
            deleted(*(f"{COHORTS}/{one}" for one in ("left", "right", "root"))),
            create(COHORTS, typed("Cohort", "root", spec={"resourceGroups": groups(spot="0")})),
            create(COHORTS, typed("Cohort", "left", spec={"parentName": "root"})),
            create(COHORTS, typed("Cohort", "right", spec={"parentName": "root"})),
        ),
    ),
    Unusual(
        "a ClusterQueue owns nothing",
        until(
            deleted(f"{LOCAL}/poor", f"{QUEUES}/poor"),
            queue("poor", resourceGroups=groups(on_demand="0", spot="0")),
            local_queue("poor", "poor"),
        ),
    ),
    Unusual(
        "Jobs name no queue",
        until(
            ended("free", "later"),
            create(JOBS, unqueued("free"), unqueued("later", suspend=True)),
        ),
    ),
    Unusual("a namespace does not end", until(let_go, terminating)),
    Unusual(
        "the Go manager is scaled to 0",
        until(
            deleted("/apis/apps/v1/namespaces/default/deployments/kueue-go"),
            create(
                "/apis/apps/v1/namespaces/default/deployments",
                deployment("kueue-go", "registry.k8s.io/kueue/kueue:v0.14.1", replicas=0),
            ),
        ),
    ),
)
