"""An admission webhook of somebody else that refuses the eviction of a Workload."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from real_plane import lacking, real_cluster
from rest import JOBS, KUEUE, WORKLOADS, Obj, Rest, condition, eventually, is_true, job

from kueuelib.embedded.credentials import Authority

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
HOOKS = f"{ADMISSION}/validatingwebhookconfigurations"
RULE = {
    "apiGroups": ["kueue.x-k8s.io"],
    "apiVersions": ["*"],
    "operations": ["UPDATE"],
    "resources": ["workloads/status"],
}
EVENTS = "/api/v1/namespaces/default/events"


class Keeper(BaseHTTPRequestHandler):
    """Refuses to evict the Workload of the Job `stays`."""

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        wl = review["request"]["object"]
        owner = wl["metadata"]["ownerReferences"][0]["name"]
        keeps = owner == "stays" and condition(wl, "Evicted").get("status") == "True"
        response: Obj = {"uid": review["request"]["uid"], "allowed": not keeps}
        if keeps:
            response["status"] = {"code": 403, "message": "it stays"}
        body = json.dumps({**review, "request": None, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[Obj]:
    """The client configuration of the webhook."""
    authority = Authority(time.time())
    certificate, key = authority.issue("hook", hosts=("127.0.0.1",))
    (tmp_path / "hook.pem").write_bytes(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "hook.pem")
    with HTTPServer(("127.0.0.1", 0), Keeper) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"https://127.0.0.1:{server.server_port}/keep"
        yield {"url": url, "caBundle": base64.b64encode(authority.pem).decode()}
        server.shutdown()
        thread.join(10)


def create(rest: Rest, plural: str, kind: str, name: str, spec: Obj) -> None:
    obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}}
    rest.create(f"{KUEUE}/{plural}", {**obj, "spec": spec})


def submit(rest: Rest, name: str, priority: str = "") -> None:
    obj = job(name, seconds=600)
    obj["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "q"
    if priority:
        obj["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = priority
    rest.create(JOBS, obj)


def workload(rest: Rest, name: str) -> Obj:
    for wl in rest.items(WORKLOADS):
        if wl["metadata"]["ownerReferences"][0]["name"] == name:
            return wl
    return {}


def prepare(rest: Rest) -> None:
    """A ClusterQueue for two Jobs."""
    create(rest, "resourceflavors", "ResourceFlavor", "f", {})
    resources = [{"name": "cpu", "nominalQuota": "2"}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}]
    spec = {
        "namespaceSelector": {},
        "resourceGroups": groups,
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    create(rest, "clusterqueues", "ClusterQueue", "q", spec)
    create(rest, "namespaces/default/localqueues", "LocalQueue", "q", {"clusterQueue": "q"})
    high = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": 9}
    rest.create(f"{KUEUE}/workloadpriorityclasses", {**high, "metadata": {"name": "high"}})


def play(rest: Rest) -> None:
    """Two Jobs, of which `stays` may not be evicted, and two urgent ones after them."""
    submit(rest, "leaves")
    eventually(lambda: is_true(workload(rest, "leaves"), "Admitted"))
    time.sleep(1.1)  # reservations have whole seconds, and the newest one leaves first
    submit(rest, "stays")
    eventually(lambda: is_true(workload(rest, "stays"), "Admitted"))

    submit(rest, "first", "high")
    eventually(lambda: is_true(workload(rest, "first"), "Admitted"))
    assert not workload(rest, "leaves")["status"].get("admission")
    assert is_true(workload(rest, "stays"), "Admitted")

    def failures() -> list[str]:  # Events give way to admissions, so this one may come later
        events = rest.items(EVENTS)
        return [each["message"] for each in events if each["reason"] == "PreemptionFailed"]

    eventually(lambda: bool(failures()))
    assert "it stays" in failures()[0]

    submit(rest, "second", "high")
    name = workload(rest, "stays")["metadata"]["name"]
    said = f"The eviction of default/{name} was refused; tried again at "

    def waits() -> bool:
        return said in condition(workload(rest, "second"), "QuotaReserved").get("message", "")

    eventually(waits)
    assert is_true(workload(rest, "stays"), "Admitted")


def test_a_preemptor_chooses_beside_a_webhook_and_says_who_may_not_leave(
    rest: Rest, hook: Obj
) -> None:
    prepare(rest)
    webhook = {
        "name": "keep.example.com",
        "clientConfig": hook,
        "rules": [RULE],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    rest.create(HOOKS, {"metadata": {"name": "keep"}, "webhooks": [webhook]})
    play(rest)
    rest.delete(f"{HOOKS}/keep")


def named(name: str, spec: Obj) -> Obj:
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.skipif(bool(lacking()), reason=lacking())
def test_the_same_beside_a_policy_in_a_real_cluster(tmp_path: Path) -> None:
    stays = "object.metadata.name.startsWith('job-stays-')"
    evicted = "object.status.conditions.exists(c, c.type == 'Evicted' && c.status == 'True')"
    expression = f"!({stays} && has(object.status.conditions) && {evicted})"
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [RULE]},
        "validations": [{"expression": expression, "message": "it stays"}],
    }
    binding = {"policyName": "keep", "validationActions": ["Deny"]}
    path = f"{ADMISSION}/validatingadmissionpolicies"
    with real_cluster(tmp_path) as cluster, Rest(cluster.kubeconfig) as rest:
        cluster.install()
        cluster.start_manager()
        cluster.wait_for_manager()
        prepare(rest)
        rest.create(path, named("keep", policy))
        rest.create(f"{ADMISSION}/validatingadmissionpolicybindings", named("keep", binding))
        eventually(lambda: rest.get(f"{path}/keep")["status"]["observedGeneration"])
        play(rest)
