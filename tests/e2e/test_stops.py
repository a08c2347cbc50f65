"""`kueuelib install` and `uninstall` that stop before any of their writes, and continue later.

No manager ever runs here, so that every webhook that is called refuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from real_plane import lacking, real_api
from rest import PATIENCE

from kueuelib.api import kinds
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.names import QUEUE_LABEL
from kueuelib.app.deployment import NAME, Deployed
from kueuelib.app.installation import Installation, install
from kueuelib.app.uninstallation import Removal, uninstall
from kueuelib.errors import ApiError, ConfigError, NotFound
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect
from kueuelib.testing.background import BackgroundServer

SPACE = "kueue-system"
INSIDE = Installation(SPACE, deployed=Deployed(visibility_port=8082))
OUTSIDE = Installation(SPACE, "https://127.0.0.1:9")
HEARD_SECONDS = {"embedded": 0.0, "real": 0.2}
"""After this time a server has heard of changed webhooks."""
REAL = pytest.param(
    "real", marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())]
)


class Stopped(Exception):
    """The process ended before a write."""


class OneWrite(Client):
    """A client whose process ends before the second write that changes anything."""

    wrote = False

    async def request(self, method: str, path: str, **rest: Any) -> Any:
        if method == "GET" or "dryRun" in f"{path} {rest}":
            return await super().request(method, path, **rest)
        if self.wrote:
            raise Stopped
        before = await self._version(path)
        try:
            return await super().request(method, path, **rest)
        finally:
            self.wrote = method == "POST" or await self._version(path) != before

    async def _version(self, path: str) -> str:
        try:
            obj = await super().request("GET", path)
        except NotFound:
            return ""
        return str(obj["metadata"].get("resourceVersion", ""))


@pytest.fixture(params=["embedded", REAL])
def server(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def admin(server: str, tmp_path: Path) -> AsyncIterator[Client]:
    with ExitStack() as stack:
        if server == "real":
            kubeconfig = stack.enter_context(real_api(tmp_path))
        else:
            background = stack.enter_context(BackgroundServer())
            kubeconfig = background.write_kubeconfig(tmp_path / "kubeconfig")
        async with await connect(kubeconfig) as client:
            yield client


async def in_pieces(
    admin: Client,
    command: Callable[[Client], Coroutine[Any, Any, list[str]]],
    judge: Callable[[], Coroutine[Any, Any, None]],
) -> int:
    """Runs a command that is stopped after each of its writes until it is done.

    Args:
        admin: reaches the server.
        command: what to run.
        judge: raises an error if the cluster is not as it should be after a stop.

    Returns:
        How often it was stopped.
    """
    for stops in range(1000):
        try:
            await command(OneWrite(admin.transport))
        except Stopped:
            await judge()
        else:
            return stops
    raise AssertionError("it never ends")


# --- what the cluster admits


def pod(**labels: str) -> Obj:
    meta = {"name": "p", "namespace": "default", "labels": labels}
    spec = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def job(**labels: str) -> Obj:
    template = {"spec": pod()["spec"]}
    meta = {"name": "j", "namespace": "default", "labels": labels}
    spec = {"template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


async def refusals(client: Client, objects: list[Obj]) -> list[str]:
    """What the API server says about new objects that it does not admit."""
    refused = []
    for obj in objects:
        resource = kinds.PODS if obj["kind"] == "Pod" else kinds.JOBS
        try:
            await client.create(resource, obj, dry_run=True)
        except ApiError as error:
            refused.append(str(error))
    return refused


async def exists(client: Client, resource: Any, name: str, space: str = "") -> bool:
    try:
        await client.get(resource, ObjectKey(space, name))
    except NotFound:
        return False
    return True


async def admits(client: Client) -> None:
    """What nobody queues is admitted, and what is queued as well unless a manager will answer."""
    deployed = await exists(client, kinds.DEPLOYMENTS, NAME, SPACE)
    objects = [pod(), job()]
    if not deployed:
        objects += [pod(**{QUEUE_LABEL: "main"}), job(**{QUEUE_LABEL: "main"})]
        apis = (await client.list(kinds.API_SERVICES)).items
        assert not [one for one in apis if "visibility.kueue" in one["metadata"]["name"]]
    assert await refusals(client, objects) == []


async def test_a_stop_anywhere_leaves_a_cluster_that_admits(admin: Client, server: str) -> None:
    async def judge() -> None:
        await asyncio.sleep(HEARD_SECONDS[server])
        await admits(admin)

    stops = await in_pieces(admin, lambda client: install(client, INSIDE, PATIENCE), judge)
    assert stops > 40
    await asyncio.sleep(HEARD_SECONDS[server])
    if server == "embedded":  # a real one tries to reach the Service for ten seconds
        queued = job(**{QUEUE_LABEL: "main"})
        assert "failed calling webhook" in str(await refusals(admin, [queued]))
    again = await install(admin, INSIDE, PATIENCE)
    assert not [line for line in again if line.endswith((" created", " configured"))]
    removal = Removal(INSIDE)
    stops = await in_pieces(admin, lambda client: uninstall(client, removal, PATIENCE), judge)
    assert stops > 40
    assert not (await admin.list(kinds.CRDS)).items


# --- beside the Go manager


def deployment(name: str, image: str, **spec: Any) -> Obj:
    labels = {"control-plane": "controller-manager"}
    containers = [{"name": "manager", "image": image}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


GO = "registry.k8s.io/kueue/kueue:v0.19.0"


@pytest.mark.parametrize(
    ("installation", "other", "words"),
    [
        (INSIDE, deployment(NAME, GO), "another manager has it: ours has its name"),
        (INSIDE, deployment(NAME, GO, replicas=0), "another manager has it"),
        (OUTSIDE, deployment(NAME, GO), f"runs another manager of the same objects: {GO}"),
        (INSIDE, deployment("theirs", GO), f"runs another manager of the same objects: {GO}"),
    ],
    ids=["its name is ours", "it has no pods", "ours is elsewhere", "it has another name"],
)
async def test_nothing_is_written_beside_a_go_manager(
    admin: Client, installation: Installation, other: Obj, words: str
) -> None:
    space: Obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    await admin.create(kinds.NAMESPACES, space)
    await admin.create(kinds.DEPLOYMENTS, other)
    untouched = OneWrite(admin.transport)
    with pytest.raises(ConfigError, match=words) as refused:
        await install(untouched, installation, PATIENCE)
    name = other["metadata"]["name"]
    assert refused.value.fix.endswith(f"kubectl -n {SPACE} delete deployment {name}")
    assert not untouched.wrote
    await admin.delete(kinds.DEPLOYMENTS, ObjectKey(SPACE, name))
    await install(admin, installation, PATIENCE)
