"""Operators as processes: with the rights of their manifests, and two with one finalizer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
import pytest
import yaml

from kueuelib.api.kinds import CONFIG_MAPS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from kueuelib.api.meta import ObjectKey, Resource
from kueuelib.runtime import Client, PatchType, key_of
from kueuelib.runtime.client import read
from kueuelib.testing import BackgroundServer, eventually, free_port

EXAMPLE = Path(__file__).parents[2] / "examples/team_space"
COMMAND = [sys.executable, "-m", "kueuelib"]
SPACES = Resource("example.com", "v1", "teamspaces", "TeamSpace", namespaced=False)
NAME = "team-spaces"


async def apply_all(client: Client, text: str) -> None:
    for obj in yaml.safe_load_all(text):
        resource = await eventually(lambda o=obj: client.find_resource(o["apiVersion"], o["kind"]))
        await client.patch(resource, key_of(obj), obj, PatchType.APPLY, force=True)


async def token(client: Client) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = {**body, "metadata": {"namespace": NAME}}
    answer = await client.create(SERVICE_ACCOUNTS, made, subresource="token", name=NAME)
    return str(answer["status"]["token"])


@pytest.mark.slow
@pytest.mark.api_server(authorization="rbac", simulate=True)
async def test_an_operator_needs_no_more_than_its_manifests_give(
    api_server: BackgroundServer, kube_client: Client, tmp_path: Path
) -> None:
    webhooks, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    printed = await asyncio.to_thread(
        subprocess.run,
        [*COMMAND, "manifests", "team_space:app", "--webhook-url", f"https://{webhooks}"],
        cwd=EXAMPLE,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    await apply_all(kube_client, printed.stdout)
    config = api_server.write_kubeconfig(tmp_path / "own", await token(kube_client))
    options = ["--kubeconfig", str(config), "--namespace", NAME, "--webhook-address", webhooks]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [*COMMAND, "run", "team_space:app", *options, "--metrics-address", metrics],
            cwd=EXAMPLE,
            stderr=log,
        )
    try:
        space = SPACES.new("blue", spec={"members": ["ann"]})
        await eventually(lambda: kube_client.create(SPACES, space), within=200)

        async def ready() -> bool:
            found = await kube_client.get(SPACES, ObjectKey("", "blue"))
            return bool((found.get("status") or {}).get("observedGeneration"))

        await eventually(ready, within=100)
        async with httpx.AsyncClient() as http:
            text = (await http.get(f"http://{metrics}/metrics")).text
        assert 'controller_runtime_reconcile_total{controller="team-spaces-teamspaces"' in text
        assert 'leader_election_master_status{name="team-spaces"} 1.0' in text
        await kube_client.delete(SPACES, ObjectKey("", "blue"))
        notes = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
        await eventually(
            lambda: kube_client.get(notes, ObjectKey("default", "was-blue")), within=100
        )

        async def gone() -> bool:
            return all(
                key_of(each).name != "blue" for each in (await kube_client.list(NAMESPACES)).items
            )

        await eventually(gone, within=100)
        assert process.poll() is None
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    said = (tmp_path / "log").read_text()
    assert "forbidden" not in said.lower()
    assert "reconciliation failed" not in said


SHARED = '''
import anyio

from kueuelib.runtime import Context, Obj, Operator, kinds

app = Operator("{name}")


@app.reconciles(kinds.CONFIG_MAPS, writes=[kinds.SECRETS])
async def seen(obj: Obj, context: Context) -> None:
    """Says that the operator knows the object."""
    await context.apply(kinds.SECRETS.new("{name}-seen"))


@seen.teardown("example.com/shared")
async def end(obj: Obj, context: Context) -> None:
    """Takes its time, then says that it has ended."""
    await context.apply(kinds.SECRETS.new("{name}-begun"))
    await anyio.sleep({seconds})
    await context.apply(kinds.SECRETS.new("{name}-ended"))
'''


@pytest.mark.api_server
async def test_an_object_stays_until_all_operators_with_one_finalizer_have_ended(
    api_server: BackgroundServer, kube_client: Client, tmp_path: Path
) -> None:
    """The slow one crashes in its teardown and starts again."""
    config = api_server.write_kubeconfig(tmp_path / "kubeconfig")

    def start(name: str) -> subprocess.Popen[bytes]:
        options = ["--kubeconfig", str(config), "--no-leader-elect"]
        with (tmp_path / f"{name}.log").open("a") as log:
            command = [*COMMAND, "run", f"{name}.py", *options]
            return subprocess.Popen(command, cwd=tmp_path, stderr=log)

    async def mark(name: str) -> bool:
        return bool(await kube_client.get(SECRETS, ObjectKey("default", name)))

    for name, seconds in (("fast", 0), ("slow", 3)):
        (tmp_path / f"{name}.py").write_text(SHARED.format(name=name, seconds=seconds))
    one = await kube_client.create(CONFIG_MAPS, CONFIG_MAPS.new("one", "default"))
    fast, slow = start("fast"), start("slow")
    try:
        for name in ("fast-seen", "slow-seen"):
            await eventually(partial(mark, name), within=60)
        await kube_client.delete(CONFIG_MAPS, key_of(one))
        for name in ("fast-ended", "slow-begun"):
            await eventually(partial(mark, name), within=60)
        slow.kill()
        slow.wait()
        await asyncio.sleep(0.5)
        assert (await kube_client.get(CONFIG_MAPS, key_of(one)))["metadata"]["deletionTimestamp"]
        slow = start("slow")

        async def gone() -> bool:
            return await read(kube_client, CONFIG_MAPS, key_of(one)) is None

        await eventually(gone, within=60)
        assert await mark("slow-ended")
    finally:
        for process in (fast, slow):
            process.kill()
            process.wait()
    assert "example.com/shared" in (tmp_path / "fast.log").read_text()
