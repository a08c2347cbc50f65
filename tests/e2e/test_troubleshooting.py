"""The page about broken clusters: its commands are run as they are printed there."""

from __future__ import annotations

import base64
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from installed import Installed, installed, outside
from planting import (
    ACCOUNT,
    HOOKS,
    INSTALL,
    JOBS,
    OURS,
    PODS,
    TEAM,
    bypass,
    delete,
    ended,
    job,
    policy,
    stop,
)
from real_plane import lacking
from rest import KUEUE, Obj, eventually
from test_doctor_cures import said, use

from kueuelib.api.crd import all_crds
from kueuelib.app.doctor.finding import Finding

PAGE = Path(__file__).parents[2] / "docs/troubleshooting.md"
SECRET = "/api/v1/namespaces/kueue-system/secrets/kueue-webhook-server-cert"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases/c1f6bfd2.kueue.x-k8s.io"
MUTATING = f"{HOOKS}/mutatingwebhookconfigurations"
WORKLOADS = f"{KUEUE}/namespaces/{TEAM}/workloads"
RESTART_SECONDS = 150.0
"""Seconds until jobs run again after the kinds have come back: the manager looks for them at
growing intervals."""
REAL = pytest.param(
    outside, marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())]
)


def rows() -> dict[str, str]:
    """What helps, by what doctor says; only of rows with a command."""
    cells = [
        line.strip("|").split(" | ") for line in PAGE.read_text().splitlines() if line[:1] == "|"
    ]
    return {
        names.replace("`", ""): found[1]
        for _, names, helps in cells[2:]
        if (found := re.match(r" *`([^`]+)`", helps))
    }


def blocks(heading: str) -> list[str]:
    """The commands below a heading."""
    part = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [
        line
        for block in re.findall(r"```sh\n(.*?)```", part, re.DOTALL)
        for line in block.splitlines()
    ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    with installed(tmp_path_factory.mktemp("broken")) as found:
        use(found)
        yield found


def crash(cluster: Installed) -> None:
    """The pods of the manager do not answer, and give up the Lease."""
    cluster.processes.kill("manager")
    cluster.rest.merge(LEASE, {"spec": {"holderIdentity": ""}})


def refuse(cluster: Installed) -> None:
    cluster.rest.create(MUTATING, policy())
    cluster.rest.create(JOBS, job("held"))


def allow(cluster: Installed) -> None:
    cluster.rest.delete(f"{MUTATING}/policy")
    ended("held")(cluster)


PLANTED: dict[str, Callable[[Installed], Any]] = {
    "leader, webhook-unreachable": stop,
    "webhook-unreachable": crash,
    "webhook-missing": delete(OURS),
    "account-missing": delete(ACCOUNT),
    "not-started": refuse,
}
CLEANED = {"not-started": allow}
ELSEWHERE = {"crd-missing, webhook-missing"}
"""Rows whose commands remove everything, or bring it back; see below."""


def test_every_command_in_the_table_is_run_here() -> None:
    assert set(rows()) == set(PLANTED) | ELSEWHERE


@pytest.mark.parametrize("row", PLANTED)
def test_what_the_table_says_helps(cluster: Installed, row: str) -> None:
    command = rows()[row].replace("kueuelib install", INSTALL)
    PLANTED[row](cluster)

    def found() -> bool:
        assert set(row.split(", ")) <= {check for check, _ in cluster.found()}
        return True

    eventually(found)
    told = cluster.run(command.replace("NAMESPACE", TEAM).replace("NAME", "held"))
    if row in CLEANED:
        assert "policy.example.com" in told
        CLEANED[row](cluster)
    said(cluster, {})


def test_a_bypassing_pod_has_the_command_that_the_table_promises(cluster: Installed) -> None:
    bypass(cluster)
    before = cluster.rest.get(f"{PODS}/free")["metadata"]["uid"]
    (finding,) = cluster.found().values()
    cluster.run(finding.fix)
    said(cluster, {})
    assert cluster.rest.get(f"{PODS}/free")["metadata"]["uid"] != before
    cluster.rest.delete(f"{PODS}/free")


def test_a_deleted_certificate_is_made_again(cluster: Installed) -> None:
    (command,) = blocks("Certificates")
    before = cluster.rest.get(SECRET)["data"]
    broken = {"tls.crt": base64.b64encode(b"no certificate").decode()}
    cluster.rest.merge(SECRET, {"data": broken})
    cluster.run(command)

    def another() -> bool:
        return bool(cluster.rest.get(SECRET)["data"]["ca.key"] != before["ca.key"])

    eventually(another)
    said(cluster, {})


# --- kinds that were deleted


def pods_of(cluster: Installed, name: str) -> dict[str, Obj]:
    """The live Pods whose names begin so, by UID."""
    return {
        one["metadata"]["uid"]: one
        for one in cluster.rest.items(PODS)
        if one["metadata"]["name"].startswith(name) and "deletionTimestamp" not in one["metadata"]
    }


def phase(cluster: Installed, name: str) -> str:
    return str(cluster.rest.get(f"{PODS}/{name}")["status"].get("phase"))


def runs(cluster: Installed) -> bool:
    found = cluster.rest.get(f"{JOBS}/steady")
    return not found["spec"]["suspend"] and bool(found["status"].get("active"))


def definitions(cluster: Installed) -> list[str]:
    return [one["metadata"]["name"] for one in cluster.rest.items(CRDS)]


def delete_all_kinds(cluster: Installed, but: str = "") -> None:
    for one in all_crds():
        if one["spec"]["names"]["plural"] == but:
            continue
        cluster.rest.delete(f"{CRDS}/{one['metadata']['name']}")


def again(cluster: Installed, commands: list[str]) -> None:
    """Installs and restores as the page says."""
    url = f"https://127.0.0.1:{cluster.cluster.webhook_port}"
    how = f"kueuelib install --webhook-url {url} --config {cluster.outside}"
    for command in commands:
        cluster.run(command.replace("kueuelib install", how if cluster.outside else INSTALL))


def start(cluster: Installed) -> None:
    """Starts the manager where it ran before."""
    if cluster.outside is None:
        cluster.start()
        return
    args = ["--kubeconfig", str(cluster.cluster.kubeconfig), "--config", str(cluster.outside)]
    cluster.processes.start("manager", "manager", *args)
    cluster.cluster.wait_for_manager()


@pytest.mark.parametrize("made", [installed, REAL])
def test_running_jobs_end_with_the_kinds_and_start_again_with_them(
    made: Callable[[Path], AbstractContextManager[Installed]], tmp_path: Path
) -> None:
    with made(tmp_path) as cluster:
        use(cluster)
        labels = {"kueue.x-k8s.io/queue-name": "main"}
        pod = {**job("", cpu="1")["spec"]["template"], "apiVersion": "v1", "kind": "Pod"}
        pod["metadata"] = {**pod["metadata"], "name": "alone", "labels": labels}
        cluster.rest.create(PODS, pod)
        eventually(lambda: phase(cluster, "alone") == "Running")
        cluster.run(blocks("Backup")[0])
        before = pods_of(cluster, "steady")
        began = time.monotonic()
        delete_all_kinds(cluster)
        eventually(lambda: cluster.rest.get(f"{JOBS}/steady")["spec"]["suspend"])
        eventually(lambda: not pods_of(cluster, ""))
        eventually(lambda: not definitions(cluster))
        print(f"jobs and kinds are gone after {time.monotonic() - began:.1f} s")
        began = time.monotonic()
        again(cluster, blocks("Kinds that were deleted"))
        eventually(lambda: runs(cluster), RESTART_SECONDS)
        print(f"the Job runs again after {time.monotonic() - began:.1f} s")
        assert not before.keys() & pods_of(cluster, "steady").keys()
        eventually(lambda: phase(cluster, "alone") == "Running")


@pytest.mark.parametrize("made", [installed, REAL])
def test_kinds_that_are_deleted_while_no_manager_runs(
    made: Callable[[Path], AbstractContextManager[Installed]], tmp_path: Path
) -> None:
    """Some are gone at once, and others wait for a manager that cannot work without all of them."""
    with made(tmp_path) as cluster:
        use(cluster)
        before = pods_of(cluster, "steady")
        cluster.processes.kill("manager")
        delete_all_kinds(cluster, but="localqueues")

        def ending() -> bool:
            left = {name.partition(".")[0] for name in definitions(cluster)}
            return left == {"clusterqueues", "localqueues", "resourceflavors", "workloads"}

        eventually(ending)
        findings = cluster.found()
        root = findings["crd-terminating", "CustomResourceDefinition workloads.kueue.x-k8s.io"]
        assert "suspends their Jobs and deletes their Pods" in root.problem
        save, _, way_out = root.fix.partition("  # then, because other kinds are gone: ")
        cluster.run(save)
        cluster.run(save, refused="kueue.yaml: exists, and may contain more")
        told = cluster.run("kueuelib apiserver dump --backup another.yaml 2>&1")
        ends = "clusterqueues.kueue.x-k8s.io, resourceflavors.kueue.x-k8s.io"
        assert told.startswith(f"note: being deleted: {ends}; create their objects once they are")
        saved = list(yaml.safe_load_all((tmp_path / "kueue.yaml").read_text()))
        assert {one["kind"] for one in saved} == {"ClusterQueue", "LocalQueue", "ResourceFlavor"}
        assert "job-steady" in (tmp_path / "workloads.yaml").read_text()
        assert pods_of(cluster, "steady").keys() == before.keys(), "without a manager jobs go on"
        assert f"{rows()['crd-missing, webhook-missing']} && kueuelib install" in way_out
        cluster.run("kubectl -n kueue-system delete lease c1f6bfd2.kueue.x-k8s.io")
        cluster.run(way_out.partition(";")[0])
        assert pods_of(cluster, "steady").keys() == before.keys()
        start(cluster)
        again(cluster, blocks("Kinds that were deleted")[1:2])
        eventually(
            lambda: runs(cluster) and not before.keys() & pods_of(cluster, "steady").keys(),
            RESTART_SECONDS,
        )
        said(cluster, {})


def test_jobs_continue_if_only_the_kind_of_their_queues_is_deleted(tmp_path: Path) -> None:
    with installed(tmp_path) as cluster:
        use(cluster)
        before = pods_of(cluster, "steady")
        kind = "clusterqueues.kueue.x-k8s.io"
        cluster.rest.delete(f"{CRDS}/{kind}")

        def held() -> list[Finding]:
            return [one for (name, _), one in cluster.found().items() if name == "crd-held"]

        (finding,) = eventually(held)
        assert f"it is in use by Workload {TEAM}/" in finding.problem
        root = cluster.found()["crd-terminating", f"CustomResourceDefinition {kind}"]
        cluster.run(root.fix.partition("  # ")[0])
        cluster.run(finding.fix)
        eventually(lambda: kind not in definitions(cluster))
        again(cluster, blocks("Kinds that were deleted")[:1])
        cluster.run("kubectl create -f kueue.yaml", refused="AlreadyExists")
        eventually(lambda: cluster.found() == {}, RESTART_SECONDS)
        assert pods_of(cluster, "steady").keys() == before.keys()
        assert runs(cluster)


@pytest.mark.slow
@pytest.mark.skipif(bool(lacking()), reason=lacking())
def test_the_namespace_of_a_manager_outside_of_a_real_control_plane_is_deleted(
    tmp_path: Path,
) -> None:
    with outside(tmp_path) as cluster:
        use(cluster)
        before = pods_of(cluster, "steady")
        cluster.rest.delete("/api/v1/namespaces/kueue-system")
        account = "account-missing", "ServiceAccount kueue-system/kueue-controller-manager"

        def found() -> bool:
            spaces = [one["metadata"]["name"] for one in cluster.rest.items("/api/v1/namespaces")]
            assert "kueue-system" not in spaces
            return account in cluster.found()

        eventually(found)
        again(cluster, [rows()["account-missing"]])
        cluster.processes.kill("manager")  # without its Lease it may have ended before
        start(cluster)
        said(cluster, {})
        assert pods_of(cluster, "steady").keys() == before.keys()


# --- an older etcd


def test_after_an_older_copy_was_restored_the_manager_starts_over(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    with installed(tmp_path, "--data-dir", str(data)) as cluster:
        use(cluster)

        def served_from(prepare: Callable[[], Any]) -> None:
            cluster.processes.stop("apiserver")
            prepare()
            cluster.processes.start("apiserver", *cluster.server)
            eventually(lambda: answers(cluster))

        def renewed() -> str:
            return str(cluster.rest.get(LEASE)["spec"]["renewTime"])

        served_from(lambda: shutil.copytree(data, copy))
        copied = renewed()
        cluster.rest.create(JOBS, job("later"))
        eventually(lambda: cluster.rest.get(f"{JOBS}/later")["status"].get("active"))
        # a copy that has the manager's latest Lease may be taken for the history it knows
        eventually(lambda: renewed() > copied)
        served_from(lambda: (shutil.rmtree(data), shutil.copytree(copy, data)))

        def submitted() -> bool:
            try:
                return bool(cluster.rest.create(JOBS, job("after")))
            except httpx.HTTPStatusError:  # the webhooks of a manager that starts over
                return False

        eventually(submitted)
        eventually(lambda: not cluster.rest.get(f"{JOBS}/after")["spec"]["suspend"])
        said(cluster, {})
        assert runs(cluster)
        assert (
            "restored from an older copy" in (cluster.processes.folder / "manager.log").read_text()
        )


def answers(cluster: Installed) -> bool:
    try:
        cluster.rest.get(f"{JOBS}/steady")
    except httpx.HTTPError:
        return False
    return True
