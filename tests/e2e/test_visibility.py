"""The visibility API through an API server that aggregates it, as `kueuelib install` sets it up."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import attrs
import httpx
import pytest
import yaml
from place import INSTALLED, aggregating_cluster
from real_plane import lacking, real_cluster
from rest import JOBS, WORKLOADS, Rest, eventually, job, queues, urgent

import kueuelib
from kueuelib import sync
from kueuelib.runtime.certificates import host_names, renewed
from kueuelib.testing.processes import READY_SECONDS, LocalCluster, free_port

API = "/apis/visibility.kueue.x-k8s.io"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
VERSIONS = ("v1beta1", "v1beta2")
OF_QUEUE = f"{API}/v1beta2/clusterqueues/team/pendingworkloads"
OF_LOCAL = f"{API}/v1beta1/namespaces/default/localqueues/team/pendingworkloads"
OF_ELSEWHERE = OF_LOCAL.replace("/default/", "/kube-system/")
PROMPT = 30.0
"""Seconds for a repair."""
kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")


def refused(rest: Rest, path: str) -> tuple[int, str]:
    with pytest.raises(httpx.HTTPStatusError) as raised:
        rest.get(path)
    answer = raised.value.response
    return answer.status_code, answer.text


@attrs.frozen
class Seen:
    """A cluster, and where its manager serves the API to whom asks it directly."""

    cluster: LocalCluster
    rest: Rest
    port: int

    def direct(self, path: str, **headers: str) -> httpx.Response:
        """What the manager answers to somebody who goes around the API server."""
        url = f"https://127.0.0.1:{self.port}{path}"
        return httpx.get(url, headers=headers, verify=False)


@contextmanager
def behind_kube_apiserver(folder: Path, port: int) -> Iterator[tuple[LocalCluster, Rest]]:
    """The same as `aggregating_cluster` on a real control plane, where Services lead nowhere."""
    where = f"visibilityServer: {{bindAddress: 127.0.0.1, bindPort: {port}}}"
    with real_cluster(folder, settings=where, version="v1beta2") as cluster:
        config = folder / "install.yaml"
        config.write_text(INSTALLED.replace("{}", f"{{bindPort: {port}}}"))
        url = f"https://127.0.0.1:{cluster.webhook_port}"
        args = ["--kubeconfig", str(cluster.kubeconfig), "--webhook-url", url]
        more = ["--config", str(config)]
        cluster.processes.finish("install", "install", *args, *more, seconds=READY_SECONDS)
        cluster.start_manager()
        cluster.wait_for_manager()
        with Rest(cluster.kubeconfig) as rest:
            eventually(lambda: rest.get(f"{API}/v1beta2"))
            yield cluster, rest


@pytest.fixture(
    scope="module",
    params=[
        "embedded",
        pytest.param(
            "real",
            marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())],
        ),
    ],
)
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Seen]:
    """Two CPUs, both in use by `first`, while `second` and `third` wait."""
    port = free_port()
    make = behind_kube_apiserver if request.param == "real" else aggregating_cluster
    with make(tmp_path_factory.mktemp("visibility"), port) as (cluster, rest):
        queues(rest, cpu=2)
        rest.create(JOBS, job("first", seconds=6000, pods=2))
        eventually(lambda: not rest.get(f"{JOBS}/first")["spec"]["suspend"])
        rest.create(JOBS, job("third", seconds=6000, pods=2))
        rest.create(JOBS, urgent(rest, job("second", seconds=6000, pods=2)))
        eventually(lambda: len(rest.get(OF_QUEUE)["items"]) == 2)
        yield Seen(cluster, rest, port)


def test_what_waits_is_listed_in_order(seen: Seen) -> None:
    rest = seen.rest
    paths = [re.sub("v1beta.", each, path) for each in VERSIONS for path in (OF_QUEUE, OF_LOCAL)]
    for path in paths:
        body = rest.get(path)
        assert body["kind"] == "PendingWorkloadsSummary"
        rows = [
            (
                one["metadata"]["ownerReferences"][0]["name"],
                one["positionInClusterQueue"],
                one["positionInLocalQueue"],
            )
            for one in body["items"]
        ]
        assert rows == [("second", 0, 0), ("third", 1, 1)]
    (only,) = rest.get(f"{OF_QUEUE}?offset=1&limit=1")["items"]
    assert only["positionInClusterQueue"] == 1
    code, text = refused(rest, OF_QUEUE.replace("team", "absent"))
    assert (code, '"absent\\" not found' in text) == (404, True)


def test_a_tenant_sees_the_queues_of_the_own_namespace_only(seen: Seen, tmp_path: Path) -> None:
    cluster, rest = seen.cluster, seen.rest
    rule = {
        "apiGroups": ["visibility.kueue.x-k8s.io"],
        "resources": ["localqueues/pendingworkloads"],
        "verbs": ["get"],
    }
    rest.create(
        f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "tenant"}, "rules": [rule]}
    )
    config = person(cluster, rest, tmp_path, "tenant")
    bind(rest, "tenant", "Role", "tenant", "default")
    with Rest(config) as tenant:
        assert len(tenant.get(OF_LOCAL)["items"]) == 2
        for other in (OF_QUEUE, OF_ELSEWHERE):
            code, text = refused(tenant, other)
            assert (code, "cannot get resource" in text) == (403, True)


@pytest.mark.parametrize(
    ("role", "namespace", "sees"),
    [
        ("kueue-pending-workloads-cq-viewer-role", "", {OF_QUEUE}),
        ("kueue-pending-workloads-lq-viewer-role", "default", {OF_LOCAL}),
        ("kueue-pending-workloads-lq-viewer-role", "kube-system", {OF_ELSEWHERE}),
        ("kueue-batch-admin-role", "", {OF_QUEUE, OF_LOCAL, OF_ELSEWHERE}),
        ("kueue-batch-user-role", "default", {OF_LOCAL}),
        ("view", "default", {OF_LOCAL}),
        ("", "", set()),
    ],
)
def test_the_roles_that_are_installed_suffice_and_nothing_else_does(
    seen: Seen, tmp_path: Path, role: str, namespace: str, sees: set[str]
) -> None:
    cluster, rest = seen.cluster, seen.rest
    name = f"{role or 'stranger'}-{namespace or 'all'}"
    config = person(cluster, rest, tmp_path, name)
    if role:
        bind(rest, name, "ClusterRole", role, namespace)
    with Rest(config) as somebody:

        def found() -> set[str]:
            paths = (OF_QUEUE, OF_LOCAL, OF_ELSEWHERE)
            return {path for path in paths if status(somebody, path) != 403}

        eventually(lambda: found() == sees)  # a cluster fills aggregated roles in a moment later
        assert found() == sees


def test_whoever_goes_around_the_api_server_is_asked_who_he_is(seen: Seen, tmp_path: Path) -> None:
    """Headers without the certificate of the API server prove nothing; a token is reviewed."""
    forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    assert seen.direct(OF_QUEUE).status_code == 401
    assert seen.direct(OF_QUEUE, **forged).status_code == 401
    config = yaml.safe_load(person(seen.cluster, seen.rest, tmp_path, "direct").read_text())
    bearer = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    bind(seen.rest, "direct", "ClusterRole", "kueue-pending-workloads-lq-viewer-role", "default")
    eventually(lambda: seen.direct(OF_LOCAL, **bearer).status_code == 200)
    for headers in (bearer, {**bearer, **forged}):
        assert seen.direct(OF_LOCAL, **headers).status_code == 200
        assert seen.direct(OF_QUEUE, **headers).status_code == 403
        assert seen.direct(OF_ELSEWHERE, **headers).status_code == 403


def person(cluster: LocalCluster, rest: Rest, folder: Path, name: str) -> Path:
    """A kubeconfig of somebody who may do nothing yet."""
    rest.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
    path = f"/api/v1/namespaces/default/serviceaccounts/{name}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = rest.create(path, asked)["status"]["token"]
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    found = folder / "kubeconfig"
    found.write_text(yaml.safe_dump(config))
    return found


async def test_a_user_of_one_namespace_learns_all_about_the_own_job(
    seen: Seen, tmp_path: Path
) -> None:
    cluster, rest = seen.cluster, seen.rest
    user = str(person(cluster, rest, tmp_path, "user"))
    bind(rest, "user", "ClusterRole", "kueue-batch-user-role", "default")
    third = {"kind": "Job", "name": "third"}
    state = await kueuelib.queue_state(third, kubeconfig=user)
    assert (state.state, state.queue, state.place) == (kueuelib.State.QUEUED, "team", 2)
    assert {name: str(amount) for name, amount in state.lacks.items()} == {"cpu": "2"}
    assert state.comes_back
    assert "no end is known for" in state.unknown["start"]
    assert state.unknown.keys() == {"start"}
    assert state.text == "Waiting for quota: cpu on on-demand: 2 more needed; place 2"
    assert sync.queue_state(third, kubeconfig=user) == state
    (workload,) = [
        one for one in rest.items(WORKLOADS) if one["metadata"]["name"] == state.workload
    ]
    assert (await kueuelib.queue_state(workload, kubeconfig=user)).text == state.text
    poor = str(person(cluster, rest, tmp_path, "poor"))
    rule = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]}
    rest.create(f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "poor"}, "rules": [rule]})
    bind(rest, "poor", "Role", "poor", "default")
    known = await kueuelib.queue_state(third, kubeconfig=poor)
    assert (known.state, known.place, known.lacks) == (kueuelib.State.QUEUED, None, {})
    assert "cannot list resource" in known.unknown["workload"]
    elsewhere = {**third, "namespace": "kube-system"}
    with pytest.raises(kueuelib.errors.Forbidden):
        await kueuelib.queue_state(elsewhere, kubeconfig=poor)
    gone = {**third, "metadata": {"name": "third", "uid": "another"}, "apiVersion": "batch/v1"}
    with pytest.raises(kueuelib.JobGone, match="Job default/third is deleted"):
        await kueuelib.queue_state(gone, kubeconfig=poor)
    with pytest.raises(TimeoutError, match="not known after 0 s"):
        await kueuelib.queue_state(third, kubeconfig=poor, timeout=0)


def bind(rest: Rest, name: str, kind: str, role: str, namespace: str) -> None:
    """Gives a person a role, in one namespace or everywhere."""
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    body = {"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]}
    where = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
    rest.create(f"{RBAC}/{where}", body)


def status(rest: Rest, path: str) -> int:
    """The status code of a GET."""
    try:
        rest.get(path)
    except httpx.HTTPStatusError as error:
        return error.response.status_code
    return 200


def test_the_api_server_verifies_the_certificate(seen: Seen) -> None:
    rest = seen.rest
    hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    (config,) = rest.items(hooks)
    bundle = config["webhooks"][0]["clientConfig"]["caBundle"]
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    ours = [one for one in rest.items(path) if one["spec"].get("service")]
    assert [one["metadata"]["name"] for one in ours] == [
        "v1alpha1.visibility.kueuelib.dev",
        "v1beta1.visibility.kueue.x-k8s.io",
        "v1beta2.visibility.kueue.x-k8s.io",
    ]
    assert all(one["spec"]["caBundle"] == bundle for one in ours)
    assert not any(one["spec"].get("insecureSkipTLSVerify") for one in ours)


def test_a_broken_trust_in_the_api_is_repaired_within_seconds(seen: Seen) -> None:
    rest = seen.rest
    path = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.visibility.kueue.x-k8s.io"
    right = rest.get(path)["spec"]["caBundle"]
    other = renewed(None, host_names(["127.0.0.1"]), time.time()).ca_cert
    wrong = base64.b64encode(other).decode()
    for _ in range(2):
        assert rest.merge(path, {"spec": {"caBundle": wrong}})["spec"]["caBundle"] == wrong
        began = time.monotonic()
        eventually(lambda: rest.get(path)["spec"]["caBundle"] == right)
        assert time.monotonic() - began < PROMPT
    eventually(lambda: len(rest.get(OF_QUEUE)["items"]) == 2)


def test_discovery_has_the_group_in_both_forms(seen: Seen) -> None:
    rest = seen.rest
    names = [one["name"] for one in rest.get("/apis")["groups"]]
    assert {"visibility.kueue.x-k8s.io", "visibility.kueuelib.dev"} <= {*names}
    group = rest.get(API)
    assert [one["version"] for one in group["versions"]] == ["v1beta2", "v1beta1"]
    resources = {one["name"] for one in rest.get(f"{API}/v1beta2")["resources"]}
    assert "localqueues/pendingworkloads" in resources


def run_kubectl(cluster: LocalCluster, *args: str) -> str:
    """What kubectl prints.

    Raises:
        subprocess.CalledProcessError: the server refused it.
    """
    return subprocess.run(
        ["kubectl", "--kubeconfig", str(cluster.kubeconfig), *args],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout


@kubectl
@pytest.mark.kubectl
def test_kubectl_gets_it_raw_and_lists_the_kinds(seen: Seen) -> None:
    run = partial(run_kubectl, seen.cluster)
    for version in VERSIONS:
        body = json.loads(run("get", "--raw", re.sub("v1beta.", version, OF_QUEUE)))
        assert body["kind"] == "PendingWorkloadsSummary"
        assert body["apiVersion"] == f"visibility.kueue.x-k8s.io/{version}"
        assert len(body["items"]) == 2
    assert "kueue-system/visibility-server" in run("get", "apiservices")
    assert "clusterqueues" in run("api-resources", "--verbs=", "--cached=false")


def test_an_api_that_is_away_is_told_as_such(seen: Seen) -> None:
    cluster, rest = seen.cluster, seen.rest
    cluster.processes.stop("manager")
    code, _ = refused(rest, OF_QUEUE)
    assert code == 503
    if shutil.which("kubectl"):
        with pytest.raises(subprocess.CalledProcessError) as raised:
            run_kubectl(cluster, "get", "--raw", OF_QUEUE)
        assert "(ServiceUnavailable): " in raised.value.stderr
    assert API.removeprefix("/apis/") in [one["name"] for one in rest.get("/apis")["groups"]]
    assert rest.get("/api/v1/namespaces/default")["metadata"]["name"] == "default"
