"""Every client in the table of docs/clients.md does its work against the embedded server.

`$CLIENTS_PYTHON` names an interpreter that has the Python clients, if it is not this one;
`$NODE_PATH` names the folder with the packages of node. Kueue's programs have to be on the PATH.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from place import Place, aggregating_cluster
from rest import KUEUE, Obj, Rest, condition, eventually

from kueuelib.embedded.server import ApiServer
from kueuelib.testing.processes import LocalCluster

SCRIPTS = Path(__file__).with_name("clients")
PAGE = Path(__file__).parents[2] / "docs/clients.md"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SECONDS = 240.0
PACKAGES = {
    "kubernetes_python.py": "kubernetes",
    "kubernetes_asyncio_client.py": "kubernetes_asyncio",
    "kr8s_client.py": "kr8s",
    "lightkube_client.py": "lightkube",
    "pykube_client.py": "pykube",
    "kopf_client.py": "kopf",
    "kubeflow_client.py": "kubeflow.trainer",
    "client_node.mjs": "@kubernetes/client-node",
    "kubectl.sh": "kubectl",
}
QUEUEING = {
    "kueuectl.sh": "kubectl-kueue",
    "kueueviz.py": "kueueviz",
    "kubeflow_queue.py": "kubeflow.trainer",
    "codeflare_queue.py": "codeflare_sdk",
}
"""Those that need a manager."""
PYTHON = os.environ.get("CLIENTS_PYTHON", sys.executable)
KINDS = (
    ("trainer.kubeflow.org/v1alpha1", "TrainJob", "Namespaced"),
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", "Namespaced"),
    ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", "Cluster"),
    ("ray.io/v1", "RayCluster", "Namespaced"),
)
FRAMEWORKS = ("batch/job", "pod", "trainer.kubeflow.org/trainjob", "ray.io/raycluster")


def _command(script: str, package: str) -> tuple[list[str], list[str]]:
    """How a script is run, and what succeeds where its client is installed."""
    path = str(SCRIPTS / script)
    if shutil.which(package) is not None:
        probe = [package, "version", "--client"] if package == "kubectl" else ["true"]
        return ["sh" if script.endswith(".sh") else sys.executable, path], probe
    if script.endswith(".py"):
        return [PYTHON, path], [PYTHON, "-c", f"import {package}"]
    if script.endswith(".mjs"):
        return ["node", path], ["node", "-e", f"require.resolve('{package}')"]
    return ["sh", path], ["false"]


async def _works(script: str, package: str, kubeconfig: Obj, folder: Path) -> None:
    """Runs a script to its end, or skips it."""
    command, probe = _command(script, package)
    if not await asyncio.to_thread(_is_installed, probe):
        pytest.skip(f"{package} is not installed")
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    env = {**os.environ, "KUBECONFIG": str(path), "HOME": str(folder)}
    if command[0] != sys.executable:
        env.pop("PYTHONPATH", None)
    process = await asyncio.create_subprocess_exec(
        *(*command, str(path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=env,
    )
    try:
        async with asyncio.timeout(SECONDS):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, out.decode(errors="replace")[-4000:]


def _is_installed(probe: list[str]) -> bool:
    if shutil.which(probe[0]) is None:
        return False
    return subprocess.run(probe, capture_output=True, timeout=SECONDS, check=False).returncode == 0


def test_every_row_has_its_script_and_every_script_its_row():
    rows = set(re.findall(r"\((?:\.\./)tests/e2e/clients/([\w.]+)\)", PAGE.read_text()))
    assert (
        rows
        == {*PACKAGES, *QUEUEING}
        == {each.name for each in SCRIPTS.iterdir() if each.is_file()}
    )


@pytest.mark.parametrize("script", PACKAGES)
async def test_a_client_does_its_work(script: str, tmp_path: Path):
    async with ApiServer(simulate=True, authorization="rbac") as server:
        await _works(script, PACKAGES[script], server.kubeconfig(), tmp_path)


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, Rest]]:
    """A manager and its visibility API, and kinds of which nobody keeps the schemas."""
    folder = tmp_path_factory.mktemp("managed")
    with aggregating_cluster(folder, frameworks=FRAMEWORKS) as (cluster, rest):
        for api_version, kind, scope in KINDS:
            rest.create(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                _crd(api_version, kind, scope),
            )
        yield cluster, rest


def _crd(api_version: str, kind: str, scope: str) -> Obj:
    group, _, version = api_version.partition("/")
    plural = f"{kind.lower()}s"
    served = {"name": version, "served": True, "storage": True, "subresources": {"status": {}}}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{**served, "schema": {"openAPIV3Schema": schema}}]
    names = {"plural": plural, "kind": kind}
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": versions},
    }


@pytest.mark.parametrize("script", QUEUEING)
async def test_a_client_uses_queues(
    script: str, managed: tuple[LocalCluster, Rest], tmp_path: Path
):
    """In a namespace of its own, where one of two Jobs waits in the LocalQueue `q`."""
    cluster, rest = managed
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    place = await asyncio.to_thread(_furnished, rest, script)
    kubeconfig["contexts"][0]["context"]["namespace"] = place.ns
    await _works(script, QUEUEING[script], kubeconfig, tmp_path)


def _furnished(rest: Rest, script: str) -> Place:
    place = Place(rest)
    flavor = place.create("ResourceFlavor", "q", spec={})
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort"}
    rest.create(f"{KUEUE}/cohorts", {**head, "metadata": {"name": place.named("all")}})
    quota = [{"name": "cpu", "nominalQuota": 2}, {"name": "memory", "nominalQuota": "4Gi"}]
    groups = [
        {"coveredResources": ["cpu", "memory"], "flavors": [{"name": flavor, "resources": quota}]}
    ]
    spec = {"namespaceSelector": {}, "resourceGroups": groups, "cohortName": place.named("all")}
    place.create("ClusterQueue", "q", spec=spec)
    place.local_queue()
    if script == "kueueviz.py":
        for name, reserved in (("runs", True), ("waits", False)):
            job = place.job(name, cpu="2")
            eventually(lambda job=job, like=str(reserved): like == _reserved(place.workload(job)))
    return place


def _reserved(workload: Obj) -> str:
    return condition(workload, "QuotaReserved")["status"]
