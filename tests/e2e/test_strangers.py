"""Programs that know nothing of this project, unchanged against the embedded server."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kueuelib.embedded.server import ApiServer

OPERATOR = Path(__file__).with_name("kopf_operator.py")
GREETINGS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "greetings.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "greetings", "singular": "greeting", "kind": "Greeting"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"to": {"type": "string"}}},
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "nginx"}],
    },
}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(simulate=True, authorization="rbac") as server:
        yield server


@pytest.fixture
def config(server: ApiServer, tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(server.kubeconfig()))
    return path


async def until(ask: Callable[[], Awaitable[Any]], seconds: float = 180.0) -> Any:
    """The first answer that is not false."""
    async with asyncio.timeout(seconds):
        while not (found := await ask()):
            await asyncio.sleep(0.05)
        return found


# ---- kubernetes_asyncio


@pytest.fixture
async def kube(config: Path) -> AsyncIterator[Any]:
    from kubernetes_asyncio import client
    from kubernetes_asyncio import config as loader

    configuration = client.Configuration()
    await loader.load_kube_config(str(config), client_configuration=configuration)
    async with client.ApiClient(configuration) as api:
        yield api


async def test_a_watch_of_kubernetes_asyncio_sees_a_pod_live_and_go(kube: Any) -> None:
    from kubernetes_asyncio import client
    from kubernetes_asyncio import watch as watching

    core = client.CoreV1Api(kube)
    await core.create_namespaced_pod("default", POD)
    seen = []
    async with watching.Watch() as watch, asyncio.timeout(180):
        stream = watch.stream(
            core.list_namespaced_pod, "default", label_selector="app=web", timeout_seconds=150
        )
        async for event in stream:
            pod = event["object"]
            seen.append((event["type"], pod.status.phase))
            if pod.status.phase == "Running" and event["type"] != "DELETED":
                await core.delete_namespaced_pod("web", "default")
            if event["type"] == "DELETED":
                break
    assert ("DELETED", "Running") in seen
    assert any(phase == "Running" and type_ != "DELETED" for type_, phase in seen)


async def test_models_of_kubernetes_asyncio_are_read_and_written(kube: Any) -> None:
    from kubernetes_asyncio import client

    batch = client.BatchV1Api(kube)
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(annotations={"kueuelib.dev/run-seconds": "0"}),
        spec=client.V1PodSpec(
            restart_policy="Never", containers=[client.V1Container(name="c", image="i")]
        ),
    )
    job = client.V1Job(
        metadata=client.V1ObjectMeta(name="j"), spec=client.V1JobSpec(template=template)
    )
    await batch.create_namespaced_job("default", job)

    async def finished() -> bool:
        return bool((await batch.read_namespaced_job_status("j", "default")).status.succeeded)

    await until(finished)
    with pytest.raises(client.ApiException) as caught:
        await batch.read_namespaced_job("none", "default")
    assert caught.value.status == 404
    rbac = client.RbacAuthorizationV1Api(kube)
    assert (await rbac.read_cluster_role("view")).rules


# ---- kr8s


# kr8s leaves its temporary files and connections to the collector, of which Python 3.14 warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_kr8s_makes_waits_for_scales_and_deletes(config: Path) -> None:
    kr8s = pytest.importorskip("kr8s")
    from kr8s.asyncio.objects import ConfigMap, Pod, new_class

    api = await kr8s.asyncio.api(kubeconfig=str(config))
    pod = await Pod(POD, api=api)
    await pod.create()
    async with asyncio.timeout(180):
        await pod.wait("condition=Ready")
    await pod.label({"tier": "front"})
    found = [each async for each in api.get("pods", label_selector={"tier": "front"})]
    assert [each.name for each in found] == ["web"]
    await pod.delete()
    async with asyncio.timeout(180):
        await pod.wait("delete")
    body = {"metadata": {"name": "m", "namespace": "default"}, "data": {"x": "1"}}
    settings = await ConfigMap(body, api=api)
    await settings.create()
    await settings.patch({"data": {"x": "2"}})
    await settings.refresh()
    assert settings.raw["data"] == {"x": "2"}
    greeting = new_class("Greeting", "example.com/v1", asyncio=True, plural="greetings")
    definition = new_class(
        "CustomResourceDefinition", "apiextensions.k8s.io/v1", asyncio=True, namespaced=False
    )
    await (await definition(GREETINGS, api=api)).create()
    body = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"to": "all"}}
    made = await greeting(body, api=api)
    await made.create()
    assert await made.exists()
    version = await api.version()
    assert version["major"] == "1"


# ---- kopf


async def test_an_operator_of_kopf_does_its_work(kube: Any, config: Path, tmp_path: Path) -> None:
    pytest.importorskip("kopf")
    from kubernetes_asyncio import client

    await client.ApiextensionsV1Api(kube).create_custom_resource_definition(GREETINGS)
    log = tmp_path / "kopf.log"
    with log.open("w") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kopf", "run", str(OPERATOR), "-n", "default", "--verbose"),
            env={**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)},
            stdout=out,
            stderr=out,
        )
        try:
            await _played(kube, process)
        except TimeoutError:
            pytest.fail(log.read_text()[-5000:])
        finally:
            if process.returncode is None:
                process.terminate()
                await asyncio.wait_for(process.wait(), 20)


async def _played(kube: Any, process: asyncio.subprocess.Process) -> None:
    from kubernetes_asyncio import client

    custom, core = client.CustomObjectsApi(kube), client.CoreV1Api(kube)
    about = ("example.com", "v1", "default", "greetings")
    body = {"apiVersion": "example.com/v1", "kind": "Greeting", "spec": {"to": "you"}}
    await custom.create_namespaced_custom_object(*about, {**body, "metadata": {"name": "g"}})

    async def greeted(name: str) -> bool:
        assert process.returncode is None, "the operator has ended"
        found = await custom.get_namespaced_custom_object(*about, "g")
        return bool(found.get("status", {}).get("greeted") == name)

    await until(lambda: greeted("you"))
    config = await core.read_namespaced_config_map("g", "default")
    assert config.data == {"text": "hello you"}
    assert config.metadata.owner_references[0].kind == "Greeting"
    patch = [{"op": "replace", "path": "/spec/to", "value": "them"}]
    await custom.patch_namespaced_custom_object(*about, "g", patch)
    await until(lambda: greeted("them"))

    async def told() -> bool:
        events = await core.list_namespaced_event("default")
        return any(each.reason == "Greeted" for each in events.items)

    await until(told)
    await custom.delete_namespaced_custom_object(*about, "g")

    async def gone() -> bool:
        left = await custom.list_namespaced_custom_object(*about)
        names = {
            each.metadata.name for each in (await core.list_namespaced_config_map("default")).items
        }
        return not left["items"] and "g" not in names and "bye-g" in names

    await until(gone)
