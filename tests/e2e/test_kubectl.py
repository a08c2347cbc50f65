"""The verbs of a real kubectl against the embedded server."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kueuelib.embedded.server import ApiServer

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH"),
]

Kubectl = Callable[..., Awaitable[str]]
CRDS = Path(__file__).parents[2] / "manifests/crds"

MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: red}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers: [{name: c, image: nginx}]
"""
BRIEF = POD.replace("spec:", "spec:\n  terminationGracePeriodSeconds: 0")
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: sums}
spec:
  template:
    metadata: {annotations: {kueuelib.dev/run-seconds: "0"}}
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox}]
"""
QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main}
spec: {clusterQueue: all}
"""
COHORTS = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: Cohort
metadata: {name: research}
spec:
  parentName: all
  fairSharing: {weight: "0.5"}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: spot
      resources: [{name: cpu, nominalQuota: 2, borrowingLimit: 3, lendingLimit: 1}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: all}
spec: {fairSharing: {}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: vision}
spec:
  cohortName: research
  fairSharing: {weight: 3}
  flavorFungibility:
    whenCanBorrow: TryNextFlavor
    whenCanPreempt: TryNextFlavor
    preference: PreemptionOverBorrowing
  admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}
"""


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    """Runs kubectl; fails when the exit code is not the expected one."""
    async with ApiServer(simulate=True, authorization="rbac") as server:
        config = tmp_path / "kubeconfig"
        config.write_text(yaml.safe_dump(server.kubeconfig()))
        env = {**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)}

        async def run(
            *args: str, stdin: str = "", code: int = 0, through: tuple[str, ...] = ()
        ) -> str:
            process = await asyncio.create_subprocess_exec(
                *through,
                "kubectl",
                *args,
                env=env,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            async with asyncio.timeout(180):
                out, _ = await process.communicate(stdin.encode())
            text = out.decode()
            assert process.returncode == code, f"kubectl {' '.join(args)}: {text}"
            return text

        yield run


async def read(kubectl: Kubectl, *args: str) -> Any:
    return json.loads(await kubectl("get", *args, "-o", "json"))


async def test_apply_creates_changes_and_leaves_alone(kubectl: Kubectl) -> None:
    assert await kubectl("apply", "-f", "-", stdin=MAP) == "configmap/settings created\n"
    assert await kubectl("apply", "-f", "-", stdin=MAP) == "configmap/settings unchanged\n"
    changed = MAP.replace("red", "blue")
    difference = await kubectl("diff", "-f", "-", stdin=changed, code=1)
    assert "+  color: blue" in difference
    assert "warning" not in difference.lower()
    assert await kubectl("apply", "-f", "-", stdin=changed) == "configmap/settings configured\n"
    assert (await read(kubectl, "cm", "settings"))["data"] == {"color": "blue"}


async def test_what_is_applied_no_more_is_pruned(kubectl: Kubectl) -> None:
    labelled = MAP.replace("name: settings", "name: settings, labels: {app: pruned}")
    assert labelled != MAP
    other = labelled.replace("name: settings", "name: other")
    args = ("apply", "--prune", "-l", "app=pruned", "-f", "-")
    both = await kubectl(*args, stdin=f"{labelled}\n---\n{other}")
    assert {"configmap/settings created", "configmap/other created"} <= set(both.splitlines())
    said = await kubectl(*args, stdin=other)
    assert "configmap/settings pruned" in said
    assert await kubectl("get", "cm", "-l", "app=pruned", "-o", "name") == "configmap/other\n"


async def test_a_container_to_look_into_a_pod_is_added(kubectl: Kubectl) -> None:
    await kubectl("run", "looked-into", "--image=example")
    await kubectl("debug", "looked-into", "--image=tools", "-c", "debugger")
    path = "jsonpath={.spec.ephemeralContainers[*].name}"
    assert await kubectl("get", "pod", "looked-into", "-o", path) == "debugger"


async def test_a_server_side_apply_finds_conflicts(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=MAP)
    changed = MAP.replace("red", "blue")
    args = ("apply", "--server-side", "--field-manager=other", "-f", "-")
    assert "conflict with" in await kubectl(*args, stdin=changed, code=1)
    forced = await kubectl(*args, "--force-conflicts", stdin=changed)
    assert forced == "configmap/settings serverside-applied\n"


async def test_who_applied_on_the_clients_side_may_go_on_at_the_server(kubectl: Kubectl) -> None:
    both = MAP.replace("red}", "red, size: big}")
    await kubectl("apply", "-f", "-", stdin=both)
    args = ("apply", "--server-side", "-f", "-")
    said = await kubectl(*args, stdin=both.replace("red", "blue"))
    assert said == "configmap/settings serverside-applied\n"
    found = await read(kubectl, "cm", "settings", "--show-managed-fields")
    assert found["data"] == {"color": "blue", "size": "big"}
    owners = {(e["manager"], e["operation"]) for e in found["metadata"]["managedFields"]}
    assert owners == {("kubectl", "Apply"), ("kubectl-last-applied", "Apply")}
    await kubectl(*args, stdin=MAP)
    assert (await read(kubectl, "cm", "settings"))["data"] == {"color": "red"}
    back = await kubectl("apply", "-f", "-", stdin=MAP.replace("color: red", "size: small"))
    assert back == "configmap/settings configured\n"
    assert (await read(kubectl, "cm", "settings"))["data"] == {"size": "small"}


async def test_commands_that_make_objects_work(kubectl: Kubectl) -> None:
    assert await kubectl("create", "namespace", "lab") == "namespace/lab created\n"
    await kubectl("create", "configmap", "c", "--from-literal=a=b", "-n", "lab")
    await kubectl("create", "secret", "generic", "s", "--from-literal=a=b", "-n", "lab")
    await kubectl("create", "job", "j", "--image=busybox", "-n", "lab", "--", "true")
    await kubectl("run", "web", "--image=nginx", "-n", "lab", "--grace-period=1")
    assert (await read(kubectl, "secret", "s", "-n", "lab"))["data"] == {"a": "Yg=="}
    again = await kubectl("create", "namespace", "lab", code=1)
    assert '(AlreadyExists): namespaces "lab" already exists' in again
    dry = await kubectl("create", "ns", "not", "--dry-run=server")
    assert dry == "namespace/not created (server dry run)\n"
    await kubectl("get", "ns", "not", code=1)


async def test_get_prints_tables_names_and_documents(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=POD)
    await kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=180s")
    table = (await kubectl("get", "pods")).splitlines()
    assert table[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert table[1].split()[:4] == ["web", "1/1", "Running", "0"]
    assert "simulated-node" in await kubectl("get", "pods", "-o", "wide")
    assert await kubectl("get", "pods", "-l", "app=web", "-o", "name") == "pod/web\n"
    assert "No resources found" in await kubectl("get", "pods", "-l", "app=none")
    by_field = ("get", "pods", "-A", "--field-selector", "status.phase=Running", "-o", "name")
    assert await kubectl(*by_field) == "pod/web\n"
    path = "jsonpath={.items[*].metadata.name}"
    assert await kubectl("get", "pods", "-o", path) == "web"
    document = yaml.safe_load(await kubectl("get", "pod", "web", "-o", "yaml"))
    assert document["kind"] == "Pod"
    absent = await kubectl("get", "pod", "none", code=1)
    assert absent == 'Error from server (NotFound): pods "none" not found\n'


async def test_a_job_is_followed_to_its_end(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=JOB)
    await kubectl("wait", "--for=condition=Complete", "job/sums", "--timeout=180s")
    row = (await kubectl("get", "job", "sums")).splitlines()[1].split()
    assert row[:3] == ["sums", "Complete", "1/1"]
    described = await kubectl("describe", "job", "sums")
    assert "Pods Statuses:" in described
    assert "1 Succeeded" in described
    assert "SuccessfulCreate" in described
    assert "SuccessfulCreate" in await kubectl("events")
    assert await kubectl("delete", "job", "sums") == 'job.batch "sums" deleted\n'
    await kubectl("wait", "--for=delete", "pod", "-l", "job-name=sums", "--timeout=180s")


async def test_objects_are_changed_in_every_way(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=POD)
    await kubectl("label", "pod", "web", "tier=front")
    await kubectl("annotate", "pod", "web", "note=x")
    strategic = '{"spec":{"containers":[{"name":"c","image":"nginx:2"}]}}'
    await kubectl("patch", "pod", "web", "-p", strategic)
    await kubectl("patch", "pod", "web", "--type=merge", "-p", '{"metadata":{"labels":{"a":"b"}}}')
    operation = '[{"op":"remove","path":"/metadata/labels/a"}]'
    await kubectl("patch", "pod", "web", "--type=json", "-p", operation)
    found = await read(kubectl, "pod", "web")
    assert found["metadata"]["labels"] == {"app": "web", "tier": "front"}
    assert found["spec"]["containers"][0]["image"] == "nginx:2"
    document = await kubectl("get", "pod", "web", "-o", "yaml")
    replaced = await kubectl("replace", "-f", "-", stdin=document.replace("front", "back"))
    assert replaced == "pod/web replaced\n"


async def test_custom_resources_are_at_home(kubectl: Kubectl) -> None:
    made = await kubectl("apply", "-f", str(CRDS / "kueue.x-k8s.io_localqueues.yaml"))
    assert (
        made == "customresourcedefinition.apiextensions.k8s.io/localqueues.kueue.x-k8s.io created\n"
    )
    await kubectl("wait", "--for=condition=Established", "crd/localqueues.kueue.x-k8s.io")
    assert "LocalQueue" in await kubectl("api-resources", "--api-group=kueue.x-k8s.io")
    assert "kueue.x-k8s.io/v1beta2" in await kubectl("api-versions")
    await kubectl("apply", "-f", "-", stdin=QUEUE)
    table = (await kubectl("get", "lq")).splitlines()
    assert table[0].startswith("NAME")
    assert table[1].split()[:2] == ["main", "all"]
    wrong = QUEUE.replace("clusterQueue", "clusterQuue")
    assert 'unknown field "spec.clusterQuue"' in await kubectl(
        "apply", "-f", "-", stdin=wrong, code=1
    )
    assert "clusterQueue" in await kubectl("explain", "lq.spec")
    status = '{"status":{"pendingWorkloads":3}}'
    await kubectl("patch", "lq", "main", "--subresource=status", "--type=merge", "-p", status)
    assert (await read(kubectl, "lq", "main"))["status"]["pendingWorkloads"] == 3
    await kubectl("delete", "crd", "localqueues.kueue.x-k8s.io")
    assert "NotFound" in await kubectl("get", "--raw", "/apis/kueue.x-k8s.io/v1beta2", code=1)


async def test_cohorts_and_weights_are_kept_in_both_versions(kubectl: Kubectl) -> None:
    for plural in ("cohorts", "clusterqueues"):
        file = CRDS / f"kueue.x-k8s.io_{plural}.yaml"
        definition = yaml.safe_load(file.read_text())
        definition["spec"]["conversion"] = {"strategy": "None"}  # there is no manager
        await kubectl("apply", "-f", "-", stdin=yaml.safe_dump(definition))
        await kubectl("wait", "--for=condition=Established", f"crd/{plural}.kueue.x-k8s.io")
    await kubectl("apply", "-f", "-", stdin=COHORTS)
    header, *rows = (await kubectl("get", "co")).splitlines()
    assert header.split() == ["NAME", "AGE"]
    assert [row.split()[0] for row in rows] == ["all", "research"]
    for version in ("v1beta1", "v1beta2"):
        found = await read(kubectl, f"cohorts.{version}.kueue.x-k8s.io", "research")
        assert found["spec"]["parentName"] == "all"
        assert found["spec"]["fairSharing"] == {"weight": "0.5"}
        (group,) = found["spec"]["resourceGroups"]
        (row,) = group["flavors"][0]["resources"]
        assert row == {"name": "cpu", "nominalQuota": 2, "borrowingLimit": 3, "lendingLimit": 1}
    assert (await read(kubectl, "cohort", "all"))["spec"] == {"fairSharing": {"weight": 1}}
    queue = (await read(kubectl, "clusterqueue", "vision"))["spec"]
    assert queue["fairSharing"] == {"weight": 3}
    assert queue["flavorFungibility"]["preference"] == "PreemptionOverBorrowing"
    assert queue["admissionScope"] == {"admissionMode": "UsageBasedAdmissionFairSharing"}
    share = '{"status": {"fairSharing": {"weightedShare": 9223372036854775807}}}'
    await kubectl("patch", "co/all", "--subresource=status", "--type=merge", "-p", share)
    text = await kubectl("get", "co/all", "-o", "jsonpath={.status.fairSharing.weightedShare}")
    assert text == "9223372036854775807"
    typo = COHORTS.replace("parentName", "parent").partition("---")[0]
    assert 'unknown field "spec.parent"' in await kubectl("apply", "-f", "-", stdin=typo, code=1)
    wrong = '{"spec": {"flavorFungibility": {"preference": "Both"}}}'
    refused = await kubectl("patch", "cq/vision", "--type=merge", "-p", wrong, code=1)
    assert "supported values" in refused
    await kubectl("delete", "cohorts", "--all")
    assert "No resources found" in await kubectl("get", "cohorts")


async def test_a_namespace_goes_with_its_content(kubectl: Kubectl) -> None:
    await kubectl("create", "ns", "brief")
    await kubectl("apply", "-n", "brief", "-f", "-", stdin=MAP)
    assert await kubectl("delete", "ns", "brief") == 'namespace "brief" deleted\n'
    await kubectl("get", "ns", "brief", code=1)
    refused = await kubectl("delete", "ns", "default", code=1)
    assert "this namespace may not be deleted" in refused


async def test_many_objects_are_deleted_at_once(kubectl: Kubectl) -> None:
    for name in ("one", "two"):
        await kubectl("create", "configmap", name)
    gone = await kubectl("delete", "configmaps", "--all")
    assert gone == 'configmap "one" deleted\nconfigmap "two" deleted\n'


async def test_kubectl_learns_who_it_is_and_what_it_may(kubectl: Kubectl) -> None:
    assert await kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert "kubernetes-admin" in await kubectl("auth", "whoami")
    assert "Server Version: v1." in await kubectl("version")
    assert await kubectl("get", "--raw", "/readyz") == "ok"


async def test_a_watch_prints_changes(kubectl: Kubectl) -> None:
    """A kubectl that starts slowly may come too late for what lives so shortly: once more then."""
    lines: list[str] = []
    for start in (0.5, 4.0, 32.0):
        limit = f"--request-timeout={start + 2.5}s"
        watching = asyncio.create_task(kubectl("get", "configmaps", "-w", "-o", "name", limit))
        await asyncio.sleep(start)
        await kubectl("apply", "-f", "-", stdin=MAP)
        await kubectl("delete", "configmap", "settings")
        if lines := (await watching).splitlines():
            break
    assert lines[0] == "configmap/settings"


async def test_explain_knows_the_built_in_kinds(kubectl: Kubectl) -> None:
    containers = await kubectl("explain", "pod.spec.containers")
    assert "imagePullPolicy\t<string>" in containers
    assert "name\t<string> -required-" in containers
    assert "FIELD: targetPort <IntOrString>" in await kubectl(
        "explain", "svc.spec.ports.targetPort"
    )
    limits = await kubectl("explain", "pod.spec.containers.resources.limits")
    assert "FIELD: limits <map[string]Quantity>" in limits
    recursive = await kubectl("explain", "job.spec", "--recursive")
    assert "completionMode\t<string>" in recursive
    unknown = await kubectl("explain", "pod.spec.containerz", code=1)
    assert 'field "containerz" does not exist' in unknown


async def test_a_typo_in_a_manifest_is_refused(kubectl: Kubectl) -> None:
    wrong = POD.replace("image:", "imagee:")
    for command in ("create", "apply"):
        refused = await kubectl(command, "-f", "-", stdin=wrong, code=1)
        assert 'strict decoding error: unknown field "spec.containers[0].imagee"' in refused
    await kubectl("get", "pod", "web", code=1)


async def test_kubectl_asks_for_others_and_uses_tokens_of_accounts(kubectl: Kubectl) -> None:
    eve = ("--as", "eve")
    assert await kubectl("auth", "can-i", "get", "pods", *eve, code=1) == "no\n"
    refused = await kubectl("get", "pods", *eve, code=1)
    assert 'User "eve" cannot list resource "pods"' in refused
    await kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods")
    await kubectl("create", "rolebinding", "eve", "--role=reader", "--user=eve")
    assert await kubectl("auth", "can-i", "get", "pods", *eve) == "yes\n"
    assert "pods" in await kubectl("auth", "can-i", "--list", *eve)
    assert "No resources found" in await kubectl("get", "pods", *eve)
    await kubectl("create", "serviceaccount", "robot")
    token = (await kubectl("create", "token", "robot")).strip()
    assert token.count(".") == 2
    await kubectl(
        "create",
        "clusterrolebinding",
        "robot",
        "--clusterrole=view",
        "--serviceaccount=default:robot",
    )
    robot = ("--as", "system:serviceaccount:default:robot")
    assert await kubectl("auth", "can-i", "list", "jobs.batch", "-A", *robot) == "yes\n"
    assert await kubectl("auth", "can-i", "delete", "jobs.batch", "-A", *robot, code=1) == "no\n"


async def test_a_pod_is_edited_replaced_evicted_and_waited_for(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=BRIEF)
    await kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=180s")
    assert await kubectl("logs", "web") == ""
    assert "error dialing backend" in await kubectl("exec", "web", "--", "ls", code=1)
    editor = ("env", "KUBE_EDITOR=sed -i s/nginx$/nginx:9/")
    edited = await kubectl("edit", "pod", "web", through=editor)
    assert edited == "pod/web edited\n"
    assert (await read(kubectl, "pod", "web"))["spec"]["containers"][0]["image"] == "nginx:9"
    forced = await kubectl("replace", "--force", "-f", "-", stdin=BRIEF)
    assert forced == 'pod "web" deleted\npod/web replaced\n'
    drained = await kubectl(
        "drain", "-l", "kueuelib.dev/simulated=true", "--force", "--timeout=180s"
    )
    assert "pod/web evicted" in drained
    assert "SchedulingDisabled" in await kubectl("get", "nodes")
    absent = await kubectl("wait", "--for=delete", "pod/web", "--timeout=180s")
    assert absent == ""


async def test_dependents_stay_or_go_as_it_is_said(kubectl: Kubectl) -> None:
    await kubectl("create", "job", "kept", "--image=busybox")
    await kubectl("wait", "--for=jsonpath={.status.active}=1", "job/kept", "--timeout=180s")
    await kubectl("delete", "job", "kept", "--cascade=orphan", "--timeout=180s")
    left = await kubectl("get", "pods", "-l", "job-name=kept", "-o", "name")
    assert left.startswith("pod/kept-")
    await kubectl("delete", "pods", "-l", "job-name=kept", "--now")
    await kubectl("apply", "-f", "-", stdin=JOB.replace('"0"', '"600"'))
    await kubectl("wait", "--for=jsonpath={.status.active}=1", "job/sums", "--timeout=180s")
    await kubectl("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
    await kubectl("delete", "job", "sums", "--cascade=foreground", "--timeout=180s")
    assert "No resources found" in await kubectl("get", "jobs")


async def test_numbers_of_replicas_are_scaled(kubectl: Kubectl) -> None:
    await kubectl("create", "deployment", "d", "--image=nginx", "--replicas=2")
    assert await kubectl("scale", "deployment", "d", "--replicas=3") == "deployment.apps/d scaled\n"
    found = await read(kubectl, "deployment", "d")
    assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (3, 2)
    await kubectl("expose", "deployment", "d", "--port=80")
    assert "10.96." in await kubectl("get", "service", "d")
