"""A process with checks needs no more than what `kueuelib manifests` prints for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kueuelib import State, submit, wait
from kueuelib.api.yaml_text import to_yaml
from kueuelib.app.program_manifests import check_manifests, check_plugin_manifests
from kueuelib.app.programs import load
from kueuelib.checks import Ready, Verdict, Workload, check, serve
from kueuelib.cli.manifests import run
from kueuelib.embedded.access.attributes import Attributes, Decision
from kueuelib.embedded.access.rbac import Rbac
from kueuelib.embedded.admission.plugin import UserInfo
from kueuelib.errors import ConfigError
from kueuelib.runtime import Client, Obj, PatchType, key_of, kinds
from kueuelib.testing import (
    BackgroundServer,
    eventually,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    queueing,
)

LIMITS = kinds.PROVISIONING_REQUEST_CONFIGS
"""Stands for the kind of parameters."""
NAME, SPACE = "example.com/pool", "kueue-system"
released: list[str] = []


async def give_back(workload: Workload) -> None:
    released.append(workload.name)


@check(NAME, parameters=LIMITS, release=give_back)
async def pool(workload: Workload, parameters: Obj) -> Verdict:
    return Ready(parameters["spec"]["provisioningClassName"])


async def apply_all(client: Client, objects: list[Obj]) -> str:
    """Create them; the token of the ServiceAccount."""
    for obj in objects:
        resource = await client.find_resource(obj["apiVersion"], obj["kind"])
        await client.patch(resource, key_of(obj), obj, PatchType.APPLY, force=True)
    account = next(obj for obj in objects if obj["kind"] == "ServiceAccount")
    head = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = {**head, "metadata": {"namespace": SPACE}}
    answer = await client.create(
        kinds.SERVICE_ACCOUNTS, made, subresource="token", name=key_of(account).name
    )
    return str(answer["status"]["token"])


@pytest.mark.api_server(authorization="rbac", simulate=True)
async def test_a_check_decides_and_releases_with_the_printed_rights(
    api_server: BackgroundServer,
    kube_client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: set[tuple[str, str]] = set()
    denied: set[tuple[str, str]] = set()
    decide = Rbac.authorize

    def authorize(self: Rbac, caller: UserInfo, wish: Attributes) -> Decision:
        found = decide(self, caller, wish)
        own = caller.user.startswith(f"system:serviceaccount:{SPACE}:kueuelib-check-")
        if own and wish.resource:
            (used if found.allowed else denied).add((wish.full_resource, wish.verb))
        return found

    monkeypatch.setattr(Rbac, "authorize", authorize)
    async with queueing(kube_client):
        objects = check_manifests((pool,), "pool.py", SPACE, image="pool:1")
        token = await apply_all(kube_client, objects)
        config = api_server.write_kubeconfig(tmp_path / "own", token)
        await kube_client.create(
            LIMITS, LIMITS.new("limits", spec={"provisioningClassName": "fine"})
        )
        limits = {"apiGroup": LIMITS.group, "kind": LIMITS.kind, "name": "limits"}
        asks = {"controllerName": NAME, "parameters": limits}
        await kube_client.create(
            kinds.ADMISSION_CHECKS, kinds.ADMISSION_CHECKS.new("pool", spec=asks)
        )
        queue = make_cluster_queue("all", {"any": {"cpu": 1}}, checks=["pool"])
        for each in (make_flavor("any"), queue, make_local_queue("q", "all", "default")):
            await kube_client.of(type(each)).create(each)
        deciding = asyncio.create_task(serve(pool, kubeconfig=config, namespace=SPACE))
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        pod = {"restartPolicy": "Never", "containers": [container]}
        pod_meta = {"annotations": {"kueuelib.dev/run-seconds": "0.2"}}
        spec = {"template": {"metadata": pod_meta, "spec": pod}}
        handle = await submit(
            kinds.JOBS.new("one", "default", spec=spec), queue="q", client=kube_client
        )
        await wait(handle, State.FINISHED, client=kube_client, timeout=60)
        await eventually(lambda: released)
        deciding.cancel()
        await asyncio.gather(deciding, return_exceptions=True)
    assert not denied
    patched = {"workloads", "workloads/status", "admissionchecks/status"}
    assert used >= {(each, "patch") for each in patched}
    assert used >= {("events", "create"), ("leases", "create"), ("leases", "update")}
    assert used >= {(LIMITS.plural, verb) for verb in ("list", "watch")}


def rules_of(objects: list[Obj], kind: str) -> str:
    return "".join(to_yaml(obj["rules"]) for obj in objects if obj["kind"] == kind)


def test_a_check_without_release_and_parameters_may_not_patch_workloads() -> None:
    @check("example.com/hours")
    async def hours(workload: Workload, parameters: None) -> Verdict:
        return Ready()

    objects = check_manifests((hours,), "hours.py", "team", image="hours:1")
    by_kind = {obj["kind"]: obj for obj in objects}
    (rule,) = (
        each for each in by_kind["ClusterRole"]["rules"] if each["resources"] == ["workloads"]
    )
    assert rule["verbs"] == ["get", "list", "watch"]
    assert LIMITS.plural not in rules_of(objects, "ClusterRole")
    (container,) = by_kind["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["kueuelib", "run", "hours.py"]
    assert container["args"] == ["--namespace", "team"]
    assert not {"ports", "livenessProbe"} & container.keys()
    with pytest.raises(ConfigError, match="the manager has every permission"):
        check_plugin_manifests((hours,), "hours.py", "team")


def test_a_plugin_needs_only_to_read_its_parameters() -> None:
    role, _ = check_plugin_manifests((pool,), "pool.py", SPACE)
    assert [each["resources"] for each in role["rules"]] == [[LIMITS.plural]]


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(Path(__file__).parents[3] / "examples" / "budget_check" / "budget.py")
    run([path], None, "budget:1", None, plugin=False)
    printed = capsys.readouterr().out
    for each in ("kind: ServiceAccount", "workloads/status", "admissionchecks/status", "budgets"):
        assert each in printed
    with pytest.raises(ConfigError, match="a check has no webhooks"):
        run([path], None, "budget:1", "https://127.0.0.1:1", plugin=False)
    assert isinstance(load(path), tuple)
